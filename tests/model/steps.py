"""The steps of a model run: commands, damage, moves, and real engines."""

import json
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.interop.engine import Engine
from tests.model.commands import Done, Kill, Pause, run
from tests.model.serving import serve_and_send
from tests.model.world import SIZES, TOPICS, Place, World, Wrong

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def killing(rng: Random, chance: float) -> Kill | None:
    """Now and then a signal at some step, more often an early one."""
    if rng.random() >= chance:
        return None
    return Kill(rng.choice(_SIGNALS), int(2 ** rng.uniform(0, 8)))


def _any_time(kill: Kill, step: int) -> Kill:
    """Send half of the signals at a random time instead of at a step, some before the command has begun."""
    return kill._replace(after=0.15 * (step % 97) / 97) if step % 2 else kill


def command(world: World, *args: object, **options: Any) -> Done:
    """Run a command with the store's file sizes."""
    if world.limits:
        limits = ", ".join(f"{world.limit_names[number]} {value}" for number, value in world.limits.items())
        world.history.append(f"with {limits}:")
    kill: Kill | None = options.get("kill")
    if world.random_kills and kill is not None:
        kill = options["kill"] = _any_time(kill, len(world.history))
    result = run(*args, "--broker-conf", world.conf_file, limits=world.limits, **options)
    if kill is not None and result.killed:
        world.counts[signal.Signals(kill.signal).name] += 1
    world.note(result)
    return result


def report_of(done: Done) -> dict[str, Any]:
    """The object printed by a command; empty if it did not get that far."""
    try:
        value = json.loads(done.out)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# -- commands ----------------------------------------------------------------------------------------------------------


def rows_of(world: World, rng: Random, waiting: float = 0) -> tuple[range, list[dict[str, Any]]]:
    """Messages to several queues, and their numbers.

    Args:
        waiting: how many of them wait for their time, or as dead letters.
    """
    numbers = range(world.next_id, world.next_id + rng.choice((1, 3, 20, 60)))
    world.next_id = numbers.stop
    rows: list[dict[str, Any]] = []
    for number in numbers:
        kind = "w" if rng.random() < waiting else "m"
        row = {
            "topic": rng.choice(TOPICS),
            "queueId": rng.randrange(3),
            "body": f"<{kind}{number}>" + "x" * rng.choice((0, 10, 400, 1500)),
            "keys": f"k{number}",
        }
        if kind == "w":
            how = rng.choice(("level", "timer" if world.timers else "level", "dead"))
            if how == "dead":
                row |= {"topic": "%DLQ%G", "queueId": 0, "properties": {"RETRY_TOPIC": row["topic"]}}
            else:
                row["properties"] = {"DELAY": "1"} if how == "level" else {"TIMER_DELAY_SEC": "1"}
        rows.append(row)
    return numbers, rows


def acknowledged(world: World, numbers: range, done: Done) -> None:
    """Record acknowledged messages, which must exist from now on."""
    for line in done.out.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue  # cut where the process ended
        if answer.get("status") == "PUT_OK":
            number = numbers[answer["line"] - 1]
            place = Place(answer["topic"], answer["queueId"], answer["queueOffset"], answer["physicalOffset"])
            world.places[number] = place
            world.must.add(number)


def append(world: World, rng: Random, pause: Pause | None = None) -> None:
    """Append messages to several queues."""
    numbers, rows = rows_of(world, rng, 0.15)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    sync = ["--sync"] if rng.random() < 0.2 else []
    kill = killing(rng, 0.3) if pause is None else None
    done = command(
        world, "append", world.store, "-", "--output", "ndjson", *sync, stdin=data, kill=kill, pause=pause
    )  # fmt: skip
    acknowledged(world, numbers, done)
    world.learn()
    if done.code == 0 and len(done.out.splitlines()) != len(rows):
        raise Wrong(f"{len(rows)} messages, {len(done.out.splitlines())} answers: {done}")


def serve(world: World, rng: Random, pause: Pause | None = None) -> None:
    """Serve the store, repaired if necessary, with a sending client."""
    numbers, rows = rows_of(world, rng)
    served = partial(serve_and_send, str(world.store), str(world.conf_file), rows)
    kill = killing(rng, 0.5) if pause is None else None
    done = command(world, "serve", world.store, instead=served, kill=kill, pause=pause)
    acknowledged(world, numbers, done)
    world.learn()


def change(world: World, rng: Random, *args: object, cuts: frozenset[int] = frozenset(), chance: float = 0.35) -> Done:
    """Run a command that changes the whole store.

    Args:
        cuts: messages that it cuts if carried out.
    """
    done = command(world, *args, "--output", "json", *elsewhere(world, rng), kill=killing(rng, chance))
    world.learn(cuts if may_have_changed(done) else frozenset())
    return done


def elsewhere(world: World, rng: Random) -> list[object]:
    """Now and then use a backup directory elsewhere."""
    return ["--backup", world.elsewhere] if rng.random() < 0.15 else []


def may_have_changed(done: Done) -> bool:
    """Whether it was carried out, possibly only partly."""
    return done.killed or done.code not in (0, 1, 4) or (done.code == 0 and bool(report_of(done).get("applied")))


def recover(world: World, rng: Random) -> None:
    """Recover, as after a crash."""
    change(world, rng, "recover", world.store, "--yes")


def dispatch(world: World, rng: Random) -> None:
    """Bring queues and index up to date with the log."""
    change(world, rng, "dispatch", world.store)


def rebuild(world: World, rng: Random) -> None:
    """Rebuild queues, index or checkpoint from the log, or another part."""
    parts = rng.sample(("consumequeue", "index", "checkpoint"), rng.randint(1, 3))
    if rng.random() < 0.2:
        parts = [rng.choice(("config", "timer", "compaction"))]
    change(world, rng, "rebuild", world.store, *parts, "--yes")
    if parts == ["config"]:
        read_offsets(world)


def truncate(world: World, rng: Random) -> None:
    """Cut the log at one of the last messages."""
    last = sorted(world.must, key=lambda number: world.places[number].physical_offset)[-8:]
    if last:
        at = world.places[rng.choice(last)].physical_offset
        cuts = frozenset(number for number in world.must if world.places[number].physical_offset >= at)
        if may_have_changed(change(world, rng, "truncate", world.store, at, "--yes", cuts=cuts)):
            world.cut_copies(0, at)
            world.offsets_ahead = True


def clean(world: World, rng: Random) -> None:
    """Remove the first file of the log."""
    files = sorted(int(path.name) for path in (world.store / "commitlog").iterdir() if path.name.isdecimal())
    if len(files) < 3:
        return
    known = world.must | world.limbo
    cuts = frozenset(number for number in known if world.places[number].physical_offset < files[1])
    args: list[object] = ["clean", world.store, "--hours", "0", "--files", "1", "--yes", "--accept-loss"]
    if rng.random() < 0.3:
        args.append("--delete")
    before = set(world.in_log())
    done = command(world, *args, "--output", "json", *elsewhere(world, rng), kill=killing(rng, 0.35))
    if "--delete" in args and may_have_changed(done) and (done.code != 0 or report_of(done).get("deleted")):
        world.deleted |= cuts & before - set(world.in_log())
    world.learn(cuts if may_have_changed(done) else frozenset())
    if may_have_changed(done):
        world.cut_copies(files[1], 1 << 63)


def group_reset(world: World, rng: Random) -> None:
    """Set a consumer group's offsets."""
    topic = rng.choice(TOPICS)
    where = rng.choice(("--to-earliest", "--to-latest"))
    command(
        world, "group", "reset", world.store, "G", "--topic", topic, where, "--yes", "--output", "json",
        *elsewhere(world, rng), kill=killing(rng, 0.3),
    )  # fmt: skip
    read_offsets(world)
    world.learn()


def read_offsets(world: World) -> None:
    """Read the offsets file: it has the whole change or nothing of it."""
    world.offsets = world.offsets_said()


def undo(world: World, rng: Random) -> None:
    """Undo the last change."""
    before = set(world.must)
    where = elsewhere(world, rng)
    done = command(world, "undo", world.store, "--yes", "--output", "json", *where, kill=killing(rng, 0.3))
    world.learn(undoing=True)
    if missing := before - set(world.in_log()):
        raise Wrong(f"an undo took {sorted(missing)[:10]}: {done}")
    read_offsets(world)
    queues_back(world, rng)


def queues_back(world: World, rng: Random) -> None:
    """Rebuild a queue lost by undoing the rebuild of a deleted one.

    Immediately, because the next append would begin that queue at 0, as a broker does.
    """
    world.limits = {}
    if world.pending:
        return
    places = (world.places[number] for number in world.must)
    queues = {(place.topic, str(place.queue_id)) for place in places}
    if all(any((world.store / "consumequeue").glob(f"{topic}/{queue_id}/*")) for topic, queue_id in queues):
        return
    if (world.store / "abort").exists():
        change(world, rng, "recover", world.store, "--yes", chance=0)
    rebuild_queues(world, rng)


def rebuild_queues(world: World, rng: Random) -> None:
    """Rebuild queues, however often interrupted."""
    for _attempt in range(20):
        done = change(world, rng, "rebuild", world.store, "consumequeue", "--yes", chance=0.6)
        if done.code == 0 or world.refused(done):
            return
    raise Wrong(f"queues cannot be rebuilt: {done}")


def salvage(world: World, rng: Random, chance: float = 0.2) -> None:
    """Salvage all intact messages into another store, which is checked and deleted."""
    _into_another(world, "salvage", kill=killing(rng, chance))


def export(world: World, rng: Random) -> None:
    """Export an undamaged store; of a damaged one, nothing may be exported."""
    _into_another(world, "export", kill=killing(rng, 0.2))


def convert(world: World, rng: Random) -> None:
    """Make a store of another form, which is checked and deleted."""
    _into_another(world, "convert", kill=killing(rng, 0.2))


def _into_another(world: World, name: str, kill: Kill | None) -> None:
    target = world.home / "salvaged"
    done = command(world, name, world.store, target, kill=kill)
    if target.exists():
        there = ids_in(target, world)
        if lost := world.must - there:
            raise Wrong(f"{name} lost {sorted(lost)[:10]}: {done}")
        shutil.rmtree(target)
    elif done.code in (0, 1) and not done.killed:
        raise Wrong(f"no store: {done}")


def ids_in(store: Path, world: World) -> set[int]:
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

    result = set()
    for item in CommitLog(StoreLayout(str(store), world.layout.conf)).walk():
        if isinstance(item, LocatedRecord) and item.record.body.startswith((b"<m", b"<w")):
            result.add(int(item.record.body[2:].partition(b">")[0]))
    return result


# -- what happens to a store -------------------------------------------------------------------------------------------


def lose_part(world: World, rng: Random) -> None:
    """Delete something that can be rebuilt, or leave the traces of a crash."""
    kind = rng.choice(("index", "queue", "checkpoint", "abort", "torn"))
    world.history.append(f"lose {kind}")
    store = world.store
    if kind == "index":
        shutil.rmtree(store / "index", ignore_errors=True)
    elif kind == "queue":
        # it is built anew at once: see there
        topics = sorted((store / "consumequeue").iterdir()) if (store / "consumequeue").exists() else []
        if topics and not world.pending and not (store / "abort").exists():
            lost = rng.choice(topics)
            shutil.rmtree(lost)
            rebuild_queues(world, rng)
    elif kind == "checkpoint":
        (store / "checkpoint").unlink(missing_ok=True)
    elif kind == "abort":
        (store / "abort").touch()
    else:
        _tear(world, rng)


def _tear(world: World, rng: Random) -> None:
    """Add half a record after the last one, as after a power cut."""
    from rmqtool.store.log.commit_log import CommitLog

    log = CommitLog(world.layout)
    end, _last = log.end()
    file = log.segments.find(end)
    if file is None or file.end - end < 200 or world.pending:
        return
    with open(file.path, "r+b") as out:
        out.seek(end - file.base)
        out.write(b"\x00\x00\x00\xc8\xda\xa3\x20\xa7" + rng.randbytes(60))
    (world.store / "abort").touch()


def move(world: World, rng: Random) -> None:
    """Rename the store together with its backups, and back."""
    world.history.append("move")
    other = world.home / "moved"
    beside = Path(f"{world.store}.rmqtool")
    world.store.rename(other)
    if beside.exists():
        beside.rename(f"{other}.rmqtool")
    result = run("recover", other, "--dry-run", "--broker-conf", world.conf_file)
    world.note(result)
    other.rename(world.store)
    if Path(f"{other}.rmqtool").exists():
        Path(f"{other}.rmqtool").rename(beside)


def copy(world: World, rng: Random) -> None:
    """Run commands on a copy, which must leave the original alone."""
    world.history.append("copy")
    before = tree(world.store)
    other = world.home / "copy"
    subprocess.run(["cp", "-a", "--sparse=always", world.store, other], check=True)
    if (beside := Path(f"{world.store}.rmqtool")).exists():
        shutil.copytree(beside, f"{other}.rmqtool", symlinks=True)
    kept_before = tree(beside) if beside.exists() else {}
    for args in rng.sample((["undo", "--yes"], ["recover", "--yes"], ["rebuild", "index", "--yes"]), 2):
        name, *more = args
        world.note(run(name, other, *more, "--broker-conf", world.conf_file))
    if tree(world.store) != before or (tree(beside) if beside.exists() else {}) != kept_before:
        raise Wrong("a command on a copy has changed the original")
    shutil.rmtree(other)
    shutil.rmtree(f"{other}.rmqtool", ignore_errors=True)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hide(world: World, rng: Random) -> None:
    """Hide the backups for a while, as on another host or an unmounted disk."""
    beside, hidden = Path(f"{world.store}.rmqtool"), world.home / "hidden"
    if beside.exists() and not hidden.exists():
        world.history.append("hide what is kept")
        beside.rename(hidden)
        try:
            rng.choice((append, recover, group_reset, rebuild))(world, rng)
            world.look()
        finally:
            for entry in sorted(hidden.iterdir()):
                beside.mkdir(exist_ok=True)
                name, number = entry.name, 100
                while (beside / name).exists():  # of the same second
                    name, number = f"{entry.name}-{number}", number + 1
                entry.rename(beside / name)
            hidden.rmdir()
            world.learn()


def through_a_link(world: World, rng: Random) -> None:
    """Use the store through a symbolic link."""
    link = world.home / "link"
    link.symlink_to(world.store)
    try:
        for arguments in (["recover", link, "--yes"], ["info", link]):
            world.note(run(*arguments, "--broker-conf", world.conf_file))
    finally:
        link.unlink()
    world.learn()


def full(world: World, rng: Random) -> None:
    """No file may grow: every write that needs space fails somewhere."""
    limited(world, rng, resource.RLIMIT_FSIZE, rng.choice((0, 100, 4096, 10_000, 20_000)))


def few_descriptors(world: World, rng: Random) -> None:
    """Run a command with few descriptors."""
    limited(world, rng, resource.RLIMIT_NOFILE, rng.choice((16, 24, 40)))


def limited(world: World, rng: Random, what: int, most: int) -> None:
    """Run a command with limits below its needs."""
    step = rng.choice((append, append, recover, dispatch, rebuild, truncate, clean, group_reset, undo, salvage, export))
    world.limits = {what: most}
    try:
        step(world, rng)
    finally:
        world.limits = {}


def engine_takes(engine: Engine) -> Callable[[World, Random], None]:
    """Start a real engine, store messages, and stop or kill it."""

    def step(world: World, rng: Random) -> None:
        numbers = range(world.next_id, world.next_id + rng.choice((1, 20, 50)))
        world.next_id = numbers.stop
        puts = [
            {
                "topic": rng.choice(TOPICS),
                "queueId": rng.randrange(3),
                "body": f"<m{number}>".encode() + b"y" * rng.choice((0, 300)),
                "keys": f"k{number}",
            }
            for number in numbers
        ]
        kill = rng.random() < 0.3
        world.met |= world.pending
        world.counts[f"engine {engine.version}"] += 1
        answer = engine.write(world.store, puts, SIZES, kill=kill)
        world.history.append(f"{engine.version} takes {len(puts)}{', killed' if kill else ''}: {answer.get('error')}")
        if "results" not in answer:
            return  # it does not load the store
        for number, put, result in zip(numbers, puts, answer["results"], strict=True):
            if result["status"] == "PUT_OK":
                offset, at = result["logicsOffset"], result["wroteOffset"]
                world.places[number] = Place(str(put["topic"]), int(str(put["queueId"])), offset, at)
                world.must.add(number)

    return step


# -- the end of a run --------------------------------------------------------------------------------------------------


def settle(world: World) -> None:
    """Repair the store, following the advice of refusals, and check it closely.

    Raises:
        Wrong: that fails, or something is lost.
    """
    for arguments in (
        ["recover", world.store, "--yes"],
        ["recover", world.store, "--yes"],
        ["undo", world.store, "--yes"],
        ["undo", world.store, "--forget", "--yes"],
        ["recover", world.store, "--yes"],
    ):
        done = command(world, *arguments, "--output", "json", "--backup", world.elsewhere)
        world.learn(undoing=arguments[0] == "undo")
        if done.code == 0:
            if arguments[0] == "recover":
                break
            read_offsets(world)
        for way in report_of(done).get("nextSteps", ()):  # an engine that was killed has left a file that none loads
            if not way.startswith("rmqtool "):
                subprocess.run(shlex.split(way.rpartition(": ")[0]), check=True)
                world.history.append(way)
    else:
        raise Wrong(f"no way on: {world.history[-4:]}")
    if world.pending or world.limbo:
        raise Wrong(f"in order, and half done: {world.history[-4:]}")
    # offsets that a truncate has left beyond the end of their queues; what came there meanwhile is passed over
    done = command(world, "rebuild", world.store, "config", "--yes")
    if done.code:
        raise Wrong(f"offsets cannot be mended: {done}")
    if world.offsets_ahead:
        world.passed_over |= {number for number in world.must if world.places[number].topic not in TOPICS}
        world.offsets_ahead = False
    read_offsets(world)
    # queues that somebody has deleted, or that a broker met half changed
    done = command(world, "rebuild", world.store, "consumequeue", "index", "--yes")
    if world.refused(done):
        salvage(world, Random(0), chance=0)
        return
    if done.code:
        raise Wrong(f"cannot be rebuilt: {done}")
    done = command(world, "recover", world.store, "--dry-run")
    if done.code:
        raise Wrong(f"not in order: {done}\n{done.out}")
    world.look_closely()
