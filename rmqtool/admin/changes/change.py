"""One change: a place, its value before and after; and how the values of each kind are read and written."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rmqtool.admin.live.questions import Node, Questions

Value = Any
"""A JSON value; None where there is nothing."""
Name = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What can be set on one server.

    Attributes:
        kind: name of a :class:`ValueKind`.
        cluster: of a broker; None for another server.
        server: name of a broker, address of a name server or controller.
        name: what is set there, such as a topic, or a group, a topic and a queue id.
    """

    kind: str
    cluster: str | None
    server: str
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """A place, and its values.

    Attributes:
        before, after: None for no value.
        step: changes of one step are written together, and all of them before those of the next step.
        since: ms; set an offset by the clients of its group, to messages stored from then on.
    """

    place: Place
    before: Value
    after: Value
    step: int = 0
    since: int | None = None


class ValueKind(ABC):
    """How the values of one kind are read and written."""

    name: ClassVar[str]
    fields: ClassVar[bool] = False  # a value is an object, and its members are shown separately
    undone: ClassVar[bool] = True  # the earlier value can be restored
    moves: ClassVar[bool] = False  # values change by themselves
    stays: ClassVar[bool] = False  # a value can be replaced, but not removed
    at_controllers: ClassVar[bool] = False  # the server is a controller, not a broker or a name server

    @abstractmethod
    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        """The existing values of these names.

        Raises:
            Unanswered: the server gave no answer; it has been noted.
        """

    @abstractmethod
    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        """Write one value.

        Raises:
            ClientError: the server refuses.
            RemotingError: it is not reached, or does not answer.
        """

    async def why_not(self, questions: Questions, node: Node, changes: Sequence[ValueChange]) -> str | None:
        """Why these values must not be written now; None if they may.

        Raises: Unanswered: the server gave no answer.
        """
        return None

    @classmethod
    def show(cls, value: Value) -> Value:
        """A value as text."""
        return value

    @classmethod
    def why_stays(cls, change: "ValueChange") -> str | None:
        """Why a change cannot be taken back; None if it can."""
        return None

    @classmethod
    def tell_order(cls, change: "ValueChange") -> str | None:
        """A note if a change leaves another order behind in the server's files; None if it does not."""
        return None

    @classmethod
    def complete(cls, journaled: Value, now: Value) -> Value:
        """A value of a journal, with what earlier releases did not write into theirs."""
        return journaled

    @classmethod
    def went_on(cls, change: "ValueChange", now: Value) -> bool:
        """Whether a value of a kind that moves by itself has advanced from what was written."""
        return False

    @classmethod
    def is_halfway(cls, change: "ValueChange", now: Value) -> bool:
        """Whether a value is what a run leaves that was killed within :meth:`write`."""
        return False

    @classmethod
    def tell_apart(cls, now: Value, wanted: Value) -> str:
        """A description of how a value that was read back differs from the one that was written."""
        return f"it is {cls.show(now)} now"
