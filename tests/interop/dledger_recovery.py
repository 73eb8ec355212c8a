"""DLedger logs, damaged, planned by ``recover --dry-run``, and recovered by the DLedger library.

The library's store loads and recovers a copy; what it then says of its log, and what is on disk, has to be what the
plan told. As a program it damages logs at random, so many times, from a seed on:

    python -m tests.interop.dledger_recovery --cases 200 --seed 1 --release 5.5.0

4.9.8 and 5.3.3 have DLedger 0.3.1.2, 5.5.0 has 0.3.2.
"""

import argparse
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from formats.layouts.derived import DLEDGER_INDEX_UNIT
from formats.variants.dledger import DLedgerEntry, read_entry
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.recovery.dledger.command import plan_dledger
from rmqtool.store.recovery.dledger.member import MemberRefused, judge_member
from rmqtool.store.recovery.report import RecoveryReport
from tests import roles
from tests.interop.engine import Engine

MEMBERS = [(roles.OLD_DLEDGER, "n0"), (roles.DLEDGER, "n0"), (roles.DLEDGER, "n2")]
UNIT = DLEDGER_INDEX_UNIT.size
_FIELDS = {  # byte and length of the fields of an entry's header, and of a unit of the index
    "magic": (0, 4), "size": (4, 4), "index": (8, 8), "term": (16, 8), "pos": (24, 8), "body size": (44, 4),
}  # fmt: skip
_UNIT_FIELDS = {"magic": (0, 4), "pos": (4, 8), "size": (12, 4), "index": (16, 8), "term": (24, 8)}


class Member(NamedTuple):
    """A copy of a member's directory that is damaged."""

    folder: Path  # dledger-ID
    file_size: int

    @property
    def data(self) -> list[Path]:
        """Files of its entries."""
        return sorted(path for path in (self.folder / "data").iterdir() if path.name.isdigit())

    @property
    def index(self) -> list[Path]:
        """Files of its index."""
        return sorted(path for path in (self.folder / "index").glob("*") if path.name.isdigit())


def entries_in(path: Path) -> list[int]:
    """Bytes at which entries of a file begin."""
    content, at, places = path.read_bytes(), 0, []
    while isinstance(entry := read_entry(content, at, len(content)), DLedgerEntry):
        places.append(at)
        at += entry.size
    return places


def write(path: Path, at: int, what: bytes) -> str:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(what)
    return f"{len(what)} bytes at {at} of {path.name}"


def flip(rng: Random, path: Path, at: int, size: int) -> str:
    with path.open("rb") as file:
        file.seek(at)
        content = bytearray(file.read(size))
    if not content:
        return ""
    byte = rng.randrange(len(content))
    content[byte] ^= 1 << rng.randrange(8)
    return write(path, at, bytes(content))


def set_field(rng: Random, path: Path, at: int, size: int, near: int) -> str:
    value = rng.choice((0, 1, -1, near, near + 1, rng.getrandbits(31), -(1 << (8 * size - 1)), 5_242_880))
    return write(path, at, value.to_bytes(8, "big", signed=True)[-size:])


def spoil_entry(rng: Random, member: Member) -> str:
    """A field of an entry's header is another."""
    path = rng.choice(member.data)
    if not (places := entries_in(path)):
        return ""
    at = rng.choice([places[0], places[-1], rng.choice(places)])
    name, (field, size) = rng.choice(list(_FIELDS.items()))
    change = flip(rng, path, at + field, size) if rng.random() < 0.6 else set_field(rng, path, at + field, size, at)
    return f"{name} of an entry: {change}"


def spoil_bytes(rng: Random, member: Member) -> str:
    """Zeros or garbage over a range."""
    path = rng.choice(member.data)
    at, size = rng.randrange(member.file_size), rng.choice((1, 8, 48, 500, 9000))
    size = min(size, member.file_size - at)
    return write(path, at, rng.choice((bytes(size), rng.randbytes(size))))


def lose_tail(rng: Random, member: Member) -> str:
    """The end of the newest files was never written."""
    path = rng.choice(member.data[-2:])
    at = rng.choice([rng.randrange(member.file_size), *entries_in(path)[-3:]])
    return write(path, at, bytes(member.file_size - at))


def blank_early(rng: Random, member: Member) -> str:
    """A file ends before its last entries."""
    path = rng.choice(member.data)
    if not (places := entries_in(path)):
        return ""
    at = rng.choice(places)
    return "blank: " + write(path, at, struct.pack(">ii", -1, member.file_size - at))


def stale_behind(rng: Random, member: Member) -> str:
    """Old entries behind the end."""
    path = member.data[-1]
    content, places = path.read_bytes(), entries_in(path)
    if not places:
        return ""
    end = places[-1] + int.from_bytes(content[places[-1] + 4 : places[-1] + 8], "big")
    old = content[places[0] : places[-1]][: member.file_size - end]
    return "stale: " + write(path, end, old[: rng.randrange(len(old) + 1)])


def delete_data(rng: Random, member: Member) -> str:
    files = member.data
    if not files:
        return ""
    for path in rng.choice((files[:1], files[-1:], files[-2:], files[:2], [rng.choice(files)])):
        path.unlink()
    return f"{len(files) - len(member.data)} data files deleted"


def more_data(rng: Random, member: Member) -> str:
    """A file more at the end, empty or with the blank of one that is full."""
    last = int(member.data[-1].name) if member.data else -member.file_size
    path = member.folder / "data" / f"{last + member.file_size:020d}"
    path.write_bytes(rng.choice((bytes(member.file_size), struct.pack(">ii", -1, 9) + bytes(member.file_size - 8))))
    return f"{path.name} made"


def swap_data(rng: Random, member: Member) -> str:
    files = member.data
    if len(files) < 2:
        return ""
    first, second = rng.sample(files, 2)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    return f"{first.name} and {second.name} swapped"


def other_length(rng: Random, member: Member) -> str:
    path = rng.choice([*member.data, *member.index])
    size = path.stat().st_size + rng.choice((-1, 1, -4096))
    with path.open("r+b") as file:
        file.truncate(max(size, 0))
    return f"{path.parent.name}/{path.name} has {size} bytes"


def foreign_file(rng: Random, member: Member) -> str:
    folder = member.folder / rng.choice(("data", "index"))
    folder.mkdir(exist_ok=True)
    (folder / "notes.txt").write_bytes(bytes(rng.choice((0, 5, member.file_size))))
    return f"{folder.name}/notes.txt"


def spoil_index(rng: Random, member: Member) -> str:
    """Units are wrong, or were never written."""
    if not member.index:
        return ""
    path, number = member.index[0], rng.randrange(400)
    if rng.random() < 0.5:
        name, (field, size) = rng.choice(list(_UNIT_FIELDS.items()))
        return f"{name} of unit {number}: {flip(rng, path, number * UNIT + field, size)}"
    return "units: " + write(path, number * UNIT, bytes(UNIT * rng.randint(1, 100)))


def delete_index(rng: Random, member: Member) -> str:
    for path in member.index:
        path.unlink()
    if rng.random() < 0.5:
        shutil.rmtree(member.folder / "index", ignore_errors=True)
    return "no index"


def other_checkpoint(rng: Random, member: Member) -> str:
    path = member.folder / "checkpoint"
    verb = rng.choice(("delete", "value", "value", "flip", "text"))
    if verb == "delete":
        path.unlink(missing_ok=True)
    elif verb == "flip" and path.exists() and path.stat().st_size:
        flip(rng, path, 0, path.stat().st_size)
    else:
        value = rng.choice((0, 5, -1, -2, rng.randrange(400), 10**6, 2**63))
        text = f"committedIndex={value}\nendIndex={value}\n"
        path.write_text(text if verb == "value" else rng.choice(("", "committedIndex=\n", "committedIndex=+7\n", "x")))
    return f"checkpoint: {verb}"


VERBS: dict[str, Callable[[Random, Member], str]] = {
    verb.__name__: verb
    for verb in (
        spoil_entry, spoil_bytes, lose_tail, blank_early, stale_behind, delete_data, more_data, swap_data, other_length,
        foreign_file, spoil_index, delete_index, other_checkpoint,
    )
}  # fmt: skip
OFTEN = ("spoil_entry", "spoil_entry", "spoil_bytes", "lose_tail", "spoil_index")


def copy(store: Path, to: Path) -> None:
    """A member's directory; its index is 160 MiB of holes."""
    subprocess.run(["cp", "-a", "--sparse=always", store, to], check=True)


def hold_against(engine: Engine, node: roles.Node, damaged: Callable[[Member], object], folder: Path) -> RecoveryReport:
    """Damage a copy, plan, let the library recover it, compare."""
    conf, store = load(str(node.conf)), folder / "store"
    folder.mkdir(parents=True)
    copy(node.store, store)
    (ledger,) = store.glob("dledger-*")
    size = conf.sizes["mappedFileSizeCommitLog"]
    damaged(Member(ledger, size))
    layout = StoreLayout(str(store), conf)
    before = roles.prints(store)
    report = plan_dledger(layout)
    assert roles.prints(store) == before
    log = DLedgerLog.of(layout)[0]
    try:
        verdict = judge_member(log, size)
    except MemberRefused:
        verdict = None
    assert report.loadOk is (verdict is not None)
    settings = {"dLegerSelfId": ledger.name.removeprefix("dledger-"), "mappedFileSizeCommitLog": size}
    answer = engine.dledger(store, settings)
    same(f"whether it starts ({report.refusals}, {answer})", report.loadOk, "error" not in answer)
    if verdict is None or report.dledger is None:
        assert report.refusals
        assert report.nextSteps
        return report
    for name in ("beginIndex", "endIndex", "endTerm", "committedIndex", "committedPosition"):
        same(name, getattr(report.dledger, name), answer[name])
    files, end = log.data.files, report.dledger.endPosition
    stay = [Path(file.path).name for file in files if file not in verdict.removed]
    same("data files", stay, [path.name for path in Member(ledger, size).data])
    # a library that has a full last file says its end as the end of files
    same("end", end if files else 0, answer["end"])
    same("the end of the index", verdict.index.end, answer["indexEnd"])
    now = {file.name: file for file in Member(ledger, size).index}
    same("index files", sorted(f"{file.base:020d}" for file in verdict.index.files), sorted(now))
    for offset, unit in verdict.index.units():
        file = next(file for file in verdict.index.files if file.base <= offset < file.base + file.written)
        with now[f"{file.base:020d}"].open("rb") as stream:
            stream.seek(offset - file.base)
            same(f"unit {offset // UNIT}", DLEDGER_INDEX_UNIT.pack(*unit), stream.read(UNIT))
    return report


def same(name: str, mine: object, engine: object) -> None:
    """What the plan says is what the library does."""
    if mine != engine:
        raise AssertionError(f"{name}: the plan says {mine}, the library {engine}")


def at_random(seed: int, nodes: list[roles.Node], engine: Engine, folder: Path) -> bool:
    """One log, damaged one to three times; whether the member starts."""
    rng = Random(seed)
    done: list[str] = []
    first = list(VERBS)[seed % len(VERBS)]

    def damaged(member: Member) -> None:
        verbs = [first, *(rng.choice((*VERBS, *OFTEN)) for _ in range(rng.choice((0, 1, 2))))]
        done.extend(f"{verb}: {VERBS[verb](rng, member)}" for verb in verbs if member.data)

    try:
        report = hold_against(engine, rng.choice(nodes), damaged, folder)
    except Exception as err:
        raise AssertionError(f"seed {seed}, {folder}: {done}\n{type(err).__name__}: {err}") from err
    shutil.rmtree(folder)
    return report.loadOk


def main(count: int, seed: int, release: str) -> int:
    """So many random cases; the number of those that failed."""
    folder, failed, started = Path(tempfile.mkdtemp(prefix="rmqtool-dledger-")), 0, 0
    nodes = [roles.unpack(case, node, folder / f"{case}-{node}") for case, node in MEMBERS]
    with Engine(release) as engine:
        for number in range(seed, seed + count):
            try:
                started += at_random(number, nodes, engine, folder / str(number))
            except AssertionError as err:
                failed += 1
                print(str(err)[:2000], flush=True)
    print(f"{release}, seed {seed}: {count} cases, {failed} failed, {started} start")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--release", choices=("4.9.8", "5.3.3", "5.5.0"), default="5.5.0")
    given = parser.parse_args()
    sys.exit(1 if main(given.cases, given.seed, given.release) else 0)
