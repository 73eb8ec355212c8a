"""Errors of the codecs. They contain the position in the buffer; the store layer adds the file."""


class FormatError(ValueError):
    """Bytes that a layout cannot accept.

    Args:
        at: byte offset in the buffer being read.
        reason: what is wrong there, as text without the offset.
    """

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"{reason} at byte {at}")
        self.at = at
        self.reason = reason

    def __reduce__(self) -> tuple[type["FormatError"], tuple[int, str]]:
        return type(self), (self.at, self.reason)


class Truncated(FormatError):
    """The buffer ends before the layout does."""


class BadLength(FormatError):
    """A length field is negative, too large for its container, or disagrees with another one."""


class BadChecksum(FormatError):
    """Stored and computed checksum differ."""


class BadText(FormatError):
    """Text (JSON, epoch lines, property strings) that does not follow its grammar."""
