"""How a consumer that polls works (client.consumer.DefaultLitePullConsumer)."""

from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.client.listening.options import From
from rmqtool.rules.rebalance import Strategy, averagely


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
