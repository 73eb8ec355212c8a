"""Options of consumers, and answers of listeners (client.consumer.DefaultMQPushConsumer, DefaultLitePullConsumer)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.received import Received
from rmqtool.rules.rebalance import Strategy, averagely, averagely_by_circle


@dataclass(kw_only=True)
class Consumption:
    """One call of a listener (ConsumeMessageContext).

    Attributes:
        began: ms since the epoch.
        took: duration in ms, once the listener has returned.
        success: the messages were consumed.
        outcome: SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL or FAILED (ConsumeReturnType).
    """

    group: str
    queue: MessageQueue
    messages: Sequence[Received]
    began: int = 0
    took: int = 0
    success: bool = False
    outcome: str = "FAILED"
    more: dict[object, Any] = field(default_factory=dict)  # for the hooks


class ConsumeHook:
    """Observes the calls of a listener (ConsumeMessageHook)."""

    def before(self, consumption: Consumption) -> None:
        """Called before the listener."""

    def after(self, consumption: Consumption) -> None:
        """Called after the listener."""


_MOST_TRIES, _ENDLESS = 16, (1 << 31) - 1
POP_DELAYS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds, as in the Java client (popDelayLevel)."""
STRATEGY_NAMES: dict[Strategy, str] = {averagely: "AVG", averagely_by_circle: "AVG_BY_CIRCLE"}
"""Allocation strategies of brokers, by their names there."""


class From(Enum):
    """Where a new group begins in a queue (ConsumeFromWhere).

    While a queue still has its first message in memory, brokers answer offset 0 for a new group; it then begins there,
    whatever this option says.
    """

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True)
class Later:
    """A listener's answer: redeliver some of the messages.

    Attributes:
        first: index of the first message to redeliver; those before it are consumed.
        level: delay level; 0 lets the broker choose by the number of tries, -1 sends them to the dead letters at once.
    """

    first: int = 0
    level: int = 0


@dataclass(frozen=True)
class Suspend:
    """An orderly listener's answer: call it again with the same messages, before any later ones.

    Attributes:
        pause: seconds until then, 0.01 to 30; the default is ``suspend_pause``.
    """

    pause: float | None = None


class Ordered(Enum):
    """Further answers of an orderly listener, for a consumer with ``auto_commit=False``.

    Attributes:
        COMMIT: all messages since the last commit are consumed.
        ROLLBACK: redeliver all messages since the last commit.
    """

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


class Sql(str):
    """A SQL92 expression, to subscribe with instead of tags; brokers must have ``enablePropertyFilter``."""

    __slots__ = ()


Said: TypeAlias = Later | Suspend | Ordered | None
Listener: TypeAlias = Callable[[Sequence[Received]], Said | Awaitable[Said]]
"""Called with messages of one queue, which are consumed if it returns None.

They are redelivered if it raises or returns :class:`Later` (orderly: :class:`Suspend`). Any other return value is an
error, and the messages are redelivered too.
"""


@dataclass(frozen=True)
class FlowLimits:
    """Limits on pulled messages waiting in one queue; pulling pauses above them (pullThresholdForQueue and similar).

    Attributes:
        messages: number of messages.
        size: bytes of their stored bodies.
        span: distance from the oldest to the newest queue offset, so that one stuck message eventually stops its queue.
        topic_messages, topic_size: limits per topic, divided among this client's queues; -1 means none.
    """

    messages: int = 1000
    size: int = 100 << 20
    span: int = 2000
    topic_messages: int = -1
    topic_size: int = -1

    def of_queue(self, queues: int) -> "FlowLimits":
        """The limits of each queue of a topic of which this client has ``queues``."""
        if queues < 1 or (self.topic_messages < 0 and self.topic_size < 0):
            return self
        messages = max(1, self.topic_messages // queues) if self.topic_messages >= 0 else self.messages
        size = max(1, self.topic_size // queues) if self.topic_size >= 0 else self.size
        return FlowLimits(messages, size, self.span)


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Settings of a push consumer, with the defaults of the Java client.

    Attributes:
        orderly: call the listener with the messages of a queue in order, one call at a time, while the broker has the
            queue locked for this client.
        broadcasting: every member of the group gets all messages; offsets are stored in a file, and failed messages are
            dropped.
        start: where a new group begins.
        start_time: for ``From.TIMESTAMP``: begin with messages stored at this time, in ms; by default 30 minutes ago.
        strategy: allocation strategy; must be the same for all members of a group.
        batch: maximum number of messages per call of the listener.
        concurrency: maximum number of parallel calls of the listener.
        pull_batch: maximum number of messages per pull.
        limits: limits on messages waiting in one queue.
        max_tries: how often a message is redelivered before it becomes a dead letter; -1 means 16, or unlimited for
            orderly consumption.
        auto_commit: for an orderly listener: commit consumed messages at once, instead of when it returns COMMIT.
        suspend_pause: seconds until a failed orderly listener is called again with the same messages.
        consume_timeout: seconds after which a message still held by a listener is sent back for redelivery; not for
            orderly consumption.
        persist_interval: seconds between commits of the group's offsets.
        rebalance_interval: seconds between rebalances.
        lock_interval: seconds between renewals of the queue locks of orderly consumption.
        hold: seconds that brokers may hold a pull without messages.
        client_rebalance: members allocate the queues by themselves; otherwise brokers of 5.x assign them and decide
            whether messages are popped (``mqadmin setConsumeMode``). Orderly and broadcasting members always allocate
            by themselves.
        pop_invisible: seconds for which popped messages are invisible to others, 5 to 300.
        pop_batch: maximum number of messages per pop, up to 32.
        pop_limit: no more is popped from a queue with this many unsettled messages.
        pop_delays: seconds after which a popped message that failed is redelivered, by number of tries or by the
            listener's delay level.
        pull_pause: seconds between pulls.
        error_pause: seconds until a failed pull is retried.
        retry_pause: seconds until messages that could not be sent back are passed to the listener again.
        shutdown_wait: seconds that listeners have to finish when the consumer is closed.
        local_offsets: directory for offsets of broadcasting consumers, clientId/group/offsets.json; by default
            ``~/.rocketmq_offsets``, as in Java.
        hooks: called for every call of the listener; ``Tracer.consumes`` is one.
        made_again: if given, every pull and commit verifies that the queue is the one read before. Called with the
            error if it is not, because its topic was created again or its broker has another store; the queue is then
            left alone, and nothing is committed. By default nothing is verified, as in Java.
    """

    orderly: bool = False
    broadcasting: bool = False
    start: From = From.LAST
    start_time: int | None = None
    strategy: Strategy = field(default=averagely)
    batch: int = 1
    concurrency: int = 20
    pull_batch: int = 32
    limits: FlowLimits = field(default_factory=FlowLimits)
    max_tries: int = -1
    auto_commit: bool = True
    suspend_pause: float = 1.0
    consume_timeout: float = 900.0
    persist_interval: float = 5.0
    rebalance_interval: float = 20.0
    lock_interval: float = 20.0
    hold: float = 15.0
    client_rebalance: bool = True
    pop_invisible: float = 60.0
    pop_batch: int = 32
    pop_limit: int = 96
    pop_delays: Sequence[float] = POP_DELAYS
    pull_pause: float = 0.0
    error_pause: float = 1.0
    retry_pause: float = 5.0
    shutdown_wait: float = 10.0
    local_offsets: Path | None = None
    hooks: Sequence[ConsumeHook] = ()
    made_again: Callable[[Exception], None] | None = None

    @property
    def tries(self) -> int:
        """How often a message is redelivered before it becomes a dead letter."""
        if self.max_tries >= 0:
            return self.max_tries
        return _ENDLESS if self.orderly else _MOST_TRIES

    def __post_init__(self) -> None:
        ranges = {"batch": 1024, "concurrency": 1000, "pull_batch": 1024, "pop_batch": 32}
        for name, most in ranges.items():
            value: Any = getattr(self, name)
            if not 1 <= value <= most:
                raise ValueError(f"{name} {value}: 1 to {most}")
        if self.max_tries < -1:
            raise ValueError(f"max_tries {self.max_tries}: -1 or more")
        if min(self.consume_timeout, self.persist_interval, self.rebalance_interval, self.lock_interval) <= 0:
            raise ValueError("consume_timeout, persist_interval, rebalance_interval and lock_interval: more than 0 s")
        if not 5 <= self.pop_invisible <= 300:
            raise ValueError(f"pop_invisible {self.pop_invisible:g}: 5 to 300 s")
        if not self.pop_delays or min(self.pop_delays) <= 0:
            raise ValueError("pop_delays: at least one, each more than 0 s")
        if not self.client_rebalance and self.strategy not in STRATEGY_NAMES:
            raise ValueError(
                "strategy: without client_rebalance one that brokers know, averagely or averagely_by_circle"
            )


@dataclass(frozen=True, kw_only=True)
class PollOptions:
    """Settings of a polling consumer, with the defaults of the Java client.

    Attributes:
        broadcasting: every member of the group gets all messages, and stores its offsets in a file.
        start: where a new group begins.
        start_time: for ``From.TIMESTAMP``: begin with messages stored at this time, in ms; by default 30 minutes ago.
        strategy: allocation strategy; must be the same for all members of a group.
        auto_commit: polled messages are committed by later polls.
        commit_interval: seconds between such commits, at least 1.
        batch: maximum number of messages per poll.
        ahead: maximum number of broker answers waiting for polls, over all queues.
        hold: seconds that brokers may hold a pull without messages.
        rebalance_interval: seconds between rebalances.
        local_offsets: as in :class:`rmqtool.client.PushOptions`.
    """

    broadcasting: bool = False
    start: From = From.LAST
    start_time: int | None = None
    strategy: Strategy = field(default=averagely)
    auto_commit: bool = True
    commit_interval: float = 5.0
    batch: int = 10
    ahead: int = 16
    hold: float = 20.0
    rebalance_interval: float = 20.0
    local_offsets: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 1024:
            raise ValueError(f"batch {self.batch}: 1 to 1024")
        if self.ahead < 1:
            raise ValueError(f"ahead {self.ahead}: 1 or more")
        if self.commit_interval < 1 or self.rebalance_interval <= 0:
            raise ValueError("commit_interval: 1 s or more; rebalance_interval: more than 0 s")
