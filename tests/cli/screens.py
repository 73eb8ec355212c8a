"""Run commands at real terminals of three sizes, and read the screen from an emulator.

Golden screens are in ``tests/golden/screens``; ``python -m tests.cli.screens [NAME ...]`` records them again. One
process per store loads the modules of commands and forks for each command, which saves the start of Python.
"""

import fcntl
import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pyte

from formats.queues.rocks import UNITS, unit_key
from rmqtool.store.layout.paths import BATCH_QUEUES
from tests import goldens, rocks
from tests.cli.running import ROOT
from tests.cli.terminal import read_to_end

SCREENS = ROOT / "tests" / "golden" / "screens"
SIZES = ((80, 24), (120, 40), (200, 50))
_END = b"\x1e"  # what the process writes behind each screen
_HISTORY = 5000  # lines that an emulator keeps
_ID = "FD0000000000000000000000000000020FB630946E09664343CD0000"


class Screen(NamedTuple):
    """A command on a store."""

    name: str
    case: str
    words: tuple[str, ...]
    damage: Callable[[Path], object] | None = None


def _files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def _without_blank(store: Path) -> None:
    """Zero the end of a full log file, like a page that never reached the disk."""
    path = _files(store)[-3]
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\xcb\xd4\x31\x94") - 4].ljust(len(data), b"\0"))


def _without_a_file(store: Path) -> None:
    _files(store)[1].unlink()


def _swapped(store: Path) -> None:
    first, second = _files(store)[1:3]
    spare = first.with_name("spare")
    for old, new in ((first, spare), (second, first), (spare, second)):
        old.rename(new)


def _with_a_hole(store: Path) -> None:
    path = min((store / "consumequeue" / "TopicA" / "0").iterdir())
    data = bytearray(path.read_bytes())
    data[100:140] = bytes(40)
    path.write_bytes(data)


def _without_batch_queues(store: Path) -> None:
    shutil.rmtree(store / BATCH_QUEUES)


def _without_compaction(store: Path) -> None:
    shutil.rmtree(store / "compaction")


def _without_units(store: Path) -> None:
    def remove(families: rocks.Families) -> None:
        for at in range(30):
            del families[UNITS][unit_key("Orders", 2, at)]

    rocks.change(store / "consumequeue", remove)


def _without_timer_units(store: Path) -> None:
    path = store / "timerlog" / f"{0:020d}"
    path.write_bytes(bytes(path.stat().st_size))


# what loses messages, or would: the code, the store of a real broker, and what was done to it
SITUATIONS: dict[str, tuple[str, Callable[[Path], object] | None]] = {
    "log-absent": ("commitlog-deleted", None),
    "log-damage": ("size-field-negative", None),
    "log-crc": ("body-bit-flip-last-file", None),
    "log-blank-missing": ("clean", _without_blank),
    "log-position": ("clean", _swapped),
    "file-gap": ("clean", _without_a_file),
    "file-size": ("short-last-file", None),
    "cq-missing": ("clean-exit-consumequeue-deleted", None),
    "cq-hole": ("clean", _with_a_hole),
    "bcq-queue-missing": ("broker-5.3.3", _without_batch_queues),
    "rcq-missing": ("rocksdb-5.3.3", _without_units),
    "compaction-queue-missing": ("broker-5.3.3", _without_compaction),
    "timer-lost": ("broker-5.3.3", _without_timer_units),
}
_OTHERS = ("broker", "clean", "broker-crash", "torn-last-record", "index-deleted", "head-file-deleted")
# the commands that are used most, at the store of a broker
USED: dict[str, tuple[str, ...]] = {
    "checkpoint": ("checkpoint", "STORE"),
    "commitlog-dump": ("commitlog", "dump", "STORE", "--limit", "3"),
    "consumequeue-dump": ("consumequeue", "dump", "STORE", "--topic", "Orders", "--limit", "3"),
    "config": ("config", "STORE"),
    "delay-list": ("delay", "list", "STORE"),
    "dlq-list": ("dlq", "list", "STORE", "--limit", "2"),
    "group-lag": ("group", "lag", "STORE"),
    "group-list": ("group", "list", "STORE"),
    "help": ("--help",),
    "help-of-recover": ("recover", "--help"),
    "hexdump": ("commitlog", "hexdump", "STORE", "--offset", "0:250"),
    "index-dump": ("index", "dump", "STORE", "--limit", "3"),
    "index-headers": ("index", "dump", "STORE", "--headers"),
    "info": ("info", "STORE"),
    "manual": ("manual",),
    "offsets": ("offsets", "STORE"),
    "query-id": ("query-id", "STORE", _ID),
    "query-key": ("query-key", "STORE", "Orders", "order-0"),
    "query-offset": ("query-offset", "STORE", "Orders", "0", "0"),
    "query-time": ("query-time", "STORE", "Orders", "0", "2026-11-20T20:34:45Z"),
    "recover-dry-run": ("recover", "STORE", "--dry-run"),
    "retry-list": ("retry", "list", "STORE", "--limit", "2"),
    "topic-list": ("topic", "list", "STORE", "--system"),
    "topic-show": ("topic", "show", "STORE", "Orders"),
    "topic-unused": ("topic", "unused", "STORE"),
    "trace": ("trace", "STORE", _ID),
    "transaction-list": ("transaction", "list", "STORE", "--limit", "2"),
    "undo-nothing": ("undo", "STORE", "--dry-run"),
    "wrong-option": ("check", "STORE", "--sevrity", "error"),
    "wrong-store": ("info", "STORE/consumequeue/Orders"),
}


def _all() -> Iterator[Screen]:
    for code, (case, damage) in SITUATIONS.items():
        yield Screen(f"check-{code}", case, ("check", "STORE"), damage)
        yield Screen(f"recover-{code}", case, ("recover", "STORE", "--dry-run"), damage)
        yield Screen(f"explain-{code}", case, ("explain", code), damage)
    for case in _OTHERS:
        yield Screen(f"check-{case}", case, ("check", "STORE"))
    for name, args in USED.items():
        yield Screen(name, "broker", args)


ALL = {screen.name: screen for screen in _all()}


def path_of(name: str, columns: int) -> Path:
    """The file of a screen."""
    return SCREENS / f"{name}-{columns}.txt"


def recorded(names: list[str], sizes: Sequence[tuple[int, int]] = SIZES) -> dict[tuple[str, int], str]:
    """Run commands and return the screens by name and width, with a mark where the last screen begins."""
    shown = {}
    stores: dict[tuple[str, object], list[str]] = {}
    for name in names:
        stores.setdefault((ALL[name].case, ALL[name].damage), []).append(name)
    for together in stores.values():
        for (name, size), data in _run(together, sizes).items():
            shown[name, size[0]] = _read(ALL[name], data, *size)
    return shown


def _run(names: list[str], sizes: Sequence[tuple[int, int]]) -> dict[tuple[str, tuple[int, int]], bytes]:
    """The output of commands on one store at terminals of each size."""
    first = ALL[names[0]]
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as room:  # a name of always the same length
        store = goldens.unpack(first.case, Path(room)).rename(Path(room, "STORE"))
        if first.damage is not None:
            first.damage(store)
        tasks = [(name, size) for name in names for size in sizes]
        ours, theirs = pty.openpty()
        about = {
            **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")},
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
            "PAGER": "cat",
            "LC_ALL": "C.UTF-8",
            "SCREENS": json.dumps([[ALL[name].words, size] for name, size in tasks]),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.screens", "--act"], stdin=theirs, stdout=theirs, stderr=theirs,
            cwd=room, env=about, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        came = read_to_end(ours)
        assert process.wait(60) == 0, came.decode()
        came = re.sub(rb"(create index/)\d{17}", rb"\g<1>20261121081230123", came)
        *screens, _rest = came.replace(room.encode(), b"/tmp/sROOMROOM").split(_END)
        return dict(zip(tasks, screens, strict=True))


def _read(screen: Screen, data: bytes, columns: int, rows: int) -> str:
    """The screen of an emulator of this size, with scrolled-off lines."""
    terminal = pyte.HistoryScreen(columns, rows, history=_HISTORY, ratio=0.5)
    stream = pyte.ByteStream(terminal)
    stream.feed(f"$ rmqtool {' '.join(screen.words)}\r\n".encode() + data)
    assert len(terminal.history.top) < _HISTORY
    above = [_line(terminal, line) for line in terminal.history.top]
    here = [_line(terminal, terminal.buffer[number]) for number in range(terminal.cursor.y)]
    mark = [f"-- the last {rows} rows begin here --"] if above else []
    return "".join(f"{line.rstrip()}\n" for line in (*above, *mark, *here))


def _line(terminal: pyte.HistoryScreen, line: dict[int, pyte.screens.Char]) -> str:
    return "".join(line[column].data for column in range(terminal.columns))  # a wide character has an empty cell behind


def _act() -> None:
    """Run commands in the terminal, each in a forked process with the modules already loaded."""
    import typer.main

    import rmqtool.cli.read.lookups
    import rmqtool.cli.read.show_check
    import rmqtool.cli.read.show_info
    import rmqtool.services.consumers.groups
    import rmqtool.store.check.run
    import rmqtool.store.recovery.command  # noqa: F401
    from rmqtool.cli.framework import app
    from rmqtool.main import main

    app.load()
    built = typer.main.get_command(app.app)
    vars(typer.main)["get_command"] = lambda _app: built
    with redirect_stdout(io.StringIO()):
        app.run(["explain", "log-torn"], {})

    for args, (columns, rows) in json.loads(os.environ.pop("SCREENS")):
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if not (child := os.fork()):
            sys.argv = ["rmqtool", *args]
            try:
                main()
            except SystemExit as end:  # without the long way out, which touches every page
                sys.stdout.flush()
                os._exit(end.code if isinstance(end.code, int) else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, (f"[exit code {status}]\n" if status else "").encode() + _END)


def main() -> None:
    """Record screens."""
    if sys.argv[1:] == ["--act"]:
        _act()
        return
    for (name, columns), text in recorded(sys.argv[1:] or list(ALL)).items():
        path_of(name, columns).write_text(text)


if __name__ == "__main__":
    main()
