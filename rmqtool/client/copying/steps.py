"""Messages to copy to a cluster, and the journal of the copy. No I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.proof import Last
from rmqtool.client.producing.message import Message

ORIGIN = "RMQTOOL_ORIGIN"
"""Property: the origin of a message, ``STORE:PHYSICAL_OFFSET``."""
REPLAY = "RMQTOOL_REPLAY"
"""Property: the replay that sent the message, and the message's place in it."""


class InputPlace(NamedTuple):
    """The place of a message in the input; places ascend.

    Attributes:
        at: physical offset, or row number.
        inner: index within a record that has several messages.
    """

    at: int
    inner: int = 0

    def __str__(self) -> str:
        return f"{self.at}.{self.inner}" if self.inner else str(self.at)

    @classmethod
    def of(cls, text: str) -> "InputPlace | None":
        """Parse the text written by :meth:`__str__`; None if it is invalid."""
        match = re.fullmatch(r"([0-9]{1,19})(?:\.([0-9]{1,9}))?", text, re.ASCII)
        return None if match is None else cls(int(match[1]), int(match[2] or 0))


class OriginQueue(NamedTuple):
    """An original queue, whose order is kept."""

    topic: str
    queue_id: int


@dataclass(frozen=True)
class CopyStep:
    """A message to send.

    Attributes:
        place: its place in the input.
        origin: its original queue.
        message: the message, without marks.
        digest: digest of its bytes, to detect a changed input.
    """

    place: InputPlace
    origin: OriginQueue
    message: Message
    digest: int = 0


@dataclass
class CopyRound:
    """Messages that are finished before the next ones are read.

    Attributes:
        last: place of the last message.
        digest: digest of that message.
        count: number of messages.
        floors: queue to an offset below which none of the messages can be.
        before: queue to the message before that offset, which proves that the queue is still the same.
        arrived: places of messages known to be stored; None if the queues must be read.
    """

    last: InputPlace
    digest: int
    count: int
    floors: dict[MessageQueue, int] = field(default_factory=dict)
    arrived: set[InputPlace] | None = None
    before: dict[MessageQueue, Last] = field(default_factory=dict)


class CopyJournal(Protocol):
    """State that survives the end of a process.

    Attributes:
        run: id of the run, in the mark of every message.
        targets: original queue to target queue.
        before: queue to the last message known to be there: before those of the last round, or its last one.
    """

    run: str
    targets: dict[OriginQueue, MessageQueue]
    before: dict[MessageQueue, Last]

    def aim(self, targets: Mapping[OriginQueue, MessageQueue]) -> None:
        """Store further targets."""

    def begin(self, begun: CopyRound) -> None:
        """Record the start of a round; durable when this returns."""

    def end_round(
        self, begun: CopyRound, sent: int, refused: Sequence[InputPlace], last: Mapping[MessageQueue, Last]
    ) -> None:
        """Record that all messages of a round are stored or refused.

        Args:
            last: the last of them in each queue, as far as known.
        """

    def stop_round(self, arrived: Sequence[InputPlace], last: Mapping[MessageQueue, Last]) -> None:
        """Record that a round ended early, with exactly these messages stored; see :meth:`end_round`."""
