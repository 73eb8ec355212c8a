"""Run a command at a terminal of a given size."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

from tests.cli.running import RMQTOOL, ROOT

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(
    *args: object, columns: int = 80, rows: int = 24, typed: str = "", cwd: Path = ROOT, **env: str
) -> tuple[int, str]:
    """Exit code and complete output at a terminal of this size, with colours.

    Args:
        typed: keyboard input.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    about = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": "",
        "LINES": "",
        "PYTHONPATH": str(ROOT),
        "PAGER": "cat",
        **env,
    }
    for name in {"COLUMNS", "LINES"} - env.keys():
        about.pop(name, None)
    process = subprocess.Popen(
        [*RMQTOOL, *map(str, args)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=about,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed.encode())
    came = read_to_end(ours)
    return process.wait(60), came.decode().replace("\r\n", "\n")


def read_to_end(terminal: int) -> bytes:
    """All output of a terminal, until nobody holds its other end; closes it."""
    came = b""
    with suppress(OSError):  # Linux says so when nobody holds the other end
        while data := os.read(terminal, 1 << 16):
            came += data
    os.close(terminal)
    return came


def plain(text: str) -> str:
    """Output without colours."""
    return _ESCAPES.sub("", text)
