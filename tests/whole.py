"""``recover`` makes stores consistent after random damage next to an intact log; ``python -m tests.whole --cases
1000``.

Queues, index, checkpoint and settings of small stores are damaged one to three times, with and without ``abort``, and
recovered by the rules of one of the releases. Afterwards every message of the log must be in its queue once, at its
queue offset, ``check`` must be clean, and a second recovery must have nothing to do.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from formats.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, parse
from rmqtool.errors import RmqError
from rmqtool.rules.releases import RELEASES
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.salvage.carve import Salvage
from tests import damage, goldens
from tests.store.findings import check_store

ENGINES = tuple(RELEASES)
_SMALL = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400"}
_SMALL |= {"maxHashSlotNum": "16", "maxIndexNum": "200"}
_LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
# golden store → settings of the small store made from it
_MADE = {
    "clean": _SMALL,
    "broker": _SMALL | {"mappedFileSizeCommitLog": "65536"},
    "delay": _SMALL,
    "lmq": _SMALL | _LIGHT,
}
# what check names of offsets that are ahead of a log that has lost messages; recover leaves them as they are
_NAMED = ("check: offset-ahead", "check: delay-offset-ahead")
_AS_THEY_ARE = ("clean", "queue-ext", "compaction-5.3.3")


@dataclass(frozen=True)
class Base:
    """A healthy store."""

    name: str
    path: Path
    conf: BrokerConf
    engines: tuple[str, ...] = ENGINES


@dataclass
class Outcome:
    """The result for one damaged store; consistent if there are no faults."""

    done: list[str]
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n  ".join(["; ".join(self.done), *self.faults])


# -- damages ----------------------------------------------------------------------------------------------------------


def empty_last_queue_file(rng: Random, store: Path) -> str | None:
    """Leave a queue's last file created but unwritten, or without its units."""
    files = damage.queue_files(store)
    if not files:
        return None
    last = sorted(rng.choice(files).parent.iterdir())[-1]
    if rng.random() < 0.5 and last.name.isdecimal():
        last = last.with_name(f"{int(last.name) + last.stat().st_size:020d}")
        if last.exists():
            return None
        last.write_bytes(bytes(files[0].stat().st_size))
        return f"{last.parent.parent.name}/{last.parent.name}/{last.name} made"
    last.write_bytes(bytes(last.stat().st_size))
    return f"{last.parent.parent.name}/{last.parent.name}/{last.name} emptied"


def _intact_settings(rng: Random, store: Path) -> tuple[Path, bytes] | None:
    """A config file that is not torn yet."""
    names = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
    files = [path for name in names if (path := store / "config" / name).is_file()]
    files = [path for path in files if path.read_bytes().strip().endswith(b"}")]
    return (path := rng.choice(files), path.read_bytes()) if files else None


def lost_settings(rng: Random, store: Path) -> str | None:
    """Tear a config file without a .bak, or with a broken one."""
    if (chosen := _intact_settings(rng, store)) is None:
        return None
    path, data = chosen
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    if broken := rng.random() < 0.5:
        path.with_name(path.name + ".bak").write_bytes(data[: rng.randrange(len(data) - 2)])
    torn = data[: rng.randrange(len(data) - 2)]
    path.write_bytes(torn)
    return f"{path.name}: {len(torn)} of {len(data)} bytes, {'a broken' if broken else 'no'} .bak"


def broken_settings(rng: Random, store: Path) -> str | None:
    """Tear a config file that has an intact .bak."""
    if (chosen := _intact_settings(rng, store)) is None:
        return None
    path, data = chosen
    path.with_name(path.name + ".bak").write_bytes(data)
    torn = rng.choice((b"", data[: len(data) // 2], bytes(len(data))))
    path.write_bytes(torn)
    return f"{path.name}: {len(torn)} of {len(data)} bytes"


def log_file_length(rng: Random, store: Path) -> str | None:
    """Make a log file too long, or the last of several too short."""
    files = damage.log_files(store)
    if not files:
        return None
    path = rng.choice(files)
    size = path.stat().st_size
    new = rng.choice((size + 1, size + 20, 2 * size))
    if path == files[-1] and len(files) > 1:
        new = rng.choice((0, 1, size // 2, size - 1, new))
    with path.open("r+b") as file:
        file.truncate(new)
    return f"{path.name} from {size} to {new} bytes"


VERBS: dict[str, damage.Verb] = {
    name: damage.VERBS[name]
    for name in (
        "zero-units", "filler-units", "other-units", "garbage-units", "lose-queue-tail", "lose-tails-of-all-queues",
        "stale-units", "flip-queue-bits", "delete-queue-file", "delete-first-queue-files", "delete-queue",
        "delete-topic", "delete-queues", "wrong-queue-length", "foreign-queue-file", "extra-queue-file",
        "swap-queue-files", "delete-index-file", "delete-index", "other-index-header", "zero-index-header",
        "zero-index-range", "flip-index-bits", "wrong-index-length", "delete-checkpoint", "zero-checkpoint",
        "other-checkpoint", "foreign-log-file",
    )
} | {
    "empty-last-queue-file": empty_last_queue_file, "broken-settings": broken_settings,
    "lost-settings": lost_settings, "log-file-length": log_file_length,
}  # fmt: skip


# -- stores -----------------------------------------------------------------------------------------------------------


def make_bases(folder: Path) -> list[Base]:
    """All bases: rebuilt with small files, as engines left them, and one with expired first files."""
    made = []
    for case, values in _MADE.items():
        source = goldens.unpack(case, folder / f"{case}-from")
        path, small = folder / f"{case}-small", BrokerConf(dict(values))
        Salvage(StoreLayout(str(source), small), str(path)).run()
        shutil.rmtree(path / "lost+found", ignore_errors=True)
        made.append(Base(f"{case}-small", path, small))
    for case in _AS_THEY_ARE:
        conf = BrokerConf({name: str(value) for name, value in goldens.about(case)["config"].items()})
        engines = ENGINES[1:] if case.endswith("5.3.3") else ENGINES
        made.append(Base(case, goldens.unpack(case, folder / case), conf, engines))
    made.append(_expired(made[0], folder / "expired"))
    return made


def _expired(base: Base, path: Path) -> Base:
    """The base after a broker has deleted the first half of the log, and what is not needed then."""
    shutil.copytree(base.path, path)
    files = damage.log_files(path)
    low = int(files[len(files) // 2].name)
    for file in files[: len(files) // 2]:
        file.unlink()
    for file in damage.queue_files(path):
        units = [file.read_bytes()[at : at + 8] for at in range(0, file.stat().st_size, 20)]
        if (
            len(list(file.parent.iterdir())) > 1
            and all(0 <= int.from_bytes(u, "big") < low for u in units)
            and any(map(any, units))
        ):
            file.unlink()
    for file in damage.index_files(path):
        if 0 < int.from_bytes(file.read_bytes()[24:32], "big") < low:
            file.unlink()
    return Base("expired", path, base.conf)


# -- cases ------------------------------------------------------------------------------------------------------------


def damage_store(rng: Random, store: Path, verbs: dict[str, damage.Verb]) -> list[str]:
    """Damage a store one to three times, with or without ``abort``; returns descriptions."""
    done = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(verbs))
        if change := verbs[name](rng, store):
            done.append(f"{name}: {change}")
    if rng.random() < 0.5:
        (store / "abort").touch()
        done.append("abort")
    return done


def run_case(rng: Random, base: Base, store: Path, verbs: dict[str, damage.Verb] = VERBS) -> Outcome:
    """Copy a store to an unused path, damage, recover and check it."""
    shutil.copytree(base.path, store)
    engine = rng.choice(base.engines)
    outcome = Outcome([base.name, engine, *damage_store(rng, store, verbs)])
    try:
        report = recover(StoreLayout(str(store), base.conf), release=RELEASES[engine])
    except RmqError as err:
        outcome.faults.append(f"refused: {err}")
        return outcome
    if report.refusals and move_directories(store):  # as advised; they contain nothing of a store
        outcome.done.append("what is foreign is moved away")
        report = recover(StoreLayout(str(store), base.conf), release=RELEASES[engine])
    outcome.faults += [f"refused: {why}" for why in report.refusals]
    if not report.refusals:
        move_directories(store)  # 5.3 passes over them
        faults = faults_of(store, base.conf, engine)
        if messages_of(store, base) < messages_of(base.path, base):  # a file of the log was cut short
            faults = [fault for fault in faults if not fault.startswith(_NAMED)]
        outcome.faults += faults
    return outcome


def messages_of(store: Path, base: Base) -> int:
    """How many entries the queues of a store must have."""
    return sum(map(len, expected_entries(StoreLayout(str(store), base.conf)).values()))


def move_directories(store: Path) -> bool:
    """Move away directories among the files of a queue or of the log."""
    places = (*store.glob("consumequeue/*/*/*"), *store.glob("commitlog/*"))
    paths = [path for path in places if path.is_dir()]
    for path in paths:
        path.rmdir()
    return bool(paths)


def faults_of(store: Path, conf: BrokerConf, engine: str) -> list[str]:
    """Reasons why a store is inconsistent."""
    layout = StoreLayout(str(store), conf)
    result = [f"check: {words(finding)}" for finding in check_store(layout) if is_problem(finding)]
    result += [f"entries: {fault}" for fault in wrong_entries(StoreLayout(str(store), conf))]
    again = plan(StoreLayout(str(store), conf), release=RELEASES[engine])
    if not again.clean:
        result.append(f"again: {'; '.join([*again.refusals, *again.actions])}")
    return result


def words(finding: Finding) -> str:
    """A finding on one line."""
    return f"{finding.code} {finding.file} {finding.actual}"


Entries = dict[tuple[str, int], dict[int, int]]
"""Queue → queue offset → physical offset."""


def expected_entries(layout: StoreLayout) -> Entries:
    """The entries that the queues must have according to the log."""
    expected: Entries = {}
    for item in CommitLog(layout).walk():
        if not isinstance(item, LocatedRecord) or item.record.sys_flag & 12 in (4, 12):
            continue
        record = item.record
        topic = record.topic.decode("utf-8", "replace")
        expected.setdefault((topic, record.queue_id), {})[record.queue_offset] = item.physical_offset
        properties = parse(record.properties)
        if layout.conf.flag("enableMultiDispatch", False) and MULTI_DISPATCH in properties:
            names, offsets = properties[MULTI_DISPATCH].split(","), properties[MULTI_QUEUE_OFFSET].split(",")
            for name, offset in zip(names, offsets, strict=True):
                queue_id = 0 if name.startswith("%LMQ%") else record.queue_id
                expected.setdefault((name, queue_id), {})[int(offset)] = item.physical_offset
    return expected


def wrong_entries(layout: StoreLayout) -> Iterator[str]:
    """Queues that do not have each message of the log exactly once, at its queue offset."""
    low_of_log, expected = CommitLog(layout).min_offset, expected_entries(layout)
    for queue in every_queue(layout):
        wanted = expected.pop((queue.topic, queue.queue_id), {})
        low = queue.min_offset(low_of_log)
        has = {entry.queue_offset: entry.physical_offset for entry in queue.entries(low)}
        has = {offset: physical for offset, physical in has.items() if physical >= low_of_log}
        if has != wanted:
            lost, more = wanted.items() - has.items(), has.items() - wanted.items()
            yield f"{queue.topic} {queue.queue_id}: {len(lost)} lost, {len(more)} too many, of {len(wanted)}"
    yield from (f"{topic} {queue_id}: no queue" for topic, queue_id in expected)


def run_cases(
    seed: int, first: int, cases: int, folder: Path, engine: str | None = None
) -> Iterator[tuple[int, Outcome]]:
    """(number, outcome) of each case; a case depends only on the seed and its number.

    Args:
        engine: the release whose rules are used for all.
    """
    bases = make_bases(folder / "bases")
    if engine is not None:
        bases = [replace(base, engines=(engine,)) for base in bases if engine in base.engines]
    for number in range(first, first + cases):
        rng = Random(f"{seed} {number}")
        store = folder / "store"
        yield number, run_case(rng, rng.choice(bases), store)
        for path in (store, Path(f"{store}.rmqtool")):
            shutil.rmtree(path, ignore_errors=True)


def main() -> int:
    """Run cases and print the results."""
    options = argparse.ArgumentParser(prog="python -m tests.whole", description=__doc__)
    options.add_argument("--cases", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--first", type=int, default=0, help="number of the first case")
    options.add_argument("--engine", choices=ENGINES, help="by whose rules; any unless given")
    options.add_argument("--most", type=int, default=20, help="cases that are told in full")
    chosen = options.parse_args()
    failed, kinds = 0, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="rmqtool-whole-") as folder:
        for number, outcome in run_cases(chosen.seed, chosen.first, chosen.cases, Path(folder), chosen.engine):
            if outcome.faults:
                failed += 1
                kinds.update({" ".join(fault.split()[:2]) for fault in outcome.faults})
                if failed <= chosen.most:
                    print(f"case {number}: {outcome}")
    print(f"{chosen.cases - failed} of {chosen.cases} stores are whole; {dict(kinds.most_common())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
