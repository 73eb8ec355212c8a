"""How consumers work, and what listeners say (client.consumer.DefaultMQPushConsumer, DefaultLitePullConsumer)."""

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
    """Messages that a listener has at a time (ConsumeMessageContext).

    Attributes:
        began: ms since the epoch.
        took: ms, once the listener has returned.
        success: they need not come again.
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
    """Sees what listeners get, and what they make of it (ConsumeMessageHook)."""

    def before(self, consumption: Consumption) -> None:
        """The listener is about to get them."""

    def after(self, consumption: Consumption) -> None:
        """It has returned."""


_MOST_TRIES, _ENDLESS = 16, (1 << 31) - 1
POP_DELAYS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds, as the Java client has them (popDelayLevel)."""
STRATEGY_NAMES: dict[Strategy, str] = {averagely: "AVG", averagely_by_circle: "AVG_BY_CIRCLE"}
"""Strategies by which brokers share queues out, by their names there."""


class From(Enum):
    """Where a group begins in a queue in which it never was (ConsumeFromWhere).

    Brokers answer offset 0 for a new group while a queue still has its first message in memory; it then begins there,
    whatever is asked for.
    """

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True)
class Later:
    """A listener's answer: some of the messages are to come again.

    Attributes:
        first: index of the first of them; those before it are consumed.
        level: delay level; 0 lets the broker choose by the number of tries, -1 is the dead letter queue at once.
    """

    first: int = 0
    level: int = 0


@dataclass(frozen=True)
class Suspend:
    """An orderly listener's answer: its messages come again, and nothing behind them before.

    Attributes:
        pause: seconds until then, 0.01 to 30; by default what the options say.
    """

    pause: float | None = None


class Ordered(Enum):
    """Further answers of an orderly listener, for a consumer that does not commit by itself (auto_commit off).

    Attributes:
        COMMIT: all messages since the last commit are consumed.
        ROLLBACK: all messages since the last commit come again.
    """

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


class Sql(str):
    """In the place of tags: a SQL92 expression; brokers must have ``enablePropertyFilter``."""

    __slots__ = ()


Said: TypeAlias = Later | Suspend | Ordered | None
Listener: TypeAlias = Callable[[Sequence[Received]], Said | Awaitable[Said]]
"""Is given messages of one queue. Those are consumed when it returns None.

They come again when it raises or returns :class:`Later` (orderly: :class:`Suspend`). Anything else that it returns is a
mistake, and they come again too."""


@dataclass(frozen=True)
class FlowLimits:
    """What may wait in one queue before no more is pulled (pullThresholdForQueue and its neighbours).

    Attributes:
        messages: how many messages.
        size: bytes of their stored bodies.
        span: from the oldest to the newest queue offset: one message that is stuck stops its queue in the end.
        topic_messages, topic_size: of a topic, divided among its queues that this client has; -1 is none.
    """

    messages: int = 1000
    size: int = 100 << 20
    span: int = 2000
    topic_messages: int = -1
    topic_size: int = -1

    def of_queue(self, queues: int) -> "FlowLimits":
        """The limits of each of a topic's queues, where this client has so many of them."""
        if queues < 1 or (self.topic_messages < 0 and self.topic_size < 0):
            return self
        messages = max(1, self.topic_messages // queues) if self.topic_messages >= 0 else self.messages
        size = max(1, self.topic_size // queues) if self.topic_size >= 0 else self.size
        return FlowLimits(messages, size, self.span)


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Settings of a push consumer, with the defaults of the Java client.

    Attributes:
        orderly: messages of a queue are given to the listener in order, one call at a time, while brokers keep the
            queue locked for this client.
        broadcasting: every member of the group gets all messages; offsets are kept in a file, and what fails is gone.
        start: where a new group begins.
        start_time: for ``From.TIMESTAMP``: of messages stored from then on, in ms; by default 30 minutes ago.
        strategy: how queues are shared; all members of a group must have the same.
        batch: most messages that a listener gets at a time.
        concurrency: how many calls of the listener run at a time.
        pull_batch: most messages of one pull.
        limits: what may wait in one queue.
        max_tries: how often a message comes again before it is a dead letter; -1 is 16, and without end where it is
            consumed in order.
        auto_commit: of an orderly listener: what it has consumed is committed at once; else when it says so.
        suspend_pause: seconds until an orderly listener that failed gets the same messages again.
        consume_timeout: seconds after which a message that a listener still has is sent back, to come again; not where
            it is consumed in order.
        persist_interval: seconds between two writes of the group's offsets.
        rebalance_interval: seconds between two looks at who is in the group.
        lock_interval: seconds between two renewals of the locks of orderly consumption.
        hold: seconds that brokers may hold a pull without messages.
        client_rebalance: members share the queues by themselves; else brokers of 5.x say which are whose, and whether
            messages are popped (``mqadmin setConsumeMode``). Members that consume in order, or have all messages,
            always share by themselves.
        pop_invisible: seconds for which others do not get what this client has popped, 5 to 300.
        pop_batch: most messages of one pop, up to 32.
        pop_limit: messages of one queue that were popped and are not settled, above which no more is popped.
        pop_delays: seconds after which what was popped and has failed comes again, by the number of its tries, or by
            the delay level that the listener says.
        pull_pause: seconds between a pull and the next one.
        error_pause: seconds until a pull that failed is tried again.
        retry_pause: seconds until messages that could not be sent back are given to the listener again.
        shutdown_wait: seconds that listeners have to come to an end when the consumer is closed.
        local_offsets: folder in which broadcasting consumers keep their offsets, as clientId/group/offsets.json; by
            default ``~/.rocketmq_offsets``, as for Java.
        hooks: see every call of the listener; ``Tracer.consumes`` is one.
        made_again: queues are proved to be those that were read before, at each pull and commit; called with the error
            for one that is not, because its topic was made again or its broker has another store. It is left alone
            then, and nothing of it is committed. By default nothing is proved, as in Java.
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
        """How often a message comes again before it is a dead letter."""
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
    """Settings of a consumer that polls, with the defaults of the Java client.

    Attributes:
        broadcasting: every member of the group gets all messages, and keeps its offsets in a file.
        start: where a new group begins.
        start_time: for ``From.TIMESTAMP``: of messages stored from then on, in ms; by default 30 minutes ago.
        strategy: how queues are shared; all members of a group must have the same.
        auto_commit: what was polled is committed by the polls behind it.
        commit_interval: seconds between two such commits, 1 or more.
        batch: most messages of one poll.
        ahead: answers of brokers that may wait for polls, of all queues together.
        hold: seconds that brokers may hold a pull without messages.
        rebalance_interval: seconds between two looks at who is in the group.
        local_offsets: as :class:`rmqtool.client.PushOptions` has it.
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
