"""Base stores for fuzzing: small enough for cases of milliseconds, with files of every kind."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from formats.message.properties import KEYS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record, read
from formats.variants import timer
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.salvage.carve import Salvage
from tests import goldens

# case, bytes of its log that are kept, settings of the small store that is made of it
_SMALL = {
    "mappedFileSizeCommitLog": "8192",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "16",
    "maxIndexNum": "48",
}
_BASES = {
    "clean": (24_000, _SMALL),
    "delay": (24_000, _SMALL),
    "broker": (40_000, _SMALL | {"mappedFileSizeCommitLog": "16384"}),
    "lmq": (16_000, _SMALL | {"enableLmq": "true", "enableMultiDispatch": "true"}),
}
_AS_THEY_ARE = ("queue-ext", "broker-crash", "compaction-5.3.3", "broker-5.3.3")
_SLOTS = 4096  # of a timer wheel: 128 KiB, and not 38 MB
Stamp = tuple[int, int]  # size and modification time


@dataclass
class Base:
    """One store, and arguments for queries.

    Attributes:
        files: path below the store → (content, modification time in ns).
        directories: directories below the store.
        asked: (topic, queue id, key, id) of some of its messages.
    """

    name: str
    conf: BrokerConf
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    asked: list[tuple[str, int, str, str]] = field(default_factory=list)


@contextmanager
def small_wheels() -> Iterator[None]:
    """Use small timer wheels meanwhile, here and in all operations."""
    before = timer.SLOTS, timer.WHEEL_SIZE
    timer.SLOTS, timer.WHEEL_SIZE = _SLOTS, _SLOTS * timer.SLOT_SIZE
    try:
        yield
    finally:
        timer.SLOTS, timer.WHEEL_SIZE = before


def _shrink_wheel(path: Path) -> None:
    """Move every used slot to its place in a smaller wheel."""
    made = bytearray(_SLOTS * timer.SLOT_SIZE)
    for _number, slot in timer.slots(path.read_bytes()):
        at = slot.time % _SLOTS * timer.SLOT_SIZE
        made[at : at + timer.SLOT_SIZE] = timer.build_slot(slot)
    path.write_bytes(made)


def make_bases(folder: Path) -> list[Base]:
    """Create all bases; the folder can be deleted afterwards."""
    made = []
    for case in (*_BASES, *_AS_THEY_ARE):
        source = goldens.unpack(case, folder / case)
        conf = BrokerConf({name: str(value) for name, value in goldens.about(case)["config"].items()})
        if case in _BASES:
            kept, values = _BASES[case]
            store, conf = folder / f"{case}-small", BrokerConf(values)
            _cut(source, kept)
            Salvage(StoreLayout(str(source), conf), str(store)).run()
            shutil.rmtree(store / "lost+found", ignore_errors=True)
        else:
            store = source
        if (store / "timerwheel").exists():
            _shrink_wheel(store / "timerwheel")
        for number, path in enumerate(sorted((store / "index").iterdir())):
            path.rename(
                path.with_name(f"{20_261_120_000_000_000 + number}")
            )  # not by the clock: cases must be the same
        base = Base(case, conf)
        for path in sorted(store.rglob("*")):
            name = str(path.relative_to(store))
            if path.is_dir():
                base.directories.add(name)
            else:
                base.files[name] = (path.read_bytes(), path.stat().st_mtime_ns)
                if name.startswith("commitlog/"):
                    base.asked += _questions(base.files[name][0])
        assert len(base.asked) > 4, case
        made.append(base)
    return made


def _cut(store: Path, kept: int) -> None:
    """Leave the records that end within the first bytes of the log."""
    first, *others = sorted((store / "commitlog").iterdir())
    for path in others:
        path.unlink()
    raw, at = first.read_bytes(), 0
    while isinstance(record := read(raw, at, len(raw)), Record) and at + record.total_size <= kept:
        at += record.total_size
    first.write_bytes(raw[:at].ljust(len(raw), b"\0"))


def _questions(raw: bytes) -> list[tuple[str, int, str, str]]:
    asked, at = [], 0
    while isinstance(record := read(raw, at, len(raw)), Record):
        properties = parse(record.properties)
        unique = properties.get(UNIQ_KEY, "")
        key = next(iter(split_keys(properties.get(KEYS, ""))), unique)
        asked.append((record.topic.decode("utf-8", "replace"), record.queue_id, key, unique))
        at += record.total_size
    return asked


class Workshop:
    """A directory with one base at a time, restored after each case by what differs."""

    def __init__(self, folder: Path, base: Base) -> None:
        self.store, self.base = folder / base.name / "store", base
        for name in ("", *sorted(base.directories)):
            (self.store / name).mkdir(parents=True, exist_ok=True)
        self._write(base.files)

    def _write(self, names: "dict[str, tuple[bytes, int]] | list[str]") -> None:
        for name in names:
            content, mtime = self.base.files[name]
            path = self.store / name
            path.unlink(missing_ok=True)  # it may be a link or a FIFO by now
            path.write_bytes(content)
            os.utime(path, ns=(mtime, mtime))

    def stamps(self) -> dict[str, Stamp | None]:
        """Every path below the store; None for a directory."""
        result: dict[str, Stamp | None] = {}
        pending = [""]
        while pending:
            inside = pending.pop()
            with os.scandir(self.store / inside) as entries:
                for entry in entries:
                    name = f"{inside}/{entry.name}" if inside else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        result[name] = None
                        pending.append(name)
                    else:
                        stat = entry.stat(follow_symlinks=False)
                        result[name] = stat.st_size, stat.st_mtime_ns
        return result

    def restore(self) -> None:
        """Restore the base."""
        shutil.rmtree(f"{self.store}.rmqtool", ignore_errors=True)
        there = self.stamps()
        for name in sorted(there, reverse=True):  # what lies in a directory comes before it
            path = self.store / name
            if there[name] is None and name not in self.base.directories:
                shutil.rmtree(path)
            elif there[name] is not None and name not in self.base.files:
                path.unlink()
        for name in sorted(self.base.directories):
            path = self.store / name
            if there.get(name) is not None:
                path.unlink()
            path.mkdir(exist_ok=True)
        stale = [name for name, (content, mtime) in self.base.files.items() if there.get(name) != (len(content), mtime)]
        self._write(stale)
