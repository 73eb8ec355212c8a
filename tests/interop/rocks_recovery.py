"""Damaged RocksDB stores, planned by ``recover --dry-run``, and opened by the real engine.

The engine loads and starts a copy; the log and queues that it reports, and the database afterwards, must match the
plan. Run as a program, it damages stores at random, from a seed; some have more than the ten files that 5.5 examines:

    python -m tests.interop.rocks_recovery --cases 200 --seed 1 --release 5.5.0
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from formats.queues import rocks as codec
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.recovery.rocks.command import plan_rocks
from tests import damage, rocks
from tests.interop.engine import Engine
from tests.rocks import Families, build_offset
from tests.store.helpers import tree

FILE_SIZE = 16384
_CASES_OF_A_STORE = 10
CONFIG = {
    "storeType": "defaultRocksDB", "mappedFileSizeCommitLog": FILE_SIZE, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "enableLmq": True,
}  # fmt: skip
_SETTINGS: dict[str, tuple[Any, ...]] = {  # of 5.4 and later, in some of the stores
    "commitLogRecoverMaxNum": (3, 20),
    "messageIndexSafe": (True,),
    "enableAcceleratedRecovery": (True,),
}
TOPICS = ("A", "B", "Wide")


def messages(count: int) -> list[dict[str, Any]]:
    result = []
    for number in range(count):
        topic = TOPICS[number % 3]
        queue = number % 4 if topic == "Wide" else number % 2
        message: dict[str, Any] = {"topic": topic, "queueId": queue, "tags": f"t{number % 3}", "keys": f"k{number}"}
        message |= {"body": b"%d " % number * (20 + number % 30), "bornTimestamp": 1_700_000_000_000 + number}
        if number % 11 == 0:
            message |= {"topic": "A", "delayLevel": 3}
        if number % 13 == 0:
            message["sysFlag"] = 4  # a half message: no queue gets it
        if number % 17 == 0:
            message["properties"] = {"INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y"}
        result.append(message)
    return result


class Seen(NamedTuple):
    """The content of a database."""

    units: dict[tuple[str, int, int], Any]
    ends: dict[tuple[str, int], codec.RocksOffset]
    built: int


def seen_in(folder: Path) -> Seen:
    families = rocks.content(folder) if (folder / "CURRENT").exists() else {}
    units = {
        tuple(codec.parse_unit_key(key)): codec.parse_unit(value)
        for key, value in families.get(codec.UNITS, {}).items()
    }
    ends, built = {}, 0
    for key, value in families.get(codec.OFFSETS, {}).items():
        if key == codec.CHECKPOINT_KEY:
            built = codec.parse_built(value)
            continue
        name = codec.parse_offset_key(key)
        if name.bound == codec.MAX:
            ends[name.topic, name.queue_id] = codec.parse_offset(value)
    return Seen(units, ends, built)


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def spoil(number: int, at: int) -> Callable[[Path], None]:
    """Change a byte of a log file."""

    def do(store: Path) -> None:
        path = log_files(store)[number]
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    return do


def zero_from(number: int, at: int) -> Callable[[Path], None]:
    def do(store: Path) -> None:
        path = log_files(store)[number]
        data = path.read_bytes()
        path.write_bytes(data[:at] + bytes(len(data) - at))

    return do


def in_database(what: Callable[[Families], Any]) -> Callable[[Path], None]:
    return lambda store: rocks.change(store / "consumequeue", what)


def drop_units(topic: str) -> Callable[[Path], None]:
    def do(families: Families) -> None:
        for key in [key for key in families[codec.UNITS] if codec.parse_unit_key(key).topic == topic]:
            del families[codec.UNITS][key]

    return in_database(do)


def drop_units_of(folder: Path, topic: str) -> None:
    """Delete all units of a topic but the first of each queue; queue files may lie in the same directory."""
    beside = folder.with_name(f"{folder.name}-beside")
    beside.mkdir()
    for path in list(folder.iterdir()):
        if path.is_dir():
            path.rename(beside / path.name)

    def do(families: Families) -> None:
        for key in list(families[codec.UNITS]):
            unit = codec.parse_unit_key(key)
            if unit.topic == topic and unit.queue_offset:
                del families[codec.UNITS][key]

    rocks.change(folder, do)
    for path in list(beside.iterdir()):
        path.rename(folder / path.name)
    beside.rmdir()


def built(value: int) -> Callable[[Path], None]:
    return in_database(lambda f: f[codec.OFFSETS].update({codec.CHECKPOINT_KEY: value.to_bytes(8, "big")}))


def bound(which: bytes, physical: int, queue_offset: int) -> Callable[[Path], None]:
    value = build_offset(codec.RocksOffset(physical, queue_offset))
    return in_database(lambda f: f[codec.OFFSETS].update({codec.offset_key("B", 1, which): value}))


def without(part: str) -> Callable[[Path], None]:
    def do(store: Path) -> None:
        path = store / part
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    return do


def both(*parts: Callable[[Path], None]) -> Callable[[Path], None]:
    def do(store: Path) -> None:
        for part in parts:
            part(store)

    return do


def remove_log(*numbers: int) -> Callable[[Path], None]:
    def do(store: Path) -> None:
        files = log_files(store)
        for number in numbers:
            files[number].unlink()

    return do


def short_table(store: Path) -> None:
    table = max((store / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    table.write_bytes(table.read_bytes()[:-20])


def cut_file(store: Path) -> None:
    log_files(store)[-1].write_bytes(b"x" * 100)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "none": lambda store: None,
    "a body in the last file": spoil(-1, 200),
    "the magic of the first record of the last file": spoil(-1, 5),
    "a body in the file before": spoil(-2, 700),
    "a body in the first file": spoil(0, 700),
    "the end of the last file was never written": zero_from(-1, 600),
    "all of the last file was never written": zero_from(-1, 0),
    "two files were never written": both(zero_from(-1, 0), zero_from(-2, 3000)),
    "the last file is gone": remove_log(-1),
    "the last two files are gone": remove_log(-1, -2),
    "the first file is gone": remove_log(0),
    "the first two files are gone": remove_log(0, 1),
    "only the last file is there": remove_log(0, 1, 2),
    "no log": lambda store: [path.unlink() for path in log_files(store)],
    "a short log file": cut_file,
    "the database begins late": built(20_000),
    "the database begins at nothing": built(0),
    "the database ends behind the log": built(1 << 40),
    "no note of the end": in_database(lambda f: f[codec.OFFSETS].pop(codec.CHECKPOINT_KEY)),
    "a short note of the end": in_database(lambda f: f[codec.OFFSETS].update({codec.CHECKPOINT_KEY: b"\0\0"})),
    "units of a topic are gone, and the end of the log": both(drop_units("B"), zero_from(-1, 600)),
    "units of a topic are gone, and half of the log": both(drop_units("Wide"), zero_from(-2, 0), zero_from(-1, 0)),
    "an end too high, and the log is cut": both(bound(codec.MAX, 1 << 30, 500), zero_from(-1, 600)),
    "an end too low": bound(codec.MAX, 0, 2),
    "a beginning too high, and the log is cut": both(bound(codec.MIN, 1 << 30, 20), zero_from(-2, 0), zero_from(-1, 0)),
    "a torn table": short_table,
    "no database": without("consumequeue"),
    "no beginning of the database": without("consumequeue/CURRENT"),
    "only tables of the database": lambda store: [
        path.unlink() for path in (store / "consumequeue").iterdir() if path.suffix != ".sst"
    ],
    "an empty database": in_database(lambda f: [family.clear() for family in f.values()]),
}  # fmt: skip


def conf_of(config: dict[str, Any]) -> BrokerConf:
    """The settings for rmqtool."""
    return BrokerConf(
        {name: str(value) if isinstance(value, str) else str(value).lower() for name, value in config.items()}
    )


def hold_against(
    engine: Engine, store: Path, damaged: Callable[[Path], Any], folder: Path, config: dict[str, Any] = CONFIG
) -> RecoveryReport:
    """Damage a copy, plan, let the engine recover another copy, and compare."""
    mine, judged = folder / "mine", folder / "judged"
    shutil.copytree(store, mine)
    damaged(mine)
    shutil.copytree(mine, judged)
    before = tree(mine)
    report = plan_rocks(StoreLayout(str(mine), conf_of(config)))
    assert tree(mine) == before
    answer = engine.open(judged, config, messages=False)
    same("load", report.loadOk, answer.get("loadOk"))
    if not report.loadOk:
        assert report.refusals
        assert report.nextSteps
        return report
    assert "error" not in answer, answer
    was, now = seen_in(mine / "consumequeue"), seen_in(judged / "consumequeue")
    end = report.afterLoad.maxPhyOffset
    # which of two threads of the engine is first decides what becomes of these, and we say so
    may_stay = {key for key, last in was.ends.items() if last.physical_offset >= end}
    if not (report.abort and any("may leave it" in warning for warning in report.warnings)):
        may_stay = set()
    for moment in ("afterLoad", "afterStart"):
        mine_says, engine_says = report.to_dict()[moment], answer[moment]
        for name in ("minPhyOffset", "maxPhyOffset"):
            same(f"{name} {moment}", mine_says[name], engine_says[name])
        same(f"queues {moment}", queues(mine_says, may_stay), queues(engine_says, may_stay))
    put: dict[tuple[str, int], int] = {}
    for (topic, queue_id, offset), unit in now.units.items():
        if was.units.get((topic, queue_id, offset)) != unit:
            put[topic, queue_id] = put.get((topic, queue_id), 0) + 1
    same("units", {(q.topic, q.queueId): q.entriesAdded for q in report.queues if q.entriesAdded}, put)
    ends = {(q.topic, q.queueId): q.maxOffset for q in report.afterLoad.queues}
    for key, last in now.ends.items():
        if key not in may_stay:
            same(f"the end of {key}", ends[key], last.queue_offset + 1)
    changed = was.built != now.built or bool(put) or was.ends != now.ends or (mine / "abort").exists()
    assert report.actions or not changed
    noted = f"note in consumequeue that queues have the log up to {now.built}" in report.actions
    same(f"the note of the end, {was.built} to {now.built}", noted, now.built != was.built)
    return report


def same(name: str, mine: object, engine: object) -> None:
    """Check that the engine does what the plan says."""
    if mine != engine:
        raise AssertionError(f"{name}: the plan says\n  {mine}\nand the engine\n  {engine}")


def queues(state: dict[str, Any], without: set[tuple[str, int]]) -> list[tuple[Any, ...]]:
    """All queues of a state except these."""
    rows = sorted(tuple(row.values()) for row in state["queues"])
    return [row for row in rows if row[:2] not in without]


def stopped_store(engine: Engine, store: Path, count: int = 220) -> None:
    """A store with at least four log files, cleanly stopped."""
    answer = engine.write(store, messages(count), CONFIG)
    assert "error" not in answer, answer
    assert len(log_files(store)) >= 4


def killed_store(engine: Engine, stopped: Path, store: Path) -> None:
    """The same store, continued and then killed: the database lacks the last messages."""
    shutil.copytree(stopped, store)
    answer = engine.write(store, messages(60), CONFIG, kill=True)
    assert "error" not in answer, answer


OTHERS = {"queue", "queues", "units", "topic", "physicalOffset"}
# What random damage does to a store; others of tests.damage concern queues in files. A record that claims another
# position moves the note of the end, and by how much depends on which messages the broker happens to put together.
VERBS = [verb for verb in damage.VERBS if not OTHERS & {*verb.split("-")}]


def spoil_database(rng: Random, folder: Path) -> str:
    """Change or remove some units or ends, or change the recorded end."""
    done: list[str] = []

    def what(families: Families) -> None:
        for _ in range(rng.randrange(1, 4)):
            family = rng.choice([codec.UNITS, codec.OFFSETS])
            if not families.get(family):
                continue
            key = rng.choice(sorted(families[family]))
            value = families[family][key]
            verb = rng.choice(["drop", "offset", "note", "many"])
            if verb == "drop":
                del families[family][key]
            elif verb == "offset":
                changed = rng.choice([0, 1, 5_000, 30_000, 50_000, 1 << 33, -1])
                families[family][key] = changed.to_bytes(8, "big", signed=True) + value[8:]
            elif verb == "note":
                families[codec.OFFSETS][codec.CHECKPOINT_KEY] = rng.randrange(80_000).to_bytes(8, "big")
            else:
                for other in [k for k in families[codec.UNITS] if rng.random() < 0.3]:
                    del families[codec.UNITS][other]
            done.append(f"{verb} {family} {key!r}")

    rocks.change(folder, what)
    return "; ".join(done)


def make_store(rng: Random, store: Path, engine: Engine) -> dict[str, Any]:
    """Write a store of random geometry, stopped or killed; returns its settings."""
    size = rng.choice((16384, 24576, 49152))
    config = {
        **CONFIG, "mappedFileSizeCommitLog": size, "maxHashSlotNum": rng.randint(20, 400),
        "maxIndexNum": rng.randint(400, 4000),
    }  # fmt: skip
    if engine.version >= "5.4":
        config |= {name: rng.choice(values) for name, values in _SETTINGS.items() if rng.random() < 0.2}
    count = max(40, rng.randint(2, 30) * size // 270)
    for number, kill in ((count, False), (rng.randint(10, 200), rng.random() < 0.5)):
        answer = engine.write(store, messages(number), config, kill=kill)
        assert "error" not in answer, answer
    return config


def at_random(seed: int, store: Path, engine: Engine, folder: Path, config: dict[str, Any]) -> None:
    """Damage a store at random."""
    rng = Random(seed)
    done: list[str] = []

    def damaged(store: Path) -> None:
        if rng.random() < 0.7:
            done.extend(damage.damage(rng, store, rng.choice(VERBS), rng.choice((0, 0, 1))))
        if rng.random() < 0.5 and (store / "consumequeue" / "CURRENT").exists():
            done.append(spoil_database(rng, store / "consumequeue"))

    try:
        hold_against(engine, store, damaged, folder, config)
    except Exception as err:
        raise AssertionError(f"seed {seed}, {folder}: {done}\n{type(err).__name__}: {err}") from err
    shutil.rmtree(folder)


def main(count: int, seed: int, release: str, seconds: float) -> int:
    """Run random cases, as many as there is time for; returns the number of failures."""
    folder, failed, done = Path(tempfile.mkdtemp(prefix="rmqtool-rocks-")), 0, 0
    store, config, end = folder / "store", dict[str, Any](), time.monotonic() + seconds
    with Engine(release) as engine:
        for number in range(seed, seed + count):
            if time.monotonic() > end:
                break
            if done % _CASES_OF_A_STORE == 0:
                shutil.rmtree(store, ignore_errors=True)
                config = make_store(Random(number), store, engine)
            done += 1
            try:
                at_random(number, store, engine, folder / str(number), config)
            except AssertionError as err:
                failed += 1
                print(f"{config}\n{err}"[:3000], flush=True)
    print(f"{release}, seed {seed}: {done} cases, {failed} failed", flush=True)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--release", choices=("5.3.3", "5.4.0", "5.5.0"), default="5.5.0")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no more cases after that")
    given = parser.parse_args()
    sys.exit(1 if main(given.cases, given.seed, given.release, given.seconds) else 0)
