"""Errors that a command answers with one line on stderr and a documented exit code."""

from typing import ClassVar


class RmqError(Exception):
    """Base of all errors that are not bugs. Codes 0, 1 and 2 are answers and usage; these begin at 3."""

    exit_code: ClassVar[int] = 3
    kind: ClassVar[str] = "unreadable"  # its name in machine output


class UnreadableStore(RmqError):
    """A path is missing, cannot be read, or is no store directory."""

    exit_code = 3


class OutputLost(RmqError):
    """Stdout takes no more of what a command that writes has to say: its readers must not take that for success.

    The words say what was done.
    """

    exit_code = 3
    kind = "output-lost"


class OutOfMemory(RmqError):
    """The machine, or a limit on this process, has no more memory for what the command reads."""

    exit_code = 3
    kind = "no-memory"


class Refused(RmqError):
    """The command could run but must not: store in use, output exists, no confirmation."""

    exit_code = 4
    kind = "refused"


class NoRoom(Refused):
    """There is no room on a disk, or no descriptor, for now. Nothing was changed: the same may be asked again later."""


class RanOut(NoRoom):
    """The same, met while something was written, which was taken back."""

    exit_code = 3
    kind = "unreadable"


class CorruptFile(RmqError):
    """A file's content stops the command.

    Args:
        path: the file.
        at: byte offset in it, or None where the file as a whole is meant.
        reason: what is wrong.
    """

    exit_code = 5
    kind = "damaged"

    def __init__(self, path: str, at: int | None, reason: str) -> None:
        where = f"{path}: byte {at}: " if at is not None else f"{path}: "
        super().__init__(where + reason)
        self.path, self.at, self.reason = path, at, reason


class MissingRuntime(RmqError):
    """Something that the machine must provide is absent (a Java for Spark) or failed to start."""

    exit_code = 6
    kind = "no-runtime"


class Interrupted(RmqError):
    """A signal ended a command that writes; the text says what was done and how to continue."""

    exit_code = 130  # as shells report SIGINT
    kind = "interrupted"


class Terminated(Interrupted):
    """The same for SIGTERM."""

    exit_code = 143


class HungUp(Interrupted):
    """The same for SIGHUP: a terminal that is closed."""

    exit_code = 129


class BadValue(RmqError):
    """A value on the command line that cannot be understood; usage, like Typer's own."""

    exit_code = 2
    kind = "usage"
