"""What the jobs of a broker have in common: its store, its tables, its clients, and who must hear of what."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from formats.message.properties import REAL_TOPIC, parse
from formats.model.topics import TopicConfig
from formats.remoting.codes import ResponseCode
from formats.topics import (
    AUTO_CREATE,
    BENCHMARK,
    HALF,
    LMQ_PREFIX,
    OFFSET_MOVED,
    OP,
    REPLY_SUFFIX,
    REVIVE_PREFIX,
    SCHEDULE,
    SELF_TEST,
    SYNC_PREFIX,
    SYSTEM_TOPICS,
    TIMER,
    Perm,
)
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.releases import Release
from rmqtool.server.broker.known.answers import Failed
from rmqtool.server.broker.known.clients import Clients
from rmqtool.server.broker.known.counts import Counts
from rmqtool.server.broker.known.disk import unavailable
from rmqtool.server.broker.known.locks import QueueLocks
from rmqtool.server.broker.known.settings import Settings
from rmqtool.server.broker.known.troubles import Troubles
from rmqtool.services.offsets.files import Key
from rmqtool.services.opened.broker_state import TOPICS, BrokerState
from rmqtool.services.opened.engine import Store
from rmqtool.services.serving.reading import Reading
from rmqtool.store.disk.remote import exists

log = logging.getLogger(__name__)

_WAITING = {SCHEDULE, HALF, TIMER}  # topics whose messages are for another one


@dataclass
class Core:
    """A broker without its handlers.

    Attributes:
        arrived: told of a queue that has a new message.
        topics_changed: told when the name servers must hear of it.
        clock: ms since the epoch.
        now: seconds that only go forward.
        counts: what was put and got.
        troubles: logs what goes wrong.
        pulled: offsets up to which groups were handed messages, by topic, group and queue id; in memory only.
        resets: offsets that groups were set to and have not heard of, by topic, group and queue id; of 5.x.
        routes: asks the name servers for the queues of a topic that can be read; None where none of them answers.
    """

    settings: Settings
    store: Store
    state: BrokerState
    reading: Reading
    clients: Clients
    locks: QueueLocks
    clock: Callable[[], int]
    now: Callable[[], float]
    counts: Counts
    arrived: Callable[[str, int], None] = lambda _topic, _queue: None
    topics_changed: Callable[[], None] = lambda: None
    troubles: Troubles = field(default_factory=lambda: Troubles(log))
    pulled: dict[Key, int] = field(default_factory=dict)
    resets: dict[Key, int] = field(default_factory=dict)
    routes: Callable[[str], Awaitable[list[QueueName] | None]] | None = None

    @property
    def release(self) -> Release:
        """Whose rules it goes by."""
        return self.settings.release

    def failed(self, what: str, error: Exception, code: int = ResponseCode.SERVICE_NOT_AVAILABLE) -> Failed:
        """The answer to a request that the store did not carry out. The log has the reason; who asked is told no path
        of this machine.

        Args:
            what: for the log.
        """
        self.troubles.error(f"{what}: {error}")
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return Failed(code, unavailable(self.store.layout))
        return Failed(code, f"{what}: the broker's log has the reason")

    def invalid(self) -> int:
        """Code of a request whose values cannot be right."""
        return self.release.invalid_code

    def topic(self, name: str) -> TopicConfig:
        """A topic that must be there.

        Raises:
            Failed: it is not.
        """
        found = self.state.topic(name)
        if found is None:
            words = f"topic[{name}] not exist, apply first please!"
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, words)
        return found

    async def queues_of(self, topic: str) -> list[QueueName] | None:
        """The queues of a topic that can be read, on all brokers; None for a topic that is nowhere."""
        found = None if self.routes is None else await self.routes(topic)
        config = self.state.topic(topic)
        if found is not None or config is None or not config.perm & Perm.READ:
            return found or None
        return [QueueName(topic, self.settings.name, queue_id) for queue_id in range(config.read_queue_nums)]

    def set_topic(self, config: TopicConfig) -> None:
        """Make or change a topic, and tell the name servers."""
        self.set_topics([config])

    def set_topics(self, configs: Iterable[TopicConfig]) -> None:
        """Make or change topics, all of them or none, and tell the name servers."""
        self.state.set_topics(configs)
        self.topics_changed()

    def ensure_topic(self, name: str, queues: int, *, later: bool = False) -> TopicConfig:
        """A topic of the broker's own, made where it is missing; see :meth:`BrokerState.ensure_topic`."""
        found = self.state.topic(name)
        if found is None:
            found = self.state.ensure_topic(name, queues, later=later)
            self.topics_changed()
        return found

    def topics_of_queues(self) -> list[TopicConfig]:
        """Topics that their queues show, where the store has no ``topics.json``: made by ``append``, ``import`` or
        ``salvage``, it has messages that nobody could consume.
        """
        layout = self.store.layout
        if any(exists(layout.path("config", name)) for name in (TOPICS, f"{TOPICS}.bak", f"{TOPICS}.tmp")):
            return []
        queues: dict[str, int] = {}
        for topic, queue_id, _path in layout.queue_dirs():
            if not topic.startswith(LMQ_PREFIX):
                queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        return [
            TopicConfig(topic_name=topic, read_queue_nums=number, write_queue_nums=number, perm=Perm.READ | Perm.WRITE)
            for topic, number in sorted(queues.items())
        ]

    def system_topics(self) -> list[TopicConfig]:
        """Topics that every broker has, in memory from its start (broker.topic.TopicConfigManager)."""

        def topic(name: str, queues: int, perm: int = Perm.READ | Perm.WRITE) -> TopicConfig:
            return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

        settings = self.settings
        found = [
            topic(SELF_TEST, 1),
            topic(BENCHMARK, 1024),
            topic(settings.cluster, 16, Perm.READ | Perm.WRITE | Perm.INHERIT),
            topic(settings.name, 1, Perm.READ | Perm.WRITE | Perm.INHERIT),
            topic(OFFSET_MOVED, 1),
            topic(SCHEDULE, 18),
            topic(f"{settings.cluster}{REPLY_SUFFIX}", 1),
        ]
        if self.release.is_5:
            found += [
                topic(f"{REVIVE_PREFIX}{settings.cluster}", 8),
                topic(f"{SYNC_PREFIX}{settings.name}", 1, Perm.INHERIT),
                topic(HALF, 1),
                topic(OP, 1),
            ]
        if self.release.has_timer and self.store.layout.conf.flag("timerWheelEnable", True):
            found.append(topic(TIMER, 1))
        if settings.auto_create_topics:
            queues = settings.default_topic_queues
            found.append(topic(AUTO_CREATE, queues, Perm.READ | Perm.WRITE | Perm.INHERIT))
        return found

    def topic_at(self, physical_offset: int) -> str | None:
        """The topic that the message at an offset is for, though it may wait in another one; None without a message."""
        found = self.reading.message(physical_offset)
        if found is None:
            return None
        topic = found.record.topic.decode("utf-8", "replace")
        return parse(found.record.properties).get(REAL_TOPIC, topic) if topic in _WAITING else topic

    def is_system(self, name: str) -> bool:
        """Whether a topic belongs to the broker itself."""
        return name in SYSTEM_TOPICS or name in {topic.topic_name for topic in self.system_topics()}
