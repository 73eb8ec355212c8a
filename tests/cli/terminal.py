"""Run a command at a terminal of a given size, and read what stands on it.

Golden screens lie in ``tests/golden/screens``; ``python -m tests.cli.terminal`` writes them anew.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from tests import goldens
from tests.cli.running import RMQTOOL, ROOT

SCREENS = ROOT / "tests" / "golden" / "screens"
SIZES = ((80, 24), (120, 40), (200, 50))
# stores in which something is lost, or seems to be, and what is looked at
SITUATIONS = dict.fromkeys(
    (
        "body-bit-flip-first-file-no-checkpoint",
        "body-bit-flip-last-file",
        "broker-crash",
        "clean",
        "clean-exit-consumequeue-deleted",
        "commitlog-deleted",
        "head-file-deleted",
        "index-deleted",
        "short-last-file",
        "size-field-negative",
        "torn-last-record",
    ),
    ("check", "STORE"),
)
# commands that print tables, at the store of a broker
TABLES: dict[str, tuple[str, ...]] = {
    "checkpoint": ("checkpoint", "STORE"),
    "commitlog-dump": ("commitlog", "dump", "STORE", "--limit", "3"),
    "consumequeue-dump": ("consumequeue", "dump", "STORE", "--topic", "Orders", "--limit", "3"),
    "config": ("config", "STORE"),
    "delay-list": ("delay", "list", "STORE"),
    "dlq-list": ("dlq", "list", "STORE", "--limit", "2"),
    "explain-code": ("explain", "log-damage"),
    "group-lag": ("group", "lag", "STORE"),
    "group-list": ("group", "list", "STORE"),
    "index-dump": ("index", "dump", "STORE", "--limit", "3"),
    "index-headers": ("index", "dump", "STORE", "--headers"),
    "hexdump": ("commitlog", "hexdump", "STORE", "--offset", "0:250"),
    "offsets": ("offsets", "STORE"),
    "query-key": ("query-key", "STORE", "Orders", "order-0"),
    "query-offset": ("query-offset", "STORE", "Orders", "0", "0"),
    "recover-dry-run": ("recover", "STORE", "--dry-run"),
    "retry-list": ("retry", "list", "STORE", "--limit", "2"),
    "topic-list": ("topic", "list", "STORE", "--system"),
    "topic-show": ("topic", "show", "STORE", "Orders"),
    "trace": ("trace", "STORE", "FD0000000000000000000000000000020FB630946E09664343CD0000"),
    "transaction-list": ("transaction", "list", "STORE", "--limit", "2"),
}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(
    *words: object, columns: int = 80, rows: int = 24, typed: str = "", cwd: Path = ROOT, **env: str
) -> tuple[int, str]:
    """Exit code, and everything that came on a terminal of this size, with its colours.

    Args:
        typed: what a person types.
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
        [*RMQTOOL, *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=about,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed.encode())
    came = b""
    try:
        while data := os.read(ours, 1 << 16):
            came += data
    except OSError:  # Linux says so when nobody holds the other end
        pass
    os.close(ours)
    return process.wait(60), came.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    """Without colours."""
    return _ESCAPES.sub("", text)


def screen(case: str, command: tuple[str, ...], columns: int, rows: int) -> str:
    """What stands on a terminal, the store named as ``STORE``."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as room:  # a name of always the same length
        goldens.unpack(case, Path(room)).rename(Path(room, "STORE"))
        _code, text = at_terminal(*command, columns=columns, rows=rows, cwd=Path(room))
    return plain(text).replace(room, "/tmp/sROOMROOM")


def golden(case: str, command: tuple[str, ...], columns: int) -> Path:
    """Where a screen is kept."""
    return SCREENS / f"{command[0]}-{case}-{columns}.txt"


def main() -> None:
    SCREENS.mkdir(exist_ok=True)
    for case, command in SITUATIONS.items():
        for columns, rows in SIZES:
            golden(case, command, columns).write_text(screen(case, command, columns, rows))
            sys.stdout.write(f"{golden(case, command, columns)}\n")


if __name__ == "__main__":
    main()
