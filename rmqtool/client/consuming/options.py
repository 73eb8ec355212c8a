"""How a push consumer works, and what listeners say (client.consumer.DefaultMQPushConsumer)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from rmqtool.client.consuming.process_queue import FlowLimits
from rmqtool.client.pulling.pull import Received
from rmqtool.services.consumers.rebalance import Strategy, averagely


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


Listener: TypeAlias = Callable[[Sequence[Received]], Later | Awaitable[Later | None] | None]
"""Is given messages of one queue. Those are consumed when it returns None, and come again when it raises or returns
:class:`Later`; anything else that it returns is a mistake, and they come again too."""


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Settings of a push consumer, with the defaults of the Java client.

    Attributes:
        start: where a new group begins.
        start_time: for ``From.TIMESTAMP``: of messages stored from then on, in ms; by default 30 minutes ago.
        strategy: how queues are shared; all members of a group must have the same.
        batch: most messages that a listener gets at a time.
        concurrency: how many calls of the listener run at a time.
        pull_batch: most messages of one pull.
        limits: what may wait in one queue.
        max_tries: how often a message comes again before it is a dead letter; -1 is 16.
        consume_timeout: seconds after which a message that a listener still has is sent back, to come again.
        persist_interval: seconds between two writes of the group's offsets.
        rebalance_interval: seconds between two looks at who is in the group.
        hold: seconds that brokers may hold a pull without messages.
        error_pause: seconds until a pull that failed is tried again.
        retry_pause: seconds until messages that could not be sent back are given to the listener again.
        shutdown_wait: seconds that listeners have to come to an end when the consumer is closed.
    """

    start: From = From.LAST
    start_time: int | None = None
    strategy: Strategy = field(default=averagely)
    batch: int = 1
    concurrency: int = 20
    pull_batch: int = 32
    limits: FlowLimits = field(default_factory=FlowLimits)
    max_tries: int = -1
    consume_timeout: float = 900.0
    persist_interval: float = 5.0
    rebalance_interval: float = 20.0
    hold: float = 15.0
    error_pause: float = 1.0
    retry_pause: float = 5.0
    shutdown_wait: float = 10.0

    def __post_init__(self) -> None:
        ranges = {"batch": 1024, "concurrency": 1000, "pull_batch": 1024}
        for name, most in ranges.items():
            value: Any = getattr(self, name)
            if not 1 <= value <= most:
                raise ValueError(f"{name} {value}: 1 to {most}")
        if self.max_tries < -1:
            raise ValueError(f"max_tries {self.max_tries}: -1 or more")
        if min(self.consume_timeout, self.persist_interval, self.rebalance_interval) <= 0:
            raise ValueError("consume_timeout, persist_interval and rebalance_interval: more than 0 s")
