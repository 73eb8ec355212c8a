"""Real brokers with queue extensions serve, by tag, exactly the messages of a recovered store."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from formats.message.properties import TAGS, parse
from formats.message.read import Record, read
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns, every
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.interop.broker import Broker
from tests.interop.engine import golden_config
from tests.store.test_whole_extension import DAMAGES

pytestmark = pytest.mark.interop
CASE = "queue-ext"
Place = tuple[str, int, str]  # topic, queue id, tag


def by_tags(store: Path) -> dict[Place, list[int]]:
    """Queue offsets of the log's messages, by queue and tag."""
    result: dict[Place, list[int]] = {}
    for item in CommitLog(StoreLayout(str(store))).walk():
        if isinstance(item, LocatedRecord):
            tag = parse(item.record.properties).get(TAGS)
            if tag and "||" not in tag:
                result.setdefault((item.record.topic.decode(), item.record.queue_id, tag), []).append(
                    item.record.queue_offset
                )
    return result


async def pulled(client: Connection, topic: str, queue_id: int, tag: str) -> list[int]:
    """Queue offsets received by a consumer of one tag."""
    place = {"topic": topic, "queueId": str(queue_id)}
    end = int((await client.call(Command(RequestCode.GET_MAX_OFFSET, fields=place), 10)).fields["offset"])
    got, at = list[int](), 0
    while at < end:
        fields = {
            **place, "consumerGroup": "judge", "queueOffset": str(at), "maxMsgNums": "32", "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": tag, "subVersion": "0",
            "expressionType": "TAG",
        }  # fmt: skip
        answer = await client.call(Command(RequestCode.PULL_MESSAGE, fields=fields), 10)
        data, start = memoryview(answer.body), 0
        while start < len(data):
            record = read(data, start, len(data))
            assert isinstance(record, Record)
            got.append(record.queue_offset)
            start += record.total_size
        following = int(answer.fields["nextBeginOffset"])
        assert following > at, (topic, queue_id, tag, answer)
        at = following
    return got


async def all_pulled(address: str, places: Collection[Place]) -> dict[Place, list[int]]:
    host, _, port = address.rpartition(":")
    async with open_connection(host, int(port), timeout=10) as client:
        return {place: await pulled(client, *place) for place in places}


@by_turns(23)
@pytest.mark.parametrize("number", every(3, [-1, *range(len(DAMAGES))]))
def test_tags_lead_to_the_messages_of_the_log(
    number: int, broker: Broker, golden_copy: Unpacked, tmp_path: Path
) -> None:
    store = golden_copy(CASE)
    settings = {name: str(value) for name, value in golden_config(CASE).items()}
    (conf := tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    if number >= 0:
        DAMAGES[number](store)
        result = rmqtool("recover", store, "--yes", "--engine", broker.engine, "--broker-conf", conf)
        assert result.code == 0, result.err
    # an engine alone has written the store, so that there are no settings of its topics
    assert rmqtool("rebuild", store, "config", "--yes").code == 0
    expected = by_tags(store)
    assert len(expected) > 1
    broker.boot(store, settings)
    try:
        assert asyncio.run(all_pulled(broker.ask("addresses")["broker"], expected)) == expected
    finally:
        broker.stop()
