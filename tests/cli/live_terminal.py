"""A program at a pseudo terminal, with the screen that it shows."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pyte

from tests.cli.running import RMQTOOL, ROOT


class Terminal:
    """A command that runs at a terminal of a given size.

    Args:
        program: how it is started; rmqtool by default.

    Attributes:
        screen: what it shows.
        process: the command.
    """

    def __init__(
        self,
        *args: object,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = RMQTOOL,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        about = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        about |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **(env or {})}
        self.modes = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.process = subprocess.Popen(
            [*program, *map(str, args)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=about,
            start_new_session=True,
        )  # fmt: skip

    @property
    def text(self) -> str:
        """The screen, line by line."""
        return "\n".join(self.screen.display)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def wait(self, shown: str | Callable[[str], bool], seconds: float = 30) -> float:
        """Read until the screen shows something; returns the seconds that took."""
        is_shown = shown if callable(shown) else lambda text: shown in text
        start = time.monotonic()
        while not is_shown(self.text):
            assert time.monotonic() - start < seconds, f"never shown: {shown}\n{self.text}"
            self._read(0.05)
        return time.monotonic() - start

    def _read(self, seconds: float) -> None:
        if select.select([self._ours], [], [], seconds)[0]:
            with suppress(OSError):
                data = os.read(self._ours, 1 << 16)
                self.raw += data
                self._stream.feed(data)

    def end(self, seconds: float = 30) -> int:
        """Wait for the end of the command; returns its exit code."""
        start = time.monotonic()
        while self.process.poll() is None:
            assert time.monotonic() - start < seconds, f"it does not end\n{self.text}"
            self._read(0.05)
        self._read(0.1)
        return self.process.returncode

    def restored(self) -> bool:
        """Whether the terminal has its modes back, and is out of the alternate screen with a cursor."""
        left = self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h")
        cursor = self.raw.rfind(b"\x1b[?25h") >= self.raw.rfind(b"\x1b[?25l")
        return left and cursor and termios.tcgetattr(self._theirs) == self.modes

    def close(self) -> None:
        """Free it; the command is killed if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)
