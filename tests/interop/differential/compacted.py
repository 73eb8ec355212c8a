"""Damaged compaction logs, loaded by 5.3.3 and recovered by rmqtool: compare what consumers get at each offset.

``python -m tests.interop.differential.compacted --count 2000`` runs any number; a failure names its seed, the damage,
and the directory of the damaged store.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from formats.queues.batch import SIZE
from rmqtool.services.lookup.compacted import get_compacted
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.compaction import CompactionQueue
from rmqtool.store.recovery.command import plan, recover
from tests import goldens
from tests.interop.differential.command import options_of, report_cases
from tests.interop.engine import Engine

SEED = 20261125
CASES = ("compaction-5.3.3", "compaction-5.3.3-crash")
_QUEUES = [(topic, number) for topic in ("Prices", "Users") for number in (0, 1)]
_OFFSETS = range(0, 104, 3)
_HOUR = 3_600_000
_QUIET = {"compactionScheduleInternal": _HOUR, "enableCompaction": True}  # nothing is compacted meanwhile
Verb = Callable[[Random, Path], str | None]
_EDGES = (0, -1, 1, 46, 1 << 20, 1 << 40, -(1 << 63))


def _files(store: Path, kind: str) -> list[Path]:
    return sorted(path for path in (store / "compaction" / kind).rglob("*") if path.is_file())


def _name(path: Path) -> str:
    return "/".join(path.parts[-4:])


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _units(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0")) // SIZE + 1


def unit_field(rng: Random, store: Path) -> str | None:
    """Change a field of a unit: position, size, queue offset or count."""
    path = rng.choice(_files(store, "compactionCq"))
    number = rng.randrange(_units(path))
    at, length = rng.choice(((0, 8), (8, 4), (28, 8), (36, 2)))
    old = int.from_bytes(path.read_bytes()[number * SIZE + at :][:length], "big", signed=True)
    top = (1 << 8 * length - 1) - 1
    new = max(min(rng.choice((*_EDGES, old + 1, old - 1, old + 200)), top), -top - 1)
    _write(path, number * SIZE + at, new.to_bytes(length, "big", signed=True))
    return f"unit {number} of {_name(path)}, byte {at}: {old} to {new}"


def units_zero(rng: Random, store: Path) -> str | None:
    """Zero the last units of a file, or some in the middle, sometimes one only partly."""
    path = rng.choice(_files(store, "compactionCq"))
    count = _units(path)
    first = rng.choice((max(count - 3, 0), rng.randrange(count)))
    skip, size = rng.choice((0, 0, 10)), SIZE * rng.choice((1, 2, 40))
    size = min(size, path.stat().st_size - first * SIZE - skip)
    _write(path, first * SIZE + skip, bytes(size))
    return f"{size} zeros from unit {first}, byte {skip} of {_name(path)}"


def record_bytes(rng: Random, store: Path) -> str | None:
    """Write noise or zeros into a log."""
    path = rng.choice(_files(store, "compactionLog"))
    used = max(len(path.read_bytes().rstrip(b"\0")), 1)
    at = rng.randrange(used)
    data = rng.choice((rng.randbytes(4), bytes(4), bytes(200), b"\xff" * 8))[: path.stat().st_size - at]
    _write(path, at, data)
    return f"{len(data)} bytes at {at} of {_name(path)}"


def log_end(rng: Random, store: Path) -> str | None:
    """Zero the end of a log."""
    path = rng.choice(_files(store, "compactionLog"))
    data = path.read_bytes()
    cut = max(len(data.rstrip(b"\0")) - rng.choice((20, 300, 2000)), 0)
    _write(path, cut, bytes(len(data) - cut))
    return f"{_name(path)} zero from {cut} on"


def file_gone(rng: Random, store: Path) -> str | None:
    """Delete a file or a folder."""
    path = rng.choice(_files(store, rng.choice(("compactionCq", "compactionLog"))))
    if rng.random() < 0.3:
        shutil.rmtree(path.parent)
        return f"{_name(path.parent)} is gone"
    path.unlink()
    return f"{_name(path)} is gone"


def pair_gone(rng: Random, store: Path) -> str | None:
    """Delete a log file and its queue file."""
    path = rng.choice(_files(store, "compactionCq"))
    path.unlink()
    other = Path(str(path).replace("compactionCq", "compactionLog"))
    other.unlink(missing_ok=True)
    return f"{_name(path)} and its log are gone"


def file_length(rng: Random, store: Path) -> str | None:
    """Cut or empty a file."""
    path = rng.choice(_files(store, rng.choice(("compactionCq", "compactionLog"))))
    size = path.stat().st_size
    new = rng.choice((0, SIZE, size // 2, size - 1, size + SIZE))
    os.truncate(path, new)
    return f"{_name(path)} from {size} to {new} bytes"


def file_more(rng: Random, store: Path) -> str | None:
    """Add a file: begun, empty, or foreign."""
    path = rng.choice(_files(store, rng.choice(("compactionCq", "compactionLog"))))
    size = path.stat().st_size
    name = rng.choice((f"{int(path.name) + size:020d}", f"{int(path.name) + 100_000_000:020d}", "note.txt"))
    path.with_name(name).write_bytes(rng.choice((b"", bytes(size))))
    return f"{_name(path.with_name(name))} made"


def positions(rng: Random, store: Path) -> str | None:
    """Delete, empty, tear or advance the file of positions."""
    path = store / "compaction" / "position-checkpoint"
    if not path.exists():
        return None
    data = path.read_bytes()
    what = rng.choice(("gone", "empty", "torn", "ahead"))
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "torn": data[:30], "ahead": data.replace(b"8", b"9")}[what])
    return f"position-checkpoint {what}"


def work_left(rng: Random, store: Path) -> str | None:
    """Leave an unfinished compaction."""
    path = rng.choice(_files(store, "compactionLog"))
    folder = path.parent / rng.choice(("compacting", "replicating"))
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / path.name)
    return f"{_name(folder / path.name)} left"


VERBS: dict[str, Verb] = {
    "unit-field": unit_field, "units-zero": units_zero, "record-bytes": record_bytes, "log-end": log_end,
    "file-gone": file_gone, "pair-gone": pair_gone, "file-length": file_length, "file-more": file_more,
    "positions": positions, "work-left": work_left,
}  # fmt: skip


@dataclass
class CompactedCase:
    """One damaged store, and the differences found."""

    seed: int
    base: str
    done: list[str]
    folder: Path
    problems: list[str] = field(default_factory=list)
    noted: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)  # of the recovery

    @property
    def text(self) -> str:
        """Text for a failure message."""
        lines = [f"seed {self.seed}, store {self.base}, kept in {self.folder / 'damaged'}", *self.done]
        return "\n  ".join(lines + [f"=> {problem}" for problem in self.problems[:6]])


def conf_of(base: str) -> BrokerConf:
    """The settings with which the files were written."""
    return BrokerConf({name: str(value) for name, value in goldens.about(base)["config"].items()})


def run_case(seed: int, verb: str, stores: dict[str, Path], folder: Path, engine: Engine) -> CompactedCase:
    """Damage, let both recover, and compare what consumers get."""
    rng = Random(seed)
    base = rng.choice(sorted(stores))
    damaged = Path(shutil.copytree(stores[base], folder / "damaged"))
    names = [verb, *rng.choices(list(VERBS), k=rng.choice((0, 0, 0, 1, 2)))]
    done = [
        f"{name}: {VERBS[name](rng, damaged) or 'nothing of that kind'}"
        for name in names
        if all(_files(damaged, kind) for kind in ("compactionCq", "compactionLog"))
    ]
    case = CompactedCase(seed, base, done, folder)
    try:
        _compare(case, engine)
    except Exception as err:  # any failure must name the seed and the store
        case.problems.append(f"{type(err).__name__}: {err}")
    if not case.problems:
        shutil.rmtree(folder)
    return case


def _compare(case: CompactedCase, engine: Engine) -> None:
    config = {**goldens.about(case.base)["config"], **_QUIET}
    gets = [(topic, number, offset, 1) for topic, number in _QUEUES for offset in _OFFSETS]
    judged = Path(shutil.copytree(case.folder / "damaged", case.folder / "judged"))
    theirs = engine.compacted(judged, config, gets=gets)
    exact = Path(shutil.copytree(case.folder / "damaged", case.folder / "exact"))
    report = recover(StoreLayout(str(exact), conf_of(case.base)), exactly=True)
    case.warnings = report.warnings
    if report.loadOk != theirs.get("loadOk", False):
        case.problems.append(f"loadOk: rmqtool {report.loadOk} {report.refusals}, engine {theirs}"[:600])
        return
    if report.loadOk:
        if "error" in theirs:
            case.problems.append(theirs["error"])
            return
        _compare_reads(case, exact, gets, theirs["reads"], "reads")
    mine = Path(shutil.copytree(case.folder / "damaged", case.folder / "mine"))
    report = recover(StoreLayout(str(mine), conf_of(case.base)))
    if not report.loadOk:
        case.noted["broker does not start"] += 1
        return
    if plan(StoreLayout(str(mine), conf_of(case.base))).actions:
        case.problems.append("a second recovery has something to do")
    again = engine.compacted(Path(shutil.copytree(mine, case.folder / "again")), config, gets=gets)
    if "reads" not in again:
        case.problems.append(f"a broker does not start on what was recovered: {again}"[:600])
        return
    case.noted["mended, where a broker does not start"] += not theirs.get("loadOk", False)
    _compare_reads(case, mine, gets, again["reads"], "reads of ours")


def _compare_reads(case: CompactedCase, store: Path, gets: list[Any], theirs: list[Any], what: str) -> None:
    layout = StoreLayout(str(store), conf_of(case.base))
    queues = {key: CompactionQueue(layout, *key) for key in _QUEUES}
    for (topic, number, offset, most), row in zip(gets, theirs, strict=True):
        if "error" in row:
            case.noted["a read that the engine throws at"] += 1
            continue
        status, following, low, high, messages = get_compacted(queues[topic, number], offset, most)
        result = [[m.record.queue_offset, m.record.body_crc] for m in messages]
        ours = {"status": status, "next": following, "min": low, "max": high, "messages": result}
        if ours == row:
            case.noted["reads alike"] += 1
            continue
        if row["status"] in ("FOUND", "MESSAGE_WAS_REMOVING") and not _readable(queues[topic, number], offset):
            case.noted["damaged records that the engine hands out"] += 1
            continue
        if row["status"] == "NO_MATCHED_LOGIC_QUEUE" and not _is_loaded(layout, queues[topic, number]):
            case.noted["reads of queues that a broker does not load, and we do"] += 1
            continue
        if what == "reads" and case.base.endswith("-crash") and row.get("max", 0) > high:
            case.noted["reads of queues that a start after a crash fills up"] += 1
            warned = any("compacted, and without the last messages" in warning for warning in case.warnings)
            if not warned:
                case.problems.append(f"{topic} {number} is behind, and recovery does not say so")
            continue
        first = queues[topic, number].queue.files[:1]
        if row["min"] == -1 and not row["max"] and not first and ours == {**row, "min": 0}:
            case.noted["reads of queues of which nothing is left"] += 1
            continue
        if row["min"] == -1 and first and not queues[topic, number].count(first[0]):
            # it answers with the offset 0 again and again: consumers stay there for ever
            case.noted["reads of queues whose first unit is none, where a broker finds nothing"] += 1
            continue
        if not _in_order(queues[topic, number]):
            case.noted["reads of units out of order"] += 1  # the engine searches by halves
            continue
        if len(case.problems) < 4:
            case.problems.append(f"{what} of {topic} {number} at {offset}: rmqtool {ours}, engine {row}")


def _readable(queue: CompactionQueue, offset: int) -> bool:
    """Whether the first unit at or after an offset points to a record of its length."""
    entry = next(queue.entries(offset), None)
    result = queue.at(entry.physical_offset, entry.size) if entry is not None else None
    return entry is not None and result is not None and result.record.total_size == entry.size


def _is_loaded(layout: StoreLayout, queue: CompactionQueue) -> bool:
    """Whether a broker loads it: both folders exist, and all files have the right length."""
    files = [(file.path, file.size) for segments in (queue.log, queue.queue) for file in segments]
    return all(map(layout.is_folder, (queue.log_path, queue.path))) and all(queue.fits(*file) for file in files)


def _in_order(queue: CompactionQueue) -> bool:
    offsets = [entry.base_queue_offset for entry in queue.entries(-(1 << 63))]
    return offsets == sorted(offsets)


def run_cases(count: int, seed: int, folder: Path, engine: Engine) -> list[CompactedCase]:
    """Run cases, with each kind of damage equally often."""
    stores = {base: goldens.unpack(base, folder / base) for base in CASES}
    verbs = list(VERBS)
    return [run_case(seed + n, verbs[n % len(verbs)], stores, folder / str(seed + n), engine) for n in range(count)]


def main() -> int:
    """Run cases and print the results."""
    options = options_of("compacted", __doc__, SEED)
    chosen = options.parse_args()
    return report_cases(
        chosen, "compacted", lambda folder, engine: run_cases(chosen.count, chosen.seed, folder, engine)
    )


if __name__ == "__main__":
    sys.exit(main())
