"""State shared by all handlers of a broker: store, tables, clients, signals."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from formats.message.properties import REAL_TOPIC, parse
from formats.model.topics import TopicConfig
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import (
    AUTO_CREATE,
    BENCHMARK,
    HALF,
    LMQ_PREFIX,
    OFFSET_MOVED,
    OP,
    PROXY_HEARTBEATS,
    REPLY_SUFFIX,
    REVIVE_PREFIX,
    ROCKS_HALF,
    ROCKS_OP,
    SCHEDULE,
    SELF_TEST,
    SYNC_PREFIX,
    SYSTEM_TOPICS,
    TIMER,
    Perm,
)
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.releases import Release
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.clients import Clients
from rmqtool.server.broker.context.counts import Counts
from rmqtool.server.broker.context.disk_use import describe_unavailable
from rmqtool.server.broker.context.locks import QueueLocks
from rmqtool.server.broker.context.settings import BrokerSettings
from rmqtool.server.broker.context.signals import Signal
from rmqtool.server.broker.context.throttled_log import ThrottledLog
from rmqtool.services.offsets.files import Key
from rmqtool.services.open_store.broker_state import TOPICS, BrokerState
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.open_store.static_topics import StaticTopics
from rmqtool.services.open_store.store import Store
from rmqtool.store.config.files import config_database
from rmqtool.store.disk.directories import exists
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.releases.rules import attributes_shown
from rmqtool.words import counted

log = logging.getLogger(__name__)

_WAITING = {SCHEDULE, HALF, TIMER}  # topics whose messages belong to another topic


@dataclass
class BrokerContext:
    """A broker without its handlers.

    Attributes:
        log: for problems.
        arrivals: signals that a queue (topic, queue id) has a new message.
        freed_queues: signals that messages of (topic, group, queue id) are visible again to a group that pops in order.
        topic_changes: signals that name servers must be informed of changed topics.
        now: monotonic clock, in seconds.
        counts: statistics of puts and gets.
        pulled: offsets up to which groups have pulled, by topic, group and queue id; in memory only.
        resets: offsets set by administrators but not pulled from yet, by topic, group and queue id; 5.x.
        routes: asks the name servers for the readable queues of a topic; None if none answers.
        announced: waits until the name servers know all topics of this moment; None without name servers.
        ask_broker: sends a request to another broker, by name; None without name servers.
        static_topics: the parts of static topics that this broker holds; 5.x.
    """

    settings: BrokerSettings
    store: Store
    state: BrokerState
    reading: Reading
    clients: Clients
    log: ThrottledLog
    arrivals: Signal[[str, int]] = field(default_factory=Signal)
    freed_queues: Signal[[str, str, int]] = field(default_factory=Signal)
    topic_changes: Signal[[]] = field(default_factory=Signal)
    now: Callable[[], float] = time.monotonic
    locks: QueueLocks = field(default_factory=lambda: QueueLocks(time.monotonic))
    counts: Counts = field(default_factory=Counts)
    pulled: dict[Key, int] = field(default_factory=dict)
    resets: dict[Key, int] = field(default_factory=dict)
    routes: Callable[[str], Awaitable[list[QueueName] | None]] | None = None
    announced: Callable[[], Awaitable[None]] | None = None
    ask_broker: Callable[[str, Command], Awaitable[Command]] | None = None
    static_topics: StaticTopics = field(init=False)

    def __post_init__(self) -> None:
        self.static_topics = StaticTopics(self.state)

    def clock(self) -> int:
        """The current time, ms since the epoch."""
        return self.state.clock()

    @property
    def release(self) -> Release:
        """The release whose rules the broker follows."""
        return self.settings.release

    def drop_unused_stats(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop what was counted of a deleted topic or group, unless the setting keeps it."""
        if self.settings.drop_unused_stats:
            self.counts.drop(topic=topic, group=group)

    def forget_positions(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget positions in memory after a topic or a group was deleted."""
        for positions in (self.pulled, self.resets):
            for key in [key for key in positions if key[0] == topic or key[1] == group]:
                del positions[key]

    def failure(self, what: str, error: Exception, code: int = ResponseCode.SERVICE_NOT_AVAILABLE) -> Failed:
        """The answer to a request that failed in the store.

        The reason is only logged, as it may contain paths.

        Args:
            what: for the log.
        """
        self.log.error(f"{what}: {error}")
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return Failed(code, describe_unavailable(self.store.layout))
        return Failed(code, f"{what}: the broker's log has the reason")

    @property
    def invalid_code(self) -> int:
        """The code for a request with invalid values."""
        return self.release.invalid_code

    def topic(self, name: str) -> TopicConfig:
        """The settings of a topic that must exist.

        Raises:
            Failed: it does not exist.
        """
        config = self.state.topic(name)
        if config is None:
            remark = f"topic[{name}] not exist, apply first please!"
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, remark)
        return config

    async def queues_of(self, topic: str) -> list[QueueName] | None:
        """The readable queues of a topic on all brokers; None for an unknown topic."""
        queues = None if self.routes is None else await self.routes(topic)
        config = self.state.topic(topic)
        if queues is not None or config is None or not config.perm & Perm.READ:
            return queues or None
        return [QueueName(topic, self.settings.name, queue_id) for queue_id in range(config.read_queue_nums)]

    def check_writable(self) -> None:
        """Check that messages may be stored.

        Raises:
            Failed: the store is only read.
        """
        if self.settings.read_only:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{self.settings.address}] is read-only")

    def set_topic(self, config: TopicConfig) -> None:
        """Create or change a topic, and inform the name servers."""
        self.set_topics([config])

    def set_topics(self, configs: Iterable[TopicConfig]) -> None:
        """Create or change topics, all or none, and inform the name servers."""
        self.state.set_topics(configs)
        self.topic_changes.publish()

    def ensure_topic(self, name: str, queues: int, *, later: bool = False) -> TopicConfig:
        """Create a topic if it is missing; see :meth:`BrokerState.ensure_topic`."""
        config = self.state.topic(name)
        if config is None:
            config = self.state.ensure_topic(name, queues, later=later)
            self.topic_changes.publish()
        return config

    def suppose_topics(self) -> None:
        """Enter the broker's own topics, and those of existing queues if there is no table."""
        for topic in self.system_topics():
            self.state.suppose_topic(topic)
        shown = self._topics_of_queues()
        for topic in shown:
            self.state.suppose_topic(topic)
        if shown:
            log.warning(
                "%s has no topics.json: %s served as the queues show; %s writes one",
                self.store.layout.root, counted(len(shown), "topic is", "topics are"),
                self.store.layout.command("rebuild", "config"),
            )  # fmt: skip

    def _topics_of_queues(self) -> list[TopicConfig]:
        """Topics of existing queues, if the store has no ``topics.json`` (as after ``append``, ``import`` or
        ``salvage``): otherwise their messages could not be consumed.
        """
        layout = self.store.layout
        files = (TOPICS, f"{TOPICS}.bak", f"{TOPICS}.tmp")
        if any(exists(layout.path("config", name)) for name in files) or config_database(layout, TOPICS) is not None:
            return []
        queues: dict[str, int] = {}
        for queue in every_queue(layout):
            if not queue.topic.startswith(LMQ_PREFIX):
                queues[queue.topic] = max(queues.get(queue.topic, 0), queue.queue_id + 1)
        perm, attributes = Perm.READ | Perm.WRITE, attributes_shown(layout)
        return [
            TopicConfig(
                topic_name=topic, read_queue_nums=number, write_queue_nums=number, perm=perm,
                attributes=attributes.get(topic, {}),
            )
            for topic, number in sorted(queues.items())
        ]  # fmt: skip

    def system_topics(self) -> list[TopicConfig]:
        """Topics that every broker has, in memory from its start (broker.topic.TopicConfigManager)."""

        def topic(name: str, queues: int, perm: int = Perm.READ | Perm.WRITE) -> TopicConfig:
            return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

        settings = self.settings
        topics = [
            topic(SELF_TEST, 1),
            topic(BENCHMARK, 1024),
            topic(settings.cluster, 16, Perm.READ | Perm.WRITE | Perm.INHERIT),
            topic(settings.name, 1, Perm.READ | Perm.WRITE | Perm.INHERIT),
            topic(OFFSET_MOVED, 1),
            topic(SCHEDULE, 18),
            topic(f"{settings.cluster}{REPLY_SUFFIX}", 1),
        ]
        if self.release.is_5:
            topics += [
                topic(f"{REVIVE_PREFIX}{settings.cluster}", 8),
                topic(f"{SYNC_PREFIX}{settings.name}", 1, Perm.INHERIT),
                topic(HALF, 1),
                topic(OP, 1),
            ]
        if self.release.is_5 and settings.read_only:
            topics.append(topic(PROXY_HEARTBEATS, 1))  # no proxy can make it here
        if self.release.has_rocks_halves:
            topics += [topic(ROCKS_HALF, 1), topic(ROCKS_OP, 1)]
        if self.release.has_timer and self.store.layout.conf.flag("timerWheelEnable", True):
            topics.append(topic(TIMER, 1))
        if settings.auto_create_topics:
            queues = settings.default_topic_queues
            topics.append(topic(AUTO_CREATE, queues, Perm.READ | Perm.WRITE | Perm.INHERIT))
        return topics

    def topic_at(self, physical_offset: int) -> str | None:
        """The real topic of the message at an offset, which may wait in another; None if there is no message."""
        message = self.reading.message(physical_offset)
        if message is None:
            return None
        topic = message.record.topic.decode("utf-8", "replace")
        return parse(message.record.properties).get(REAL_TOPIC, topic) if topic in _WAITING else topic

    def is_system(self, name: str) -> bool:
        """Whether a topic belongs to the broker itself."""
        return name in SYSTEM_TOPICS or name in {topic.topic_name for topic in self.system_topics()}
