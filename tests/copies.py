"""``salvage`` of three damaged copies has every message that is whole in any of them; ``python -m tests.copies --cases
500``.

Three copies of a real broker's store get one to four damages each, in different places: flipped bits, zeros, garbage,
a log that ends early, a lost file. A program compares every record of the original with the bytes of each copy. What is
whole in any of them must be in the new store once, as it was; a body that no producer has sent must not be.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from formats.message.read import Record, read
from rmqtool.services.comparison.replicas import rank_copies
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.salvage.carve import Salvage
from tests import roles

CASES = (roles.SLAVE, roles.NEW_SLAVE, roles.CONTROLLER, roles.DLEDGER)
_NODES = {roles.SLAVE: "master", roles.NEW_SLAVE: "master", roles.CONTROLLER: "a", roles.DLEDGER: "n0"}
_COPIES = 3


class Piece(NamedTuple):
    """A record of the original: its file below the store, its place there, and what it says."""

    file: Path
    at: int
    raw: bytes
    record: Record


class Source(NamedTuple):
    """An original."""

    node: roles.Node
    pieces: list[Piece]


Identity = tuple[object, ...]


def identity(record: Record) -> Identity:
    """What makes a message, wherever it lies and whatever its queue offset."""
    return (
        record.topic, record.queue_id, record.body, record.properties, record.flag, record.sys_flag,
        record.born_timestamp, record.store_timestamp, record.born_address, record.reconsume_times,
    )  # fmt: skip


# -- damage -----------------------------------------------------------------------------------------------------------


def _files(pieces: list[Piece]) -> list[Path]:
    return sorted({piece.file for piece in pieces})


def _write(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def _somewhere(rng: Random, pieces: list[Piece]) -> tuple[Piece, int]:
    piece = rng.choice(pieces)
    return piece, piece.at + rng.randrange(len(piece.raw))


def flip(rng: Random, store: Path, pieces: list[Piece]) -> str:
    """Flip a bit."""
    piece, at = _somewhere(rng, pieces)
    data = (store / piece.file).read_bytes()[at]
    _write(store / piece.file, at, bytes([data ^ 1 << rng.randrange(8)]))
    return f"bit of byte {at} of {piece.file}"


def zero(rng: Random, store: Path, pieces: list[Piece]) -> str:
    """Zeros over a few bytes, or over several records."""
    piece, at = _somewhere(rng, pieces)
    size = min(rng.choice((4, 64, 512, 4096)), (store / piece.file).stat().st_size - at)
    _write(store / piece.file, at, bytes(size))
    return f"{size} zeros at {at} of {piece.file}"


def garble(rng: Random, store: Path, pieces: list[Piece]) -> str:
    """Garbage over a few bytes, or over several records."""
    piece, at = _somewhere(rng, pieces)
    size = min(rng.choice((1, 16, 300, 2000)), (store / piece.file).stat().st_size - at)
    _write(store / piece.file, at, rng.randbytes(size))
    return f"{size} bytes of garbage at {at} of {piece.file}"


def end_early(rng: Random, store: Path, pieces: list[Piece]) -> str:
    """A log that ends in the middle of a record, as a slave's that was killed."""
    piece, at = _somewhere(rng, pieces[len(pieces) // 2 :])
    for file in _files(pieces):
        size = (store / file).stat().st_size
        if file == piece.file:
            _write(store / file, at, bytes(size - at))
        elif file > piece.file:
            (store / file).unlink()
    return f"ends at byte {at} of {piece.file}"


def lose_file(rng: Random, store: Path, pieces: list[Piece]) -> str:
    """A lost file."""
    files = [file for file in _files(pieces) if (store / file).exists()]
    if len(files) < 2:
        return flip(rng, store, pieces)
    file = rng.choice(files)
    (store / file).unlink()
    return f"without {file}"


Verb = Callable[[Random, Path, list[Piece]], str]
VERBS: tuple[Verb, ...] = (flip, flip, zero, zero, garble, garble, end_early, lose_file)


def damage(rng: Random, store: Path, pieces: list[Piece]) -> list[str]:
    """Damage a copy one to four times."""
    done = []
    for _ in range(rng.randint(1, 4)):
        left = [piece for piece in pieces if (store / piece.file).exists()]
        done.append(rng.choice(VERBS)(rng, store, left) if left else "nothing is left")
    return done


# -- one case ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What became of a case: descriptions of what is wrong, and counts."""

    done: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


@cache
def source_of(case: str, folder: Path) -> Source:
    """A golden store and its records; it has no damage of its own."""
    (folder / case).mkdir()
    node = roles.unpack(case, _NODES[case], folder / case)
    log = CommitLog(StoreLayout(str(node.store), load(str(node.conf))))
    pieces = []
    for item in log.walk():
        assert isinstance(item, LocatedRecord), item
        raw = bytes(item.file.map()[item.at : item.at + item.record.total_size])
        pieces.append(Piece(Path(item.file.path).relative_to(node.store), item.at, raw, item.record))
    return Source(node, pieces)


def _whole(store: Path, pieces: list[Piece]) -> set[int]:
    """Numbers of the records that a copy has byte by byte."""
    whole: set[int] = set()
    contents: dict[Path, bytes] = {}
    for number, piece in enumerate(pieces):
        if piece.file not in contents:
            path = store / piece.file
            contents[piece.file] = path.read_bytes() if path.exists() else b""
        if contents[piece.file][piece.at : piece.at + len(piece.raw)] == piece.raw:
            whole.add(number)
    return whole


def run(seed: int, folder: Path, originals: Path) -> Outcome:
    """Run one case in an empty folder."""
    rng = Random(seed)
    source, outcome = source_of(CASES[seed % len(CASES)], originals), Outcome()
    layouts, whole = [], []
    for number in range(_COPIES):
        store = folder / f"copy-{number}"
        _copy(source.node.store, store)
        done = damage(rng, store, source.pieces)
        outcome.done.append(f"copy-{number}: {'; '.join(done)}")
        outcome.counts["damages"] += len(done)
        layouts.append(StoreLayout(str(store), load(str(source.node.conf))))
        whole.append(_whole(store, source.pieces))
    ranked = rank_copies(layouts, lambda _text: None)
    report = Salvage(ranked[0], str(folder / "new"), others=ranked[1:]).run()
    judge(source.pieces, whole, folder / "new", outcome)
    outcome.counts["kept as contradicting"] += report.contradictions
    return outcome


def _copy(store: Path, to: Path) -> None:
    """Copy a store with its holes."""
    shutil.copytree(store, to, copy_function=_copy_file)


def _copy_file(path: str, to: str) -> str:
    if Path(path).stat().st_size < 1 << 24:
        return str(shutil.copy2(path, to))
    with open(path, "rb") as file, open(to, "wb") as copy:  # the index of a DLedger log
        copy.write(file.read(1 << 16))
        copy.truncate(Path(path).stat().st_size)
    return to


def judge(pieces: list[Piece], whole: list[set[int]], new: Path, outcome: Outcome) -> None:
    """Compare a new store with the records that are whole in any copy.

    Args:
        whole: numbers of the records that each copy has.
        outcome: takes what is wrong.
    """
    anywhere = set.union(*whole)
    by_code: Counter[Identity] = Counter()
    bodies: Counter[bytes] = Counter()
    for item in CommitLog(StoreLayout(str(new))).walk():
        if not isinstance(item, LocatedRecord):
            outcome.wrong.append(f"damage in the new store: {item.reason}")
            continue
        by_code[identity(item.record)] += 1
        bodies[item.record.body] += 1
    wanted = Counter(identity(pieces[number].record) for number in anywhere)
    sent = Counter(piece.record.body for piece in pieces)
    kept = set(_kept(new))
    for key, number in (wanted - by_code).items():
        raw = next(piece.raw for piece in pieces if identity(piece.record) == key)
        if raw in kept:
            outcome.counts["in lost+found alone"] += number
        else:
            outcome.wrong.append(f"missing: {number} of {key[:2]} {key[3]!r}")
    for body, number in (bodies - sent).items():
        outcome.wrong.append(f"{number} with a body that was not sent, or doubled: {body[:60]!r}")
    known = {identity(piece.record) for piece in pieces}
    for key, number in (by_code - wanted).items():
        if key in known and key in wanted:
            outcome.wrong.append(f"doubled: {number} of {key[:2]} {key[3]!r}")
    outcome.counts["records"] += len(pieces)
    outcome.counts["whole in no copy"] += len(pieces) - len(anywhere)
    outcome.counts["whole in one copy alone"] += sum(
        sum(number in copy for copy in whole) == 1 for number in range(len(pieces))
    )


def _kept(new: Path) -> Iterator[bytes]:
    """The records in ``lost+found``."""
    manifest = new / "lost+found" / "manifest.json"
    for row in json.loads(manifest.read_text())["ranges"] if manifest.exists() else ():
        data = (new / row["copy"]).read_bytes()
        if isinstance(read(data, 0, len(data)), Record):
            yield data


def main(arguments: list[str]) -> int:
    """Run cases; returns 1 if any is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.copies", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", "--first", type=int, default=0, dest="first", help="of the first case")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as originals:
        for seed in range(options.first, options.first + options.cases):
            with tempfile.TemporaryDirectory() as folder:
                outcome = run(seed, Path(folder), Path(originals))
            counts += outcome.counts
            if outcome.wrong:
                wrong += 1
                print(f"case {seed} is wrong:", *outcome.done, *outcome.wrong[:8], sep="\n  ")
    print(f"{options.cases} cases, {wrong} wrong;", ", ".join(f"{number} {what}" for what, number in counts.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
