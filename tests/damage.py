"""Seeded damage of stores, as caused by disks, crashes and people.

Every verb takes a random generator and a store directory, and returns a description of what it did, so that a failure
can be understood and replayed; or None if the store has nothing of that kind. Verbs can be combined.
"""

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from formats import checkpoint
from formats.message.read import HEADS, Record, read

Verb = Callable[[Random, Path], str | None]
UNIT = 20
FILLER = struct.pack(">qiq", 0, 2**31 - 1, 0)
_TIMES_AHEAD = (4_000, 3_600_000, 10**12)

# Byte and length of the fields before the hosts.
_HEAD_FIELDS = {
    "size": (0, 4),
    "magic": (4, 4),
    "bodyCRC": (8, 4),
    "queueId": (12, 4),
    "flag": (16, 4),
    "queueOffset": (20, 8),
    "physicalOffset": (28, 8),
    "sysFlag": (36, 4),
    "bornTimestamp": (40, 8),
}


class Place(NamedTuple):
    """A record and its position."""

    path: Path
    at: int
    record: Record

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.at + self.record.total_size


def records_of(path: Path) -> Iterator[Place]:
    """Records of one commit-log file, up to the first invalid one."""
    data = path.read_bytes()
    at = 0
    while isinstance(record := read(data, at, len(data)), Record):
        yield Place(path, at, record)
        at += record.total_size


def log_files(store: Path) -> list[Path]:
    """Commit-log files by name."""
    return _files(store / "commitlog")


def queue_files(store: Path) -> list[Path]:
    """Files of all queues by name."""
    return [p for p in _files(store / "consumequeue", "*/*/*") if p.is_file()]


def index_files(store: Path) -> list[Path]:
    """Index files by name."""
    return _files(store / "index")


def damage(rng: Random, store: Path, first: str, more: int = 0) -> list[str]:
    """Damage a store with this verb and ``more`` others; returns descriptions."""
    names = [first, *rng.choices(sorted(VERBS), k=more)]
    done = []
    for name in names:
        change = VERBS[name](rng, store)
        done.append(f"{name}: {change}" if change else f"{name}: nothing to damage")
    return done


def _files(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(p for p in folder.glob(pattern) if p.is_file())


def _pick(rng: Random, files: list[Path]) -> Path | None:
    """Pick a file, preferring the last ones, which recovery examines."""
    if not files:
        return None
    return rng.choice(files[-3:]) if rng.random() < 0.6 else rng.choice(files)


def _pick_record(rng: Random, store: Path) -> Place | None:
    path = _pick(rng, log_files(store))
    places = list(records_of(path)) if path else []
    if not places:
        return None
    return rng.choice((places[0], places[-1], rng.choice(places), rng.choice(places)))


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _read(path: Path, at: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)


def _flip(rng: Random, path: Path, at: int, size: int) -> str:
    """Flip one bit of a range, sometimes a few."""
    changes = []
    for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 8)):
        byte, bit = at + rng.randrange(size), rng.randrange(8)
        (old,) = _read(path, byte, 1)
        _write(path, byte, bytes([old ^ 1 << bit]))
        changes.append(f"{byte}.{bit}")
    return f"bits {', '.join(changes)} of {_name(path)}"


def _name(path: Path) -> str:
    return "/".join(path.parts[-4 if "consumequeue" in path.parts else -2 :])


def _delete(path: Path | None) -> str | None:
    if path is None:
        return None
    path.unlink()
    return _name(path)


def _swap(rng: Random, files: list[Path]) -> str | None:
    if len(files) < 2:
        return None
    first, second = rng.sample(files, 2)
    if first.stat().st_size != second.stat().st_size:
        return None
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    return f"{_name(first)} with {_name(second)}"


def _other_length(rng: Random, path: Path | None) -> str | None:
    if path is None:
        return None
    size = path.stat().st_size
    new = rng.choice((0, 1, size // 2, size - 1, size - UNIT, size + 1, size + UNIT, 2 * size))
    with path.open("r+b") as file:
        file.truncate(max(new, 0))
    return f"{_name(path)} from {size} to {new} bytes"


def _foreign(rng: Random, folder: Path) -> str | None:
    files = _files(folder)
    if not files:
        return None
    path = folder / rng.choice((files[-1].name + ".bak", "nohup.out", "0.tmp", "10x"))
    if path.exists():
        return None
    if rng.random() < 0.3:
        path.mkdir()
    elif rng.random() < 0.5:
        shutil.copy2(files[0], path)
    else:
        path.write_bytes(b"x")
    return _name(path)


def _extra_file(rng: Random, files: list[Path]) -> str | None:
    files = [path for path in files if path.name.isdecimal()]
    if not files:
        return None
    size = files[-1].stat().st_size
    path = files[-1].with_name(f"{int(files[-1].name) + size * rng.choice((1, 1, 1, 2)):020d}")
    if path.is_dir():
        return None
    source = rng.choice((None, None, *files))
    path.write_bytes(source.read_bytes()[:size].ljust(size, b"\0") if source else bytes(size))
    return f"{_name(path)} like {_name(source)}" if source else f"{_name(path)} of zeros"


# -- commit log -------------------------------------------------------------------------------------------------------


def _last_record(store: Path) -> Place | None:
    for path in reversed(log_files(store)):
        if places := list(records_of(path)):
            return places[-1]
    return None


def tear_last_record(rng: Random, store: Path) -> str | None:
    """Leave only part of the last record."""
    place = _last_record(store)
    if place is None:
        return None
    size = place.record.total_size
    kept = rng.choice((rng.randrange(size), rng.randrange(92), size - 1))
    _write(place.path, place.at + kept, bytes(size - kept))
    return f"{_name(place.path)}: {kept} of {size} bytes kept at {place.at}"


def lose_tail(rng: Random, store: Path) -> str | None:
    """Zero a file from some byte on, with the last records."""
    path = _pick(rng, log_files(store))
    size = path.stat().st_size if path else 0
    if path is None or not size:
        return None
    at = rng.randrange(size)
    _write(path, at, bytes(size - at))
    return f"{_name(path)} from {at}"


def _pick_range(rng: Random, store: Path, lengths: tuple[int, ...]) -> tuple[Path, int, int] | None:
    """(file, first byte, length) of a part of the log."""
    path = _pick(rng, log_files(store))
    size = path.stat().st_size if path else 0
    if path is None or not size:
        return None
    length = rng.choice(lengths)
    at = rng.randrange(max(size - length, 1))
    return path, at, min(length, size - at)


def zero_log_range(rng: Random, store: Path) -> str | None:
    """Zero a block that never reached the disk."""
    picked = _pick_range(rng, store, (8, 100, 512, 4096))
    if picked is None:
        return None
    path, at, length = picked
    _write(path, at, bytes(length))
    return f"{_name(path)} from {at} to {at + length}"


def garbage_in_log(rng: Random, store: Path) -> str | None:
    """Overwrite some bytes with noise."""
    picked = _pick_range(rng, store, (1, 8, 64, 1024))
    if picked is None:
        return None
    path, at, length = picked
    _write(path, at, rng.randbytes(length))
    return f"{_name(path)} from {at} to {at + length}"


def zero_record(rng: Random, store: Path) -> str | None:
    """Zero a whole record, or its first bytes."""
    place = _pick_record(rng, store)
    if place is None:
        return None
    length = rng.choice((place.record.total_size, 8, 4))
    _write(place.path, place.at, bytes(length))
    return f"{length} bytes of {_name(place.path)} at {place.at}"


def _flip_part(part: str) -> Verb:
    def verb(rng: Random, store: Path) -> str | None:
        place = _pick_record(rng, store)
        if place is None:
            return None
        at, size = _part(rng, place, part)
        if not size:
            return None
        return f"record at {place.at}: {_flip(rng, place.path, place.at + at, size)}"

    verb.__doc__ = f"Bits of one record's {part}."
    return verb


def _part(rng: Random, place: Place, part: str) -> tuple[int, int]:
    """(byte in the record, length) of a part."""
    record = place.record
    if part in _HEAD_FIELDS:
        return _HEAD_FIELDS[part]
    head = HEADS[record.sys_flag & 0x30]
    topic_at = head.size + len(record.body) + 1
    properties_at = topic_at + len(record.topic) + 2
    return {
        "head": (0, head.size),
        "storeTimestamp": (head.offsets["store_timestamp"], 8),
        "bodyLength": (head.size - 4, 4),
        "body": (head.size, len(record.body)),
        "topicLength": (topic_at - 1, 1),
        "topic": (topic_at, len(record.topic)),
        "propertiesLength": (properties_at - 2, 2),
        "properties": (properties_at, len(record.properties)),
    }[part]


def other_size(rng: Random, store: Path) -> str | None:
    """Change the size field: small, large or negative."""
    place = _pick_record(rng, store)
    if place is None:
        return None
    true = place.record.total_size
    size = rng.choice((0, 1, 7, 8, 19, 20, 50, 90, 91, true - 1, true + 1, true + 200, 10_000, 100_000, 2**28, -1))
    _write(place.path, place.at, struct.pack(">i", size))
    return f"{true} to {size}, {_name(place.path)} at {place.at}"


def blank_early(rng: Random, store: Path) -> str | None:
    """Overwrite a record with an end-of-file blank."""
    place = _pick_record(rng, store)
    if place is None:
        return None
    _write(place.path, place.at, struct.pack(">iI", rng.choice((0, 8, place.record.total_size)), 0xCBD43194))
    return f"{_name(place.path)} at {place.at}"


def lose_blank(rng: Random, store: Path) -> str | None:
    """Zero the blank that ends a full file."""
    path = _pick(rng, log_files(store)[:-1])
    places = list(records_of(path)) if path else []
    if not places or path is None:
        return None
    _write(path, places[-1].end, bytes(min(8, path.stat().st_size - places[-1].end)))
    return f"{_name(path)} at {places[-1].end}"


def other_blank_size(rng: Random, store: Path) -> str | None:
    """Change the size in the blank that ends a full file: small, large or negative."""
    path = _pick(rng, log_files(store)[:-1])
    places = list(records_of(path)) if path else []
    if not places or path is None or (room := path.stat().st_size - places[-1].end) < 8:
        return None
    size = rng.choice((-1, -room, -(2**31), 0, 8, room - 1, room + 1, 2**28))
    _write(path, places[-1].end, struct.pack(">i", size))
    return f"{room} to {size}, {_name(path)} at {places[-1].end}"


def delete_log_file(rng: Random, store: Path) -> str | None:
    """Delete a commit-log file: the first, the last or any other."""
    files = log_files(store)
    return _delete(rng.choice((files[0], files[-1], rng.choice(files)))) if files else None


def delete_first_log_files(rng: Random, store: Path) -> str | None:
    """Delete the oldest commit-log files, as expiry does."""
    files = log_files(store)
    if len(files) < 2:
        return None
    count = rng.randint(1, len(files) - 1)
    for path in files[:count]:
        path.unlink()
    return f"{count} of {len(files)}"


def delete_log(rng: Random, store: Path) -> str | None:
    """Delete all commit-log files."""
    files = log_files(store)
    for path in files:
        path.unlink()
    return f"{len(files)} files" if files else None


def wrong_log_length(rng: Random, store: Path) -> str | None:
    """Make a commit-log file too short or too long."""
    return _other_length(rng, _pick(rng, log_files(store)))


def foreign_log_file(rng: Random, store: Path) -> str | None:
    """Add a foreign entry to the commit-log directory."""
    return _foreign(rng, store / "commitlog")


def extra_log_file(rng: Random, store: Path) -> str | None:
    """Add a file after the last one: preallocated, or stale."""
    return _extra_file(rng, log_files(store))


def swap_log_files(rng: Random, store: Path) -> str | None:
    """Swap the names of two commit-log files."""
    return _swap(rng, log_files(store))


# -- consume queues ---------------------------------------------------------------------------------------------------


def _used(path: Path) -> int:
    """Bytes of a queue file up to its last whole unit that is not zero."""
    data = path.read_bytes()
    return min(-(-len(data.rstrip(b"\0")) // UNIT), len(data) // UNIT) * UNIT


def _pick_unit(rng: Random, store: Path) -> tuple[Path, int, int] | None:
    """(file, byte of a whole unit that is in use, bytes in use)."""
    path = _pick(rng, queue_files(store))
    used = _used(path) if path else 0
    if path is None or not used:
        return None
    last = used // UNIT - 1
    return path, UNIT * rng.choice((0, last, rng.randint(0, last), rng.randint(0, last))), used


def _set_units(make: Callable[[Random, bytes], bytes], what: str) -> Verb:
    def verb(rng: Random, store: Path) -> str | None:
        picked = _pick_unit(rng, store)
        if picked is None:
            return None
        path, at, _used = picked
        count = min(rng.choice((1, 1, 3, 20)), path.stat().st_size // UNIT - at // UNIT)
        for number in range(count):
            place = at + number * UNIT
            _write(path, place, make(rng, _read(path, place, UNIT)))
        return f"{count} units of {_name(path)} at {at}"

    verb.__doc__ = what
    return verb


def _other_unit(rng: Random, unit: bytes) -> bytes:
    offset, size, tags = struct.unpack(">qiq", unit)
    offset += rng.choice((0, -1, 1, 500, 10**6, -(10**6), 2**40))
    size += rng.choice((0, 0, 1, -1, 10**6, -size))
    return _signed(offset, 8) + _signed(size, 4) + _signed(rng.choice((tags, tags, ~tags)), 8)


def _signed(value: int, size: int) -> bytes:
    """Encode big-endian, truncated to ``size`` bytes."""
    return (value % (1 << 8 * size)).to_bytes(size, "big")


def lose_queue_tail(rng: Random, store: Path) -> str | None:
    """Zero the last units of a queue file."""
    picked = _pick_unit(rng, store)
    if picked is None:
        return None
    path, at, used = picked
    _write(path, at, bytes(used - at))
    return f"{_name(path)} from {at}"


def lose_tails_of_all_queues(rng: Random, store: Path) -> str | None:
    """Zero the last units of the last file of every queue."""
    changes = []
    for folder in sorted({path.parent for path in queue_files(store)}):
        path = _files(folder)[-1]
        used = _used(path)
        at = max(used - UNIT * rng.randint(0, 30), 0)
        _write(path, at, bytes(used - at))
        changes.append(f"{_name(path)} from {at}")
    return ", ".join(changes) or None


def stale_units(rng: Random, store: Path) -> str | None:
    """Add units after the end of a queue, such as a cut leaves."""
    picked = _pick_unit(rng, store)
    if picked is None:
        return None
    path, _at, used = picked
    gap = UNIT * rng.choice((0, 0, 1, 2))
    count = min(rng.randint(1, 20), (path.stat().st_size - used - gap) // UNIT)
    if count <= 0:
        return None
    source = rng.randrange(used // UNIT) * UNIT
    data = _read(path, source, min(count * UNIT, used - source))
    _write(path, used + gap, data)
    return f"{len(data) // UNIT} units of {_name(path)} at {used + gap}"


def flip_queue_bits(rng: Random, store: Path) -> str | None:
    """Flip bits of one unit."""
    picked = _pick_unit(rng, store)
    return _flip(rng, picked[0], picked[1], UNIT) if picked else None


def delete_queue_file(rng: Random, store: Path) -> str | None:
    """Delete one file of a queue."""
    return _delete(_pick(rng, queue_files(store)))


def delete_first_queue_files(rng: Random, store: Path) -> str | None:
    """Delete the oldest files of a queue."""
    path = _pick(rng, queue_files(store))
    if path is None:
        return None
    files = _files(path.parent)
    if len(files) < 2:
        return None
    count = rng.randint(1, len(files) - 1)
    for old in files[:count]:
        old.unlink()
    return f"{count} of {len(files)} in {_name(path)}"


def delete_queue(rng: Random, store: Path) -> str | None:
    """Delete a queue, with or without its directory."""
    path = _pick(rng, queue_files(store))
    if path is None:
        return None
    whole = rng.random() < 0.5
    shutil.rmtree(path.parent)
    if not whole:
        path.parent.mkdir()
    return f"{_name(path.parent)}{' and its directory' if whole else ''}"


def delete_topic(rng: Random, store: Path) -> str | None:
    """Delete all queues of a topic."""
    path = _pick(rng, queue_files(store))
    if path is None:
        return None
    shutil.rmtree(path.parents[1])
    return path.parents[1].name


def delete_queues(rng: Random, store: Path) -> str | None:
    """Delete the whole consumequeue directory."""
    if not (store / "consumequeue").is_dir():
        return None
    shutil.rmtree(store / "consumequeue")
    return "all"


def wrong_queue_length(rng: Random, store: Path) -> str | None:
    """Make a queue file too short or too long."""
    return _other_length(rng, _pick(rng, queue_files(store)))


def foreign_queue_file(rng: Random, store: Path) -> str | None:
    """Add a foreign entry to a queue's directory."""
    path = _pick(rng, queue_files(store))
    return _foreign(rng, path.parent) if path else None


def extra_queue_file(rng: Random, store: Path) -> str | None:
    """Add a file after a queue's last one: created but unwritten, or stale."""
    path = _pick(rng, queue_files(store))
    return _extra_file(rng, _files(path.parent)) if path else None


def swap_queue_files(rng: Random, store: Path) -> str | None:
    """Swap the names of two queue files."""
    return _swap(rng, queue_files(store))


def strange_queue_directories(rng: Random, store: Path) -> str | None:
    """Add directories without a queue, or with an empty one."""
    topics = [p for p in (store / "consumequeue").glob("*") if p.is_dir()]
    if not topics:
        return None
    names = rng.sample(("77", "-1", "007", "+3", "x", "1.bak", "2147483648", "99999999999999999999"), 3)
    topic = rng.choice(sorted(topics))
    for name in names:
        if not (topic / name).exists():
            (topic / name).mkdir()
    return f"{', '.join(names)} in {topic.name}"


# -- index, checkpoint, abort -----------------------------------------------------------------------------------------


def delete_index_file(rng: Random, store: Path) -> str | None:
    """Delete one index file."""
    return _delete(_pick(rng, index_files(store)))


def delete_index(rng: Random, store: Path) -> str | None:
    """Delete all index files."""
    files = index_files(store)
    for path in files:
        path.unlink()
    return f"{len(files)} files" if files else None


def other_index_header(rng: Random, store: Path) -> str | None:
    """Change a field of an index header."""
    path = _pick(rng, index_files(store))
    if path is None:
        return None
    at, size = rng.choice(((0, 8), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4), (36, 4)))
    old = int.from_bytes(_read(path, at, size), "big", signed=True)
    new = rng.choice((0, -1, 1, old - 1, old + 1, old // 2, old + 5000, 2 ** (size * 8 - 1) - 1))
    _write(path, at, _signed(new, size))
    return f"{old} to {new}, {_name(path)} at {at}"


def zero_index_header(rng: Random, store: Path) -> str | None:
    """Zero the header of an index file."""
    path = _pick(rng, index_files(store))
    if path is None:
        return None
    _write(path, 0, bytes(40))
    return _name(path)


def zero_index_range(rng: Random, store: Path) -> str | None:
    """Zero a block of an index file."""
    path = _pick(rng, index_files(store))
    if path is None:
        return None
    size = path.stat().st_size
    length = min(rng.choice((20, 512, 4096)), size)
    at = rng.randrange(size - length + 1)
    _write(path, at, bytes(length))
    return f"{_name(path)} from {at} to {at + length}"


def flip_index_bits(rng: Random, store: Path) -> str | None:
    """Flip bits anywhere in an index file."""
    path = _pick(rng, index_files(store))
    if path is None or not path.stat().st_size:
        return None
    return _flip(rng, path, 0, path.stat().st_size)


def wrong_index_length(rng: Random, store: Path) -> str | None:
    """Make an index file too short or too long."""
    return _other_length(rng, _pick(rng, index_files(store)))


def foreign_index_file(rng: Random, store: Path) -> str | None:
    """Add a foreign entry to the index directory."""
    return _foreign(rng, store / "index")


def delete_checkpoint(rng: Random, store: Path) -> str | None:
    """Delete the checkpoint."""
    path = store / "checkpoint"
    return _delete(path if path.exists() else None)


def zero_checkpoint(rng: Random, store: Path) -> str | None:
    """Make the checkpoint zeros, empty or short."""
    path = store / "checkpoint"
    length = rng.choice((0, 8, 20, 4096))
    path.write_bytes(bytes(length))
    return f"{length} bytes"


def other_checkpoint(rng: Random, store: Path) -> str | None:
    """Set the checkpoint to the future, or to the time of some message in the log."""
    path = store / "checkpoint"
    old = checkpoint.parse(path.read_bytes() if path.exists() else b"")
    place = _pick_record(rng, store)
    time = place.record.store_timestamp if place else 0
    change = rng.choice(("ahead", "message", "message", "index", "noise"))
    if change == "ahead":
        time = min(old.physic_msg_timestamp + rng.choice(_TIMES_AHEAD), 2**63 - 1)
        new = old._replace(physic_msg_timestamp=time, logics_msg_timestamp=time)
    elif change == "message":
        time = min(time, 2**62) + 3000 + rng.choice((-1, 0, 1))
        new = old._replace(physic_msg_timestamp=time, logics_msg_timestamp=time + rng.choice((0, 5000)))
    elif change == "index":
        new = old._replace(index_msg_timestamp=time)
    else:
        new = checkpoint.parse(rng.randbytes(40))
    path.write_bytes(checkpoint.build(new))
    return f"{change}: {new[:3]}"


def add_abort(rng: Random, store: Path) -> str | None:
    """Add ``abort``, as if the broker had not stopped cleanly."""
    path = store / "abort"
    if path.exists():
        return None
    path.touch()
    return "added"


def remove_abort(rng: Random, store: Path) -> str | None:
    """Remove ``abort``, as if the broker had stopped cleanly."""
    path = store / "abort"
    return _delete(path if path.exists() else None)


# -- what 5.x has besides ---------------------------------------------------------------------------------------------

_OF_5 = ("timerwheel", "timerlog", "compaction", "batchconsumequeue", "config/timercheck")


def part_of_5(rng: Random, store: Path) -> str | None:
    """Damage a file or directory of the timer, of compacted topics or of batch queues."""
    part = rng.choice([store / name for name in _OF_5 if (store / name).exists()] or [None])
    if part is None:
        return None
    if part.is_dir() and rng.random() < 0.15:
        shutil.rmtree(part)
        return f"{part.name} is gone"
    files = sorted(path for path in part.rglob("*") if path.is_file()) if part.is_dir() else [part]
    path = rng.choice(files) if files else None
    size = path.stat().st_size if path is not None else 0
    if path is None or not size:
        return None
    name, data = str(path.relative_to(store)), path.read_bytes()
    used = len(data.rstrip(b"\0")) or size
    at = rng.randrange(used)
    how = rng.choice(("delete", "shorten", "zero", "zero the rest", "noise", "flip"))
    if how == "delete":
        path.unlink()
    elif how == "shorten":
        with path.open("r+b") as file:
            file.truncate(at)
    elif how == "flip":
        return _flip(rng, path, at, 1)
    else:
        length = size - at if how == "zero the rest" else min(rng.choice((1, 8, 46, 52, 400)), size - at)
        _write(path, at, rng.randbytes(length) if how == "noise" else bytes(length))
    return f"{how}: {name} at {at}"


VERBS: dict[str, Verb] = {
    "tear-last-record": tear_last_record,
    "lose-log-tail": lose_tail,
    "zero-log-range": zero_log_range,
    "garbage-in-log": garbage_in_log,
    "zero-record": zero_record,
    **{
        f"flip-{part}": _flip_part(part)
        for part in (
            *_HEAD_FIELDS,
            "head",
            "storeTimestamp",
            "bodyLength",
            "body",
            "topicLength",
            "topic",
            "propertiesLength",
            "properties",
        )
    },
    "other-size": other_size,
    "blank-early": blank_early,
    "lose-blank": lose_blank,
    "other-blank-size": other_blank_size,
    "delete-log-file": delete_log_file,
    "delete-first-log-files": delete_first_log_files,
    "delete-log": delete_log,
    "wrong-log-length": wrong_log_length,
    "foreign-log-file": foreign_log_file,
    "extra-log-file": extra_log_file,
    "swap-log-files": swap_log_files,
    "zero-units": _set_units(lambda rng, unit: bytes(UNIT), "Units of zeros."),
    "filler-units": _set_units(lambda rng, unit: FILLER, "Units such as stand before a queue's first."),
    "other-units": _set_units(_other_unit, "Units that say something else."),
    "garbage-units": _set_units(lambda rng, unit: rng.randbytes(UNIT), "Units of noise."),
    "lose-queue-tail": lose_queue_tail,
    "lose-tails-of-all-queues": lose_tails_of_all_queues,
    "stale-units": stale_units,
    "flip-queue-bits": flip_queue_bits,
    "delete-queue-file": delete_queue_file,
    "delete-first-queue-files": delete_first_queue_files,
    "delete-queue": delete_queue,
    "delete-topic": delete_topic,
    "delete-queues": delete_queues,
    "wrong-queue-length": wrong_queue_length,
    "foreign-queue-file": foreign_queue_file,
    "extra-queue-file": extra_queue_file,
    "swap-queue-files": swap_queue_files,
    "strange-queue-directories": strange_queue_directories,
    "delete-index-file": delete_index_file,
    "delete-index": delete_index,
    "other-index-header": other_index_header,
    "zero-index-header": zero_index_header,
    "zero-index-range": zero_index_range,
    "flip-index-bits": flip_index_bits,
    "wrong-index-length": wrong_index_length,
    "foreign-index-file": foreign_index_file,
    "delete-checkpoint": delete_checkpoint,
    "zero-checkpoint": zero_checkpoint,
    "other-checkpoint": other_checkpoint,
    "add-abort": add_abort,
    "remove-abort": remove_abort,
}
