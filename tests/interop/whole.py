"""Real engines serve recovered stores completely: ``python -m tests.interop.whole --cases 100 --seed 1``.

Stores written by engines, and those of :mod:`tests.whole`, are damaged at random and recovered from the command line.
Then the engine of the release starts twice on each. It must serve exactly the messages of the log, each once at its
queue offset, find every key, and leave every file except the checkpoint unchanged.
"""

import argparse
import hashlib
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from random import Random
from typing import Any

from formats.message.properties import KEYS, UNIQ_KEY, parse
from formats.queues.consume import FILLER_SIZE
from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import plan
from tests import damage
from tests.cli.running import rmqtool
from tests.interop.differential.bases import make_bases as make_engine_bases
from tests.interop.engine import NEWEST, VERSIONS, Engine
from tests.store.advised import conf_file
from tests.whole import VERBS, Base, Entries, Outcome, damage_store, expected_entries, make_bases, move_directories

# With two files swapped the log has two messages for one queue offset; such queues stay as a broker makes them. Without
# any file recover refuses.
ALL_VERBS = {
    name: verb for name, verb in (VERBS | damage.VERBS).items() if name not in ("swap-log-files", "delete-log")
}
_UNSTEADY = ("abort", "abort.bak", "checkpoint", "lock", "delayOffset.json", "delayOffset.json.bak")
_MOST_HITS = 64  # that the judge asks for
_ROLLED_BACK = 12
MOST_PORT = 0xFFFF
_REFUSED = "refuses to load"
_TOLD = 12  # faults of a case

Key = tuple[str, str]  # topic, key
Queue = tuple[str, int]  # topic, queue id


def make_stores(folder: Path, engine: Engine) -> list[Base]:
    """Healthy stores for the engine of this release."""
    release = engine.version[:3]
    stores = [base for base in make_bases(folder / "golden") if release in base.engines]
    made = make_engine_bases(folder / "made", engine)
    return [*stores, *(Base(base.name, base.path, base.conf, (release,)) for base in made)]


def run_case(rng: Random, base: Base, folder: Path, engine: Engine, *, logs: bool = False) -> Outcome:
    """Damage a store, recover it, and check it with the engine.

    Args:
        logs: also damage the log.
    """
    store = folder / "store"
    shutil.copytree(base.path, store)
    outcome = Outcome([base.name, engine.version, *damage_store(rng, store, ALL_VERBS if logs else VERBS)])
    release = engine.version[:3]
    args = ["recover", store, "--yes", "--accept-loss", "--engine", release]
    args += ["--broker-conf", conf_file(base.conf, folder)]
    output = rmqtool(*args)
    if move_directories(store):  # as is advised
        output = rmqtool(*args)
    if _REFUSED in output.out:
        rmqtool("rebuild", store, "files", "--yes", *args[-2:])
        output = rmqtool(*args)
    if output.code > 1 or _REFUSED in output.out:
        outcome.faults.append(f"refused: {output.out}{output.err}")
    else:
        again = plan(StoreLayout(str(store), base.conf), release=RELEASES[release])
        warnings = [" ".join(output.out.split()), *again.warnings]
        if any("and cuts the log there" in warning for warning in warnings):
            outcome.done.append("named: damage that this recovery did not look at, and the next start does")
        else:
            deleted = {topic for note in again.notes for topic in re.findall("topic '(.*)' has neither settings", note)}
            outcome.faults += judge(store, base, engine, deleted)
    return outcome


def judge(store: Path, base: Base, engine: Engine, deleted: Set[str]) -> list[str]:
    """Faults of a recovered store according to an engine.

    Args:
        deleted: topics reported as deleted by recover.
    """
    layout = StoreLayout(str(store), base.conf)
    expected, keys, rotten = expected_entries(layout), keys_of(layout), rotten_of(layout)
    unreadable = unreadable_of(layout)
    # a queue whose offsets do not grow in the log stays as a broker makes it
    irregular = {key for key, messages in expected.items() if list(messages) != sorted(messages)}
    moved = moved_of(layout)
    irregular |= moved
    expected = {key: messages for key, messages in expected.items() if key[0] not in deleted}
    before = contents(store)
    seen = engine.open(store, base.conf.values | base.conf.sizes, keys=keys)
    if "error" in seen or not seen["loadOk"]:
        return [f"does not boot: {seen.get('error', 'load refused')}"]
    faults = [*wrong_ends(seen, expected, irregular), *wrong_entries(seen, expected, irregular, unreadable)]
    faults += wrong_hits(seen, keys, rotten, unreadable)
    first = contents(store)
    # a last message that no queue has is dispatched again at each start, and its keys are in the index twice then
    unsteady = ("index/", *(f"consumequeue/{topic}/{queue_id}/" for topic, queue_id in irregular))
    faults += [f"first start: {change}" for change in changed(before, first) if not change.startswith(unsteady)]
    again = engine.open(store, base.conf.values | base.conf.sizes, keys=keys)
    if "error" in again or not again["loadOk"]:
        return [*faults, f"does not boot again: {again.get('error', 'load refused')}"]
    faults += [f"second start: {fault}" for fault in wrong_entries(again, expected, irregular, unreadable)]
    faults += [f"second start: {fault}" for fault in wrong_hits(again, keys, rotten, unreadable)]
    second, steady = changed(first, contents(store)), () if moved else ("index/",)
    unsteady = tuple(name for name in unsteady if name not in steady)
    return faults + [f"second start: {warning}" for warning in second if not warning.startswith(unsteady)]


def keys_of(layout: StoreLayout) -> dict[Key, set[int]]:
    """Physical offsets, as stated in the records, of messages with a key."""
    result: dict[Key, set[int]] = {}
    for item in CommitLog(layout).walk():
        if isinstance(item, LocatedRecord) and item.record.sys_flag & 12 != _ROLLED_BACK:
            properties = parse(item.record.properties)
            for key in {*properties.get(KEYS, "").split(" "), properties.get(UNIQ_KEY, "")} - {""}:
                result.setdefault((item.record.topic.decode("utf-8", "replace"), key), set()).add(
                    item.record.physical_offset
                )
    return result


def wrong_ends(seen: dict[str, Any], expected: Entries, irregular: Set[Queue]) -> Iterator[str]:
    """Queues that do not end after their last message in the log."""
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in seen["afterStart"]["queues"]}
    for key, messages in expected.items():
        if key not in irregular and ends.get(key) != max(messages) + 1:
            yield f"{key} ends at {ends.get(key)}, its last message is {max(messages)}"


def wrong_entries(
    seen: dict[str, Any], expected: Entries, irregular: Set[Queue], unreadable: Set[int]
) -> Iterator[str]:
    """Queues that do not have exactly their messages of the log."""
    low = seen["afterStart"]["minPhyOffset"]
    served: Entries = {}
    for row in seen["messages"]:
        if row["cqPhysicalOffset"] >= low and row["cqSize"] != FILLER_SIZE:  # a broker fills a queue that begins late
            key = row["cqTopic"], row["cqQueueId"]
            served.setdefault(key, {})[row["cqOffset"]] = row["cqPhysicalOffset"]
            known = row["cqOffset"] in expected.get(key, {}) and row["cqPhysicalOffset"] not in unreadable
            if row["message"] is None and key not in irregular and known:
                yield f"{key} {row['cqOffset']}: leads to no message"
    for key in sorted((expected.keys() | served.keys()) - irregular):
        wanted, has = expected.get(key, {}), served.get(key, {})
        if wanted:  # where the log lacks a message between others, an entry may lead to what is left of it
            has = {
                offset: at for offset, at in has.items() if offset in wanted or not min(wanted) < offset < max(wanted)
            }
        if wanted != has:
            lost, more = wanted.items() - has.items(), has.items() - wanted.items()
            yield f"{key}: {len(lost)} lost, {len(more)} too many, of {len(wanted)}"


def moved_of(layout: StoreLayout) -> set[Queue]:
    """Queues with a record that states a wrong position: a start may take it for a new one."""
    located = (item for item in CommitLog(layout).walk(crc=False) if isinstance(item, LocatedRecord))
    return {
        (item.record.topic.decode("utf-8", "replace"), item.record.queue_id)
        for item in located
        if item.record.physical_offset != item.physical_offset
    }


def rotten_of(layout: StoreLayout) -> set[int]:
    """Positions of records with wrong body checksums, which may be kept."""
    located = (item.physical_offset for item in CommitLog(layout).walk(crc=False) if isinstance(item, LocatedRecord))
    return {*located} - {item.physical_offset for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)}


def unreadable_of(layout: StoreLayout) -> set[int]:
    """Positions of records with a port beyond 65,535: Java's decoder refuses the whole message."""
    return {
        item.physical_offset
        for item in CommitLog(layout).walk(crc=False)
        if isinstance(item, LocatedRecord) and max(item.record.born_port, item.record.store_port) > MOST_PORT
    }


def wrong_hits(
    seen: dict[str, Any], keys: dict[Key, set[int]], rotten: Set[int], unreadable: Set[int]
) -> Iterator[str]:
    """Keys for which not exactly their messages are found."""
    for row in seen["queries"]:
        has, hits = keys[row["topic"], row["key"]], row["physicalOffsets"]
        wanted = has - unreadable
        if hits is None or not set(hits) <= has | rotten or len(set(hits)) < min(len(wanted), _MOST_HITS):
            yield f"key {row['topic']}#{row['key']}: found {hits}, has {sorted(has)}"


def contents(store: Path) -> dict[str, str]:
    """Checksum of every file that a start must not change; RocksDB rewrites its files at each start."""
    return {
        str(path.relative_to(store)): hashlib.sha1(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name not in _UNSTEADY and not (path.parent / "CURRENT").exists()
    }


def changed(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """Descriptions of changed files."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            what = "is new" if name not in before else "is gone" if name not in after else "is changed"
            yield f"{name} {what}"


def run_cases(
    engine: Engine, bases: list[Base], seed: int, first: int, cases: int, folder: Path
) -> Iterator[tuple[int, Outcome]]:
    """(number, outcome) of each case; every third also has a damaged log."""
    for number in range(first, first + cases):
        rng, room = Random(f"{seed} {number}"), folder / "case"
        room.mkdir()
        yield number, run_case(rng, rng.choice(bases), room, engine, logs=number % 3 == 2)
        shutil.rmtree(room)


def main() -> int:
    """Run cases and print the results."""
    options = argparse.ArgumentParser(prog="python -m tests.interop.whole", description=__doc__)
    options.add_argument("--release", choices=(*VERSIONS, NEWEST), action="append", help="all unless given")
    options.add_argument("--cases", type=int, default=100, help="of each release")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--first", type=int, default=0, help="number of the first case")
    options.add_argument("--most", type=int, default=20, help="cases that are told in full")
    chosen = options.parse_args()
    failed = 0
    for release in chosen.release or (*VERSIONS, NEWEST):
        kinds, wrong = Counter[str](), 0
        with tempfile.TemporaryDirectory(prefix="rmqtool-whole-") as name, Engine(release) as engine:
            bases = make_stores(Path(name) / "bases", engine)
            for number, outcome in run_cases(engine, bases, chosen.seed, chosen.first, chosen.cases, Path(name)):
                if outcome.faults:
                    wrong += 1
                    kinds.update({re.sub(r"'.*?'|[0-9]+|#.*", "*", fault.splitlines()[0]) for fault in outcome.faults})
                    outcome.faults[_TOLD:] = ["..."] * (len(outcome.faults) > _TOLD)
                    if wrong <= chosen.most:
                        print(f"case {number}: {outcome}", flush=True)
        print(f"{release}: {chosen.cases - wrong} of {chosen.cases} are whole; {dict(kinds.most_common())}", flush=True)
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
