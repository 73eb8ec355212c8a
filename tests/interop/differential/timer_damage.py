"""Damage of timer files before both recover them.

A verb takes a random generator and a store, and returns a description of what it did, or None if nothing applies.
"""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from formats.variants import timer

Verb = Callable[[Random, Path], str | None]
CHECK_FIELDS = (
    "last_read_time",
    "last_timer_log_flush_position",
    "last_timer_queue_offset",
    "master_timer_queue_offset",
)


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _logs(store: Path) -> list[Path]:
    return sorted((store / "timerlog").glob("0*"))


def _used(store: Path) -> list[int]:
    """Numbers of all slots ever used."""
    path = store / "timerwheel"
    return [number for number, _slot in timer.slots(path.read_bytes())] if path.exists() else []


def _units(store: Path) -> list[tuple[Path, int]]:
    """File and byte of every unit, in log order."""
    return [
        (path, at)
        for path in _logs(store)
        for at, unit in timer.units(path.read_bytes())
        if isinstance(unit, timer.LogUnit)
    ]


def _slot(rng: Random, store: Path) -> tuple[Path, int, timer.Slot] | None:
    used = _used(store)
    if not used:
        return None
    number = rng.choice(used)
    path = store / "timerwheel"
    return path, number * timer.SLOT_SIZE, timer.read_slot(path.read_bytes(), number)


def slot_field(rng: Random, store: Path) -> str | None:
    """Change a field of a slot."""
    picked = _slot(rng, store)
    if picked is None:
        return None
    path, at, slot = picked
    name = rng.choice(("time", "first_position", "last_position", "last_position", "last_position", "count"))
    end = len(_units(store)) * timer.UNIT_SIZE
    old = getattr(slot, name)
    new = rng.choice(
        (0, -1, old + timer.UNIT_SIZE, old - timer.UNIT_SIZE, old + 1, end, end + timer.UNIT_SIZE, 1 << 40)
    )
    new = new if name != "count" else new & 0x7FFFFFFF
    _write(path, at, timer.build_slot(slot._replace(**{name: new})))
    return f"slot at {at}: {name} from {old} to {new}"


def slots_zero(rng: Random, store: Path) -> str | None:
    """Zero a slot, or its page."""
    picked = _slot(rng, store)
    if picked is None:
        return None
    path, at, _slot_there = picked
    start, size = rng.choice(((at, timer.SLOT_SIZE), (at // 4096 * 4096, 4096)))
    _write(path, start, bytes(size))
    return f"{size} zeros at {start} of timerwheel"


def no_wheel(rng: Random, store: Path) -> str | None:
    """Delete, empty or shorten the wheel."""
    path = store / "timerwheel"
    if not path.exists():
        return None
    what = rng.choice(("gone", "empty", "short"))
    if what == "gone":
        path.unlink()
    else:
        os.truncate(path, 0 if what == "empty" else timer.WHEEL_SIZE - rng.choice((1, 32, 4096)))
    return f"timerwheel {what}"


def unit_field(rng: Random, store: Path) -> str | None:
    """Change a field of a unit."""
    units = _units(store)
    if not units:
        return None
    path, at = rng.choice(units)
    unit = timer.read_unit(path.read_bytes(), at, path.stat().st_size)
    assert isinstance(unit, timer.LogUnit)
    name = rng.choice(("size", "magic", "previous_position", "write_time", "delay", "physical_offset", "message_size"))
    old = getattr(unit, name)
    new = {
        "size": rng.choice((0, 51, 53, -1)),
        "magic": rng.choice((0, 2, 5, 16, 0x77, -1)),
        "previous_position": rng.choice((-1, 0, old + 52, 1)),
        "write_time": rng.choice((old + 1000, -old, old - 1_209_600_000)),
        "delay": rng.choice((old + 1000, -1, 0)),
        "physical_offset": rng.choice((0, old + 1, 1 << 40)),
        "message_size": rng.choice((old + 1, 1)),
    }[name]
    _write(path, at, timer.build_unit(unit._replace(**{name: new})))
    return f"unit at {at} of {path.name}: {name} from {old} to {new}"


def units_zero(rng: Random, store: Path) -> str | None:
    """Zero the last units of the log, or some in the middle, sometimes one only partly."""
    units = _units(store)
    if not units:
        return None
    count = rng.choice((1, 1, 2, 5))
    first = len(units) - count if rng.random() < 0.6 else rng.randrange(len(units))
    torn = rng.choice((0, 0, 10, 30))
    for number, (path, at) in enumerate(units[max(first, 0) :][:count]):
        skip = torn if number == 0 else 0
        _write(path, at + skip, bytes(timer.UNIT_SIZE - skip))
    return f"units {first} to {first + count - 1} of {len(units)} zero, the first from byte {torn} on"


def behind_the_end(rng: Random, store: Path) -> str | None:
    """Add something after the end: noise, part of a unit, or an old unit after a gap."""
    units = _units(store)
    if not units:
        return None
    path, at = units[-1]
    data = path.read_bytes()
    room = len(data) - at - timer.UNIT_SIZE
    if room < 2 * timer.UNIT_SIZE:
        return None
    old = data[at : at + timer.UNIT_SIZE]
    what = rng.choice(("noise", "part", "gap"))
    new = {"noise": rng.randbytes(60), "part": old[:30], "gap": bytes(timer.UNIT_SIZE) + old}[what]
    _write(path, at + timer.UNIT_SIZE, new[:room])
    return f"{what} behind the last unit at {at} of {path.name}"


def log_file(rng: Random, store: Path) -> str | None:
    """Delete, cut, empty or begin a log file, or add a foreign one."""
    logs = _logs(store)
    if not logs:
        return None
    what = rng.choice(("first gone", "last gone", "gone", "cut", "empty", "begun", "foreign"))
    size = logs[0].stat().st_size
    if what in ("first gone", "last gone", "gone"):
        path = {"first gone": logs[0], "last gone": logs[-1], "gone": rng.choice(logs)}[what]
        path.unlink()
    elif what == "cut":
        path = rng.choice(logs)
        os.truncate(path, size // 2)
    else:
        name = "strange" if what == "foreign" else f"{int(logs[-1].name) + size:020d}"
        path = logs[-1].with_name(name)
        path.write_bytes(b"" if what == "empty" else bytes(size))
    return f"{what}: timerlog/{path.name}"


def check_field(rng: Random, store: Path) -> str | None:
    """Change a field of the checkpoint."""
    path = store / "config" / "timercheck"
    if not path.exists():
        return None
    point = timer.parse_checkpoint(path.read_bytes())
    name = rng.choice(CHECK_FIELDS)
    old = getattr(point, name)
    near = rng.choice((1, 5, 52, 520, 1000, 10_000))
    new = rng.choice((0, old + near, max(old - near, 0), old * 2))
    path.write_bytes(timer.build_checkpoint(point._replace(**{name: new})))
    return f"timercheck: {name} from {old} to {new}"


def no_check(rng: Random, store: Path) -> str | None:
    """Delete, zero or cut the checkpoint."""
    path = store / "config" / "timercheck"
    if not path.exists():
        return None
    what = rng.choice(("gone", "zero", "cut"))
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(4096) if what == "zero" else path.read_bytes()[: rng.choice((8, 20, 40))])
    return f"timercheck {what}"


def metrics(rng: Random, store: Path) -> str | None:
    """Delete or empty the metrics, or make them invalid JSON."""
    path = store / "config" / "timermetrics"
    if not path.exists():
        return None
    what = rng.choice(("gone", "empty", "no JSON"))
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if what == "empty" else b"{no")
    return f"timermetrics {what}"


def cut_log(rng: Random, store: Path) -> str | None:
    """Zero the last messages of the commit log."""
    path = max((store / "commitlog").glob("*"))
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    if not end:
        return None
    cut = max(end - rng.choice((40, 300, 1500)), 0)
    _write(path, cut, bytes(len(data) - cut))
    (store / "abort").touch()
    return f"commitlog/{path.name} zero from {cut} on, with abort"


VERBS: dict[str, Verb] = {
    "slot-field": slot_field,
    "slots-zero": slots_zero,
    "no-wheel": no_wheel,
    "unit-field": unit_field,
    "units-zero": units_zero,
    "behind-the-end": behind_the_end,
    "log-file": log_file,
    "check-field": check_field,
    "no-check": no_check,
    "metrics": metrics,
    "cut-log": cut_log,
}


def damage(rng: Random, store: Path, first: str) -> list[str]:
    """Apply a verb, sometimes with others after it; returns descriptions."""
    names = [first, *rng.choices(list(VERBS), k=rng.choice((0, 0, 0, 1, 2)))]
    return [f"{name}: {VERBS[name](rng, store) or 'nothing of that kind'}" for name in names]
