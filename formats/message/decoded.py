"""What a stored record says as text, for classes of messages."""

from functools import cached_property

from formats.message.properties import KEYS, TAGS, parse, split_keys
from formats.message.read import Record


class Decoded:
    """Base of messages that have a record. Properties are parsed on first use, so counting messages is cheap."""

    record: Record

    @property
    def queue_offset(self) -> int:
        """Its offset in its queue."""
        return self.record.queue_offset

    @cached_property
    def properties(self) -> dict[str, str]:
        """All properties by name, including RocketMQ's own (``TAGS``, ``KEYS``, ``UNIQ_KEY`` ...)."""
        return parse(self.record.properties)

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        """The application's keys."""
        return split_keys(self.properties.get(KEYS, ""))
