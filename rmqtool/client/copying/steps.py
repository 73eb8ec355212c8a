"""Messages on their way to a cluster, and what is kept of the way. No I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.proof import Last
from rmqtool.client.producing.message import Message

ORIGIN = "RMQTOOL_ORIGIN"
"""Property: where a message lay, ``STORE:PHYSICAL_OFFSET``."""
REPLAY = "RMQTOOL_REPLAY"
"""Property: which replay has sent it, and its place there."""


class Place(NamedTuple):
    """Where a message is in what is sent: places ascend.

    Attributes:
        at: physical offset, or number of a row.
        inner: number in a record that holds several messages.
    """

    at: int
    inner: int = 0

    def __str__(self) -> str:
        return f"{self.at}.{self.inner}" if self.inner else str(self.at)

    @classmethod
    def of(cls, text: str) -> "Place | None":
        """The place of a text as :meth:`__str__` writes it; None where it is none."""
        match = re.fullmatch(r"([0-9]{1,19})(?:\.([0-9]{1,9}))?", text, re.ASCII)
        return None if match is None else cls(int(match[1]), int(match[2] or 0))


class Origin(NamedTuple):
    """A queue whose order is kept."""

    topic: str
    queue_id: int


@dataclass(frozen=True)
class Step:
    """A message to be sent.

    Attributes:
        place: where it comes from.
        origin: the queue that it was in.
        message: what is sent, marks aside.
        digest: of its bytes, by which an input that has changed is noticed.
    """

    place: Place
    origin: Origin
    message: Message
    digest: int = 0


@dataclass
class Round:
    """Messages that are sent before the next ones are looked at.

    Attributes:
        last: place of its last message.
        digest: of that message.
        count: how many messages it has.
        floors: queue to an offset below which none of them can be.
        before: queue to the message before that offset, which proves that the queue is the same still.
        arrived: places of those that are known to be stored; None where it must be asked.
    """

    last: Place
    digest: int
    count: int
    floors: dict[MessageQueue, int] = field(default_factory=dict)
    arrived: set[Place] | None = None
    before: dict[MessageQueue, Last] = field(default_factory=dict)


class Journal(Protocol):
    """What survives the end of a process.

    Attributes:
        run: in the mark of every message.
        targets: queue to the queue that its messages go to.
        before: queue to what was before the messages of the last round that went there; see :class:`Round`.
    """

    run: str
    targets: dict[Origin, MessageQueue]
    before: dict[MessageQueue, Last]

    def aim(self, targets: Mapping[Origin, MessageQueue]) -> None:
        """Keep further targets."""

    def begin(self, begun: Round) -> None:
        """A round begins: durable when this returns."""

    def end_round(self, begun: Round, sent: int, refused: Sequence[Place]) -> None:
        """All messages of a round are stored or refused."""

    def stop_round(self, arrived: Sequence[Place]) -> None:
        """A round has ended early; exactly these of it are stored."""
