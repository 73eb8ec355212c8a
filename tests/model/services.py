"""Steps with commands that create further messages or stores: services, imports, and copies of clusters."""

import json
import pkgutil
import shutil
import signal
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from formats.message.properties import parse
from rmqtool import NewMessage, Store
from rmqtool.analytics import dump as dump_package
from rmqtool.client.copying import replay as replaying
from rmqtool.client.copying.steps import REPLAY
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.model.commands import Pause
from tests.model.neighbours import Neighbour
from tests.model.steps import command, elsewhere, ids_in, killing, read_offsets, report_of
from tests.model.world import SIZES, TOPICS, Place, World, Wrong

_FIRST = 1_000_000  # number of the first message that is mirrored
_AT_ONCE, _QUEUES, _GENERATIONS = 40, 3, 200
_MIRROR = "config/rmqtoolMirror.json"
_LEVEL = 1_000  # ms until a message of this model is due


# -- services of the store itself --------------------------------------------------------------------------------------


def run_once(world: World, rng: Random, pause: Pause | None = None) -> None:
    """Deliver due messages: at least once, and all of them if the command succeeds."""
    due = {number for number in world.must if _due(world, number)}
    kill = killing(rng, 0.4) if pause is None else None
    done = command(world, "run", world.store, "--once", kill=kill, pause=pause)
    world.learn()
    _take_copies(world, due & world.must, done.code == 0, str(done))


def _due(world: World, number: int) -> bool:
    place = world.places[number]
    if place.topic not in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        return False
    # the timer looks at a slot when it is over; messages that came meanwhile are taken up by the next run
    late = 3 * _LEVEL if place.topic == "rmq_sys_wheel_timer" else _LEVEL
    return world.now() >= world.stored.setdefault(number, world.now()) + late


def _take_copies(world: World, wanted: set[int], complete: bool, what: str) -> None:
    _found, copies = world.found()
    wanted -= world.passed_over
    if complete and not (world.pending or world.offsets_ahead) and (missing := wanted - copies.keys() - world.once):
        raise Wrong(f"not delivered: {sorted(missing)[:10]} ({len(missing)}): {what}")
    if complete:
        world.copies |= {number: places[0] for number, places in copies.items()}


def requeue(world: World, rng: Random) -> None:
    """Requeue dead letters, each once."""
    dead = {number for number in world.must if world.places[number].topic == "%DLQ%G"}
    done = command(world, "dlq", "requeue", world.store, "G", "--yes", kill=killing(rng, 0.4))
    world.learn()
    dead &= world.must
    _take_copies(world, dead, done.code == 0, str(done))
    _found, copies = world.found()
    if twice := {number for number in dead if len(copies.get(number, ())) > 1}:
        raise Wrong(f"given back twice: {sorted(twice)[:10]}: {done}")


def group_clone(world: World, rng: Random) -> None:
    """Copy the group's offsets to another group."""
    done = command(
        world, "group", "clone", world.store, "G", "H", "--yes", "--output", "json",
        *elsewhere(world, rng), kill=killing(rng, 0.3),
    )  # fmt: skip
    world.learn()
    read_offsets(world)
    if done.code == 0 and report_of(done).get("applied") and world.offsets_said("H") != world.offsets:
        raise Wrong(f"the clone has {world.offsets_said('H')}, not {world.offsets}")


# -- stores that are made ----------------------------------------------------------------------------------------------


def init(world: World, rng: Random) -> None:
    """Create an empty store beside this one."""
    other = world.home / "fresh"
    command(world, "init", other, kill=killing(rng, 0.7))
    done = command(world, "init", other)
    if done.code not in (0, 4) or (done.code == 4 and not other.exists()):
        raise Wrong(f"no store: {done}")
    if done.code == 0 and (checked := command(world, "check", other)).code:
        raise Wrong(f"not in order: {checked}")
    shutil.rmtree(other)


def import_(world: World, rng: Random) -> None:
    """Dump all messages as rows, and import them; a kill leaves no store or a complete one."""
    rows, other = world.home / "rows.ndjson", world.home / "imported"
    if rng.random() < 0.5:
        command(world, "salvage", world.store, rows, "--to", "ndjson", kill=killing(rng, 0.3))
    if not rows.exists():
        done = command(world, "commitlog", "dump", world.store, "--output", "ndjson")
        rows.write_text(done.out)
    if lost := world.must - set(_numbers_of_rows(rows)):
        raise Wrong(f"rows lack {sorted(lost)[:10]}: {world.history[-1]}")
    for kill in (killing(rng, 0.5), None):
        if not other.exists():
            done = command(world, "import", other, rows, kill=kill)
    if world.must and not other.exists():
        raise Wrong(f"no store: {done}")
    if other.exists():
        if lost := world.must - ids_in(other, world):
            raise Wrong(f"import lost {sorted(lost)[:10]}: {done}")
        shutil.rmtree(other)
    rows.unlink()
    for left in world.home.glob("rows.ndjson?*"):  # what was not readable, or a killed export
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    shutil.rmtree(f"{other}.importing", ignore_errors=True)


def _numbers_of_rows(rows: Path) -> list[int]:
    with open(rows, encoding="utf-8", errors="replace") as file:
        bodies = [str(json.loads(line).get("body")) for line in file]
    return [int(body[2:].partition(">")[0]) for body in bodies if body.startswith(("<m", "<w"))]


def dump(world: World, rng: Random) -> None:
    """Dump all messages to Parquet, possibly after a killed run."""
    _load_what_dumps_need()
    out = world.home / "dump"
    args = ("dump-to-parquet", world.store, out, "--runner", "local")
    command(world, *args, kill=killing(rng, 0.5))
    done = command(world, *args)
    if done.code == 4:  # the killed one was through, or something of it is in the way
        shutil.rmtree(out)
        done = command(world, *args)
    import pyarrow.parquet as parquet

    # without threads, which the next command, a fork of this process, would not have
    tables = [parquet.read_table(file, columns=["body"], use_threads=False) for file in out.rglob("*.parquet")]
    bodies = [body for table in tables for body in table["body"].to_pylist()]
    numbers = [int(body[2:].partition(b">")[0]) for body in bodies if body.startswith((b"<m", b"<w"))]
    if lost := world.must - set(numbers):
        raise Wrong(f"the dump lacks {sorted(lost)[:10]}: {done}")
    shutil.rmtree(out)


@cache
def _load_what_dumps_need() -> None:
    """Import what dumps need, once one is run."""
    for name in ("pyarrow.parquet", "rmqtool.analytics.local", "rmqtool.cli.tables.dump"):
        import_module(name)
    for module_info in pkgutil.walk_packages(dump_package.__path__, f"{dump_package.__name__}."):
        import_module(module_info.name)


# -- copies from and to clusters ---------------------------------------------------------------------------------------


def mirror(world: World, rng: Random, pause: Pause | None = None) -> None:
    """Mirror a topic of another broker: each message once, however often killed."""
    generation = world.generation
    if generation >= _GENERATIONS:
        return
    origin = _neighbour(world, "origin")
    numbers = {_FIRST + generation * _AT_ONCE + n for n in range(_AT_ONCE)}
    limit = ["--limit", rng.choice((1, 7, 25))] if rng.random() < 0.5 else []
    done = command(
        world, "mirror", "--namesrv", origin.namesrv, f"M{generation}", world.store, *limit,
        kill=killing(rng, 0.5) if pause is None else None, pause=pause,
    )  # fmt: skip
    if done.code == 3 and not done.killed and pause is None:
        raise Wrong(f"not mirrored: {done}")
    places = _places(world, numbers)
    world.cut -= places.keys()  # those that were cut come again
    world.learn()
    if done.code == 0:
        world.places |= places
        world.must |= places.keys()
    if done.code == 0 and not limit:
        low = CommitLog(world.layout).min_offset
        gone = {number for number, place in world.places.items() if place.physical_offset < low}
        if lost := numbers - places.keys() - gone - world.deleted:
            raise Wrong(f"not mirrored: {sorted(lost)[:10]} ({len(lost)}): {done}")
        world.generation += 1
    elif done.code == 4 and "not the one that the mirror wrote" in done.err:
        (world.store / _MIRROR).unlink()  # somebody has cut the log: another mirror, of another topic
        world.generation += 1


def _places(world: World, numbers: set[int]) -> dict[int, Place]:
    result = {}
    for item in CommitLog(world.layout).walk():
        if isinstance(item, LocatedRecord) and item.record.body.startswith(b"<m"):
            number = int(item.record.body[2:].partition(b">")[0])
            if number in numbers:
                record = item.record
                result[number] = Place(
                    record.topic.decode(), record.queue_id, record.queue_offset, item.physical_offset
                )
    return result


def replay(world: World, rng: Random) -> None:
    """Replay the messages to another broker, each once, however often the command or the broker is killed."""
    target = _neighbour(world, "target")
    journal = world.home / f"journal{world.journals}"
    args = ("replay", world.store, "--namesrv", target.namesrv, "--journal", journal, "--batch", rng.choice((1, 8)))
    limit = ["--limit", rng.choice((1, 20))] if rng.random() < 0.3 else []
    pause = None
    if rng.random() < 0.3:

        def crash() -> None:
            target.end(rng.choice((signal.SIGKILL, signal.SIGTERM)))
            target.start()
            world.history.append("its broker ends and starts again")

        pause = Pause(rng.randrange(1, 12), crash)
    kill = killing(rng, 0.5) if pause is None else None
    done = command(world, *args, *limit, kill=kill, pause=pause, before=_hurry)
    sent = _marks(world.home / "target")
    if twice := {mark for mark in sent if sent[mark] != 1}:
        raise Wrong(f"sent twice: {sorted(twice)[:5]}: {done}")
    if not journal.exists():
        return
    with open(journal, encoding="utf-8") as file:
        run = json.loads(file.readline() or "{}").get("run")
    if done.code == 0 and not limit:
        there = {number for mark, number in sent if mark.partition(":")[0] == run}
        if lost := _sendable(world) - there:
            raise Wrong(f"not sent: {sorted(lost)[:10]} ({len(lost)}): {done}")
    elif done.code in (3, 4) and not done.killed and pause is None:
        world.journals += 1  # the log was cut behind what was sent: another replay


def _hurry() -> None:
    """Shorten waits, as the broker is on this machine."""
    replaying._PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # type: ignore[assignment]
    defaults: dict[str, Any] = replaying.ReplayOptions.__init__.__kwdefaults__ or {}
    defaults["settle"] = 0.3


def _marks(store: Path) -> dict[tuple[str, int], int]:
    """Number of copies of each message, by replay and place in its log.

    There a message may be twice: one that waited, and whose broker was killed after it was delivered.
    """
    counts = Counter[tuple[str, int]]()
    for item in CommitLog(StoreLayout(str(store), BrokerConf({}))).walk():
        if isinstance(item, LocatedRecord) and item.record.body.startswith((b"<m", b"<w")):
            mark = parse(item.record.properties)[REPLAY]
            counts[mark, int(item.record.body[2:].partition(b">")[0])] += 1
    return counts


def _sendable(world: World) -> set[int]:
    result = set()
    for item in CommitLog(world.layout).walk():
        if isinstance(item, LocatedRecord) and item.record.body.startswith(b"<m"):
            topic = item.record.topic.decode()
            if topic in TOPICS or topic.startswith("M"):
                result.add(int(item.record.body[2:].partition(b">")[0]))
    return result


def _neighbour(world: World, name: str) -> Neighbour:
    """The broker on a neighbouring store, started on first use."""
    if name not in world.brokers:
        store = world.home / name
        conf = None
        if name == "origin":
            conf = {**{name: str(value) for name, value in SIZES.items()}, "mappedFileSizeCommitLog": str(1 << 20)}
            _fill(store, conf)
        world.brokers[name] = world.neighbours.enter_context(Neighbour(store, conf))
    result = world.brokers[name]
    assert isinstance(result, Neighbour)
    return result


def _fill(store: Path, conf: dict[str, str]) -> None:
    with Store.create(store, broker_conf=conf) as made:
        state = BrokerState(made, lambda _text: None)
        for generation in range(_GENERATIONS):
            state.ensure_topic(f"M{generation}", _QUEUES)
        state.persist()
        for generation in range(_GENERATIONS):
            first = _FIRST + generation * _AT_ONCE
            made.append_many(
                [
                    NewMessage(
                        topic=f"M{generation}", queue_id=n % _QUEUES, body=b"<m%d>" % (first + n) + b"z" * (n * 9)
                    )
                    for n in range(_AT_ONCE)
                ]
            )
