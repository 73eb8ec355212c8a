"""A half message and the message that a real broker committed for it are known as one transaction."""

import pytest

from formats.message.properties import UNIQ_KEY, parse
from formats.topics import HALF
from rmqtool.services.lookup.queue_messages import QueueMessage
from rmqtool.services.transactions.copies import identity
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.reader import QueueEntry
from tests.conftest import Unpacked


@pytest.mark.parametrize("case", ["broker", "broker-5.3.3", "broker-5.5.0"])
def test_committed_messages_have_the_identity_of_their_halves(case: str, golden: Unpacked) -> None:
    """5.5 takes the properties that name the destination off a committed message."""
    halves: dict[str, QueueMessage] = {}
    committed: dict[str, QueueMessage] = {}
    for item in CommitLog(StoreLayout(str(golden(case)))).walk():
        assert isinstance(item, LocatedRecord)
        properties, record = parse(item.record.properties), item.record
        if properties.get("TRAN_MSG") != "true":
            continue
        message = QueueMessage(QueueEntry(record.queue_offset, item.physical_offset, 0, 0), record, properties)
        (halves if record.topic == HALF.encode() else committed).setdefault(properties[UNIQ_KEY], message)
    pairs = [(halves[unique], message) for unique, message in committed.items() if unique in halves]
    assert len(pairs) > 3
    for half, message in pairs:
        assert identity(half) == identity(message) is not None
