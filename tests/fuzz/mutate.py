"""Mutations of a store: of its bytes, its files and its JSON."""

import os
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from formats.errors import FormatError
from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from tests.damage import VERBS

Mutation = Callable[[Random, Path], str | None]
_HUGE = 64 << 20  # bytes of a file that is nearly all hole
_EDGES = [
    value.to_bytes(size, "big", signed=True)
    for size in (2, 4, 8)
    for value in (0, -1, 1, 2 ** (size * 8 - 1) - 1, -(2 ** (size * 8 - 1)), 2 ** (size * 8 - 2))
]
_SIGNS = [b"{", b"}", b"[", b"]", b'"', b"'", b",", b":", b"/*", b"\\", b"\0", b"-"]
_VALUES: list[Any] = [
    None, True, 0, -1, 1, 2**31, -(2**31) - 1, 2**63, 10**300, 1.5, "", "0", "x", "\udcff", "a@b@c", "/../x", "%LMQ%x",
    [], {}, {"$ref": "$"}, {"$ref": ".."}, [[[[]]]], {"0": {"0": 0}}, {0: -1},
]  # fmt: skip


def mutate(rng: Random, store: Path) -> list[tuple[str, str | None]]:
    """Apply one to six mutations; returns (name, description; None if nothing applied)."""
    count = rng.choice((1, 1, 1, 2, 2, 3, 6))
    names = [rng.choice(_VERBS) if rng.random() < 0.4 else rng.choices(_NAMES, _WEIGHTS)[0] for _ in range(count)]
    names.sort(key="no-file".__eq__)  # last, for whoever writes into a FIFO waits
    return [(name, (VERBS[name] if name in VERBS else MUTATIONS[name][0])(rng, store)) for name in names]


def _files(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file() and not path.is_symlink())


def _pick(rng: Random, store: Path) -> Path | None:
    """Pick a file; rare kinds are picked as often as frequent ones."""
    files = _files(store)
    if not files:
        return None
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(path.relative_to(store).parts[0], []).append(path)
    return rng.choice(kinds[rng.choice(sorted(kinds))])


def _name(store: Path, path: Path) -> str:
    return str(path.relative_to(store))


def _at(rng: Random, size: int) -> int:
    return rng.choice((rng.randrange(min(size, 200)), rng.randrange(size))) if size else 0


def write_bytes(rng: Random, store: Path) -> str | None:
    """Overwrite some bytes with edge values, noise, zeros or ones."""
    path = _pick(rng, store)
    if path is None:
        return None
    size = path.stat().st_size
    at = _at(rng, size)
    data = rng.choice((
        rng.choice(_EDGES), rng.choice(_EDGES), rng.randbytes(rng.randint(1, 12)), bytes(rng.choice((1, 20, 500))),
        b"\xff" * rng.choice((1, 20, 500)),
    ))  # fmt: skip
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[: max(size - at, 1)])
    return f"{data[:16].hex()} ({len(data)}) at {at} of {_name(store, path)}"


def flip(rng: Random, store: Path) -> str | None:
    """Flip single bits."""
    path = _pick(rng, store)
    if path is None or not path.stat().st_size:
        return None
    data = bytearray(path.read_bytes())
    changes = []
    for _ in range(rng.choice((1, 1, 3, 10))):
        at, bit = _at(rng, len(data)), rng.randrange(8)
        data[at] ^= 1 << bit
        changes.append(f"{at}.{bit}")
    path.write_bytes(data)
    return f"{' '.join(changes)} of {_name(store, path)}"


def copy_bytes(rng: Random, store: Path) -> str | None:
    """Copy bytes of this or another file to another position."""
    path, other = _pick(rng, store), _pick(rng, store)
    if path is None or other is None:
        return None
    source = other.read_bytes()
    start = _at(rng, len(source))
    part = source[start : start + rng.choice((4, 20, 91, 1000, 8192))]
    at = _at(rng, path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(part)
    return f"{len(part)} bytes of {_name(store, other)} at {start} to {_name(store, path)} at {at}"


def insert(rng: Random, store: Path) -> str | None:
    """Insert or remove bytes, which moves all later ones."""
    path = _pick(rng, store)
    if path is None:
        return None
    data = path.read_bytes()
    at, count = _at(rng, len(data)), rng.choice((1, 4, 20, 100))
    path.write_bytes(data[:at] + (rng.randbytes(count) + data[at:] if rng.random() < 0.5 else data[at + count :]))
    return f"{count} bytes at {at} of {_name(store, path)}"


def other_length(rng: Random, store: Path) -> str | None:
    """Shorten or extend a file, sometimes to a hostile size."""
    path = _pick(rng, store)
    if path is None:
        return None
    size = path.stat().st_size
    new = rng.choice((0, 1, 7, 8, 19, 20, 39, 40, size // 2, max(size - 1, 0), size + 1, size + 20, size * 2, size * 5))
    if rng.random() < 0.01:
        new = rng.choice((_HUGE, _HUGE + 13))
    os.truncate(path, new)
    if new > size and rng.random() < 0.3:
        with path.open("r+b") as file:
            file.seek(size)
            file.write(rng.randbytes(min(new - size, 4096)))
    return f"{_name(store, path)} from {size} to {new}"


def swap(rng: Random, store: Path) -> str | None:
    """Swap the names of two files of any kind."""
    left, right = _pick(rng, store), _pick(rng, store)
    if left is None or right is None or left == right:
        return None
    first = left.read_bytes()
    left.write_bytes(right.read_bytes())
    right.write_bytes(first)
    return f"{_name(store, left)} with {_name(store, right)}"


def _strange_name(rng: Random, path: Path) -> Path:
    name = path.name
    number = int(name) if name.isdecimal() and name.isascii() else 0
    return path.with_name(
        rng.choice((
            f"{number + rng.choice((1, 20, 400, 8192, 2**62)):020d}", f"{2**63 - 1:020d}", f"{2**63:020d}", "9" * 20,
            str(number), name + ".bak", name + "x", name[:-1] or "0", "-1", "٣", "x\udcffy", "a b", "0" * 30, ".hidden",
        ))
    )  # fmt: skip


def rename(rng: Random, store: Path) -> str | None:
    """Rename a file or directory."""
    path = _pick(rng, store)
    if path is None:
        return None
    if rng.random() < 0.2 and path.parent != store:
        path = path.parent
    target = _strange_name(rng, path)
    if os.path.lexists(target):
        return None
    path.rename(target)
    return f"{_name(store, path)} to {target.name!a}"


def duplicate(rng: Random, store: Path) -> str | None:
    """Copy a file or directory to another name."""
    path = _pick(rng, store)
    if path is None:
        return None
    target = _strange_name(rng, path)
    if os.path.lexists(target):
        return None
    shutil.copy2(path, target)
    return f"{_name(store, path)} as {target.name!a}"


def delete(rng: Random, store: Path) -> str | None:
    """Delete a file or a whole directory."""
    path = _pick(rng, store)
    if path is None:
        return None
    if rng.random() < 0.2 and path.parent != store:
        shutil.rmtree(path.parent)
        return _name(store, path.parent)
    path.unlink()
    return _name(store, path)


def no_file(rng: Random, store: Path) -> str | None:
    """Replace a file by something that is not a regular file."""
    path = _pick(rng, store)
    if path is None or path.name == "lock":  # who takes the lock makes the file that a link leads to
        return None
    path.unlink()
    kind = rng.choice(("directory", "fifo", "link to itself", "dangling link"))
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(path.name if kind == "link to itself" else "nowhere")
    return f"{kind} {_name(store, path)}"


def edit_json(rng: Random, store: Path) -> str | None:
    """Change a value or key of a config file."""
    path = _config(rng, store)
    if path is None:
        return None
    data = path.read_bytes()
    try:
        value = loads(data, cycles=False)
        change = _edit(rng, value)
        new = dumps(value)
    except (FormatError, ValueError):
        return edit_text(rng, store)
    if change is None:
        return None
    path.write_bytes(new)
    return f"{change} in {_name(store, path)}"


def _config(rng: Random, store: Path) -> Path | None:
    files = [path for path in _files(store) if path.parent == store / "config"]
    return rng.choice(files) if files else None


def _edit(rng: Random, value: Any) -> str | None:
    """Change one part of a value."""
    places: list[tuple[Any, Any]] = []
    pending = [value] if isinstance(value, dict | list) else []
    while pending:
        container = pending.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            places.append((container, key))
            if isinstance(container[key], dict | list):
                pending.append(container[key])
    if not places:
        return None
    container, key = rng.choice(places)
    what = rng.choice(("set", "set", "delete", "rename"))
    if what == "set":
        number = container[key]
        near = [number + 1, number - 1, number * 1000, -number] if type(number) is int else []
        container[key] = rng.choice(near) if near and rng.random() < 0.5 else deepcopy(rng.choice(_VALUES))
    elif what == "delete" or isinstance(container, list):
        del container[key]
    else:
        container[rng.choice((-1, 7, 2**40, "", "x", "a@b", "\udcff", "CJK主题", "dataVersion"))] = container.pop(key)
    return f"{what} {key!a}"


def edit_text(rng: Random, store: Path) -> str | None:
    """Change a config file's text: cut it, append a stale end, repeat a part, or change a character."""
    path = _config(rng, store)
    if path is None:
        return None
    data = path.read_bytes()
    at, end = sorted((_at(rng, len(data)), _at(rng, len(data))))
    what = rng.choice(("cut", "zeros", "stale end", "twice", "gone", "sign", "number", "empty", "blank"))
    made = {
        "cut": data[:at],
        "zeros": bytes(len(data)),
        "stale end": data + data[at:],
        "twice": data[:end] + data[at:],
        "gone": data[:at] + data[end:],
        "sign": data[:at] + rng.choice(_SIGNS) + data[at:],
        "number": data[:at] + b"9" * rng.choice((1, 30, 700)) + data[at:],
        "empty": b"",
        "blank": b" \n",
    }[what]  # fmt: skip
    path.write_bytes(made)
    return f"{what} {at} {end} of {_name(store, path)}"


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "write": (write_bytes, 6),
    "flip": (flip, 4),
    "copy-bytes": (copy_bytes, 3),
    "insert": (insert, 2),
    "length": (other_length, 3),
    "swap": (swap, 1),
    "rename": (rename, 2),
    "duplicate": (duplicate, 2),
    "delete": (delete, 2),
    "no-file": (no_file, 1),
    "json": (edit_json, 5),
    "text": (edit_text, 4),
}
_NAMES = list(MUTATIONS)
_WEIGHTS = [weight for _, weight in MUTATIONS.values()]
_VERBS = sorted(VERBS)
