"""An open store with a clock set by the test, and access to its queues."""

from pathlib import Path

from formats.message.properties import parse
from formats.message.read import Record
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.services.lookup.queue_messages import TopicQueues, messages_of
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.store.log.commit_log import CommitLog
from tests.services.build import TIME, never

SIZES = {
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "61",
    "maxIndexNum": "500",
}


class Lab:
    """A store open for writing, with a clock set by the test.

    Args:
        settings: broker settings in addition to the file sizes.
    """

    def __init__(self, root: Path, *, engine: str = "4.9", **settings: str) -> None:
        self.path, self.settings, self.engine = root / "store", SIZES | settings, engine
        self.now = TIME
        self.warnings: list[str] = []
        self.store = Store.create(
            self.path, broker_conf=self.settings, release=RELEASES[engine], clock=lambda: self.now
        )
        self.state = BrokerState(self.store, self.warnings.append)

    def again(self, *, mend: bool = False) -> None:
        """Close the store and reopen it, as another process would."""
        self.store.close()
        self.store = Store(
            self.path,
            write=True,
            broker_conf=self.settings,
            release=RELEASES[self.engine],
            clock=lambda: self.now,
            mend=mend,
        )
        self.state = BrokerState(self.store, self.warnings.append)

    def send(self, body: str, topic: str = "T", queue_id: int = 0, **properties: str) -> int:
        """Store a message; returns its physical offset."""
        result = self.store.append(
            NewMessage(topic=topic, queue_id=queue_id, body=body.encode(), properties={"UNIQ_KEY": body, **properties})
        )
        assert result.ok, result
        return result.physical_offset

    def records(self, topic: str) -> list[Record]:
        """The messages of a topic, queue by queue."""
        self.store.dispatch()
        log = CommitLog(self.store.layout)
        queues = TopicQueues(self.store.layout).of(topic)
        return [message.record for queue in queues for message in messages_of(log, queue, never)]

    def bodies(self, topic: str = "T") -> list[str]:
        """The bodies of a topic's messages."""
        return [record.body.decode() for record in self.records(topic)]

    def properties(self, topic: str) -> list[dict[str, str]]:
        """The properties of a topic's messages."""
        return [parse(record.properties) for record in self.records(topic)]
