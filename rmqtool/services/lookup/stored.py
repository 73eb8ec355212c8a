"""What queues and messages have in common, in a store and at a broker."""

from typing import Protocol

from formats.message.read import Record


class LogMessage(Protocol):
    """A message of a log."""

    @property
    def record(self) -> Record:
        """The stored record."""

    @property
    def physical_offset(self) -> int:
        """Its position in the log."""


class NamedQueue(Protocol):
    """A queue of a store, or of a broker."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def queue_id(self) -> int:
        """Its number."""
