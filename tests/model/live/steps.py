"""Steps: commands that copy, and what happens to the broker before, behind and while they run."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from rmqtool.cli.live import acked
from rmqtool.cli.live.copying import mirror as mirror_command
from rmqtool.cli.live.copying import replay as replay_command
from rmqtool.cli.live.copying.positions import FILE as POSITIONS
from rmqtool.client.cluster import attempts
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer import pull as pull_consumer
from rmqtool.client.consumer.options import From, PushOptions
from rmqtool.client.consumer.pull import PullConsumer
from rmqtool.client.consumer.push import PushConsumer
from rmqtool.client.consumer.received import Received
from rmqtool.client.copying import replay as replaying
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from tests.model.commands import STEPPED, Done, Kill, Pause, run
from tests.model.disks import empty, fill
from tests.model.live.between import WAYS, Between
from tests.model.live.odd_files import odd_file
from tests.model.live.world import REPLAYED, SENT, World, numbers_of
from tests.model.world import Wrong

_MOST_ATTEMPTS = 12  # some have a limit
_CLOCKS = (-3_600_000, 3_600_000, -86_400_000 * 400)  # ms that a clock is ahead
_CONFIGS = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
_KILLS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass
class Around:
    """How a command is run.

    Attributes:
        way: what is between it and the broker; empty where nothing is.
        kill: how it is ended.
        meanwhile: what happens while it stands before a step, by its name.
        clock: ms by which its own clock is wrong.
    """

    way: str = ""
    kill: Kill | None = None
    meanwhile: str = ""
    clock: int = 0

    @property
    def quiet(self) -> bool:
        """Nothing is in its way."""
        return not self.way and self.kill is None and not self.meanwhile


# -- what happens to the broker ----------------------------------------------------------------------------------------


def send(world: World) -> None:
    """Others send."""
    for topic in (SENT, REPLAYED):
        if world.rng.random() < 0.6:
            world.send(topic, world.rng.choice((1, 10, 40)))


def restart(world: World) -> None:
    """It ends, well or not, and is there again."""
    world.down(world.rng.choice((signal.SIGKILL, signal.SIGTERM)))
    world.up()


def go(world: World) -> None:
    """It ends and does not come back for now."""
    world.down(world.rng.choice((signal.SIGKILL, signal.SIGTERM)))


def clock(world: World) -> None:
    """It starts with a clock that is wrong, or right again."""
    world.broker.clock = world.rng.choice((0, *_CLOCKS))
    restart(world)


def remake(world: World) -> None:
    """It has another store, under its old name."""
    world.remake(older=world.rng.random() < 0.5)


def keep(world: World) -> None:
    """Its store is copied."""
    world.keep()


def full(world: World) -> None:
    """Its disk has no room while others send."""
    path = world.home / "broker"
    fill(path, world.rng.choice((0, 1, 3, 10, 40)))
    world.note("the broker's disk is full:")
    try:
        send(world)
        if world.rng.random() < 0.3:
            world.down(signal.SIGKILL)
    finally:
        empty(path)
    world.note("and has room again")
    world.catch_up()


def grow(world: World) -> None:
    """There is more to be replayed."""
    world.fill_origin(world.rng.choice((1, 20)))


def power_cut(world: World) -> None:
    """The last line of the journal, which is not synced where a round is done, was not written, or not all of it."""
    path = world.journal
    if not path.exists() or not (lines := path.read_bytes().splitlines(keepends=True)) or b'"done"' not in lines[-1]:
        return
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][: world.rng.choice((0, 1, 9))])
    world.cut_journals.add(world.journals)
    world.note("the journal has lost that a round was done")


_MEANWHILE: dict[str, Callable[[World], None]] = {
    "send": send, "restart": restart, "go": go, "clock": clock, "remake": remake, "full": full
}  # fmt: skip


# -- commands ----------------------------------------------------------------------------------------------------------


def replay(world: World, around: Around | None = None) -> Done:
    """The origin goes to the broker."""
    rng, around = world.rng, around or _around(world)
    limit = ["--limit", rng.choice((1, 20))] if rng.random() < 0.2 else []
    args = ("replay", world.origin, "--journal", world.journal, "--batch", rng.choice((1, 4, 8)), *limit)
    began = "replay" not in world.remade
    done = _run(world, around, *args, "--broker-conf", world.conf_file)
    if done.code == 3 and "another --journal" in done.err:
        if around.quiet and began:
            raise Wrong(f"nothing was made again: {done}")
        world.begin_replay_again()
        world.counts["replay refused"] += 1
    elif done.code == 0 and not limit:
        run_id = json.loads(world.journal.read_text().partition("\n")[0])["run"]
        world.remember()
        there = {mark for mark in world.ids if mark.startswith(f"{run_id}:")}
        count = sum(map(len, numbers_of(world.origin, REPLAYED).values()))
        if len(there) != count:
            raise Wrong(f"{len(there)} of {count} were replayed: {done}")
        world.counts["replayed"] += 1
    return done


def mirror(world: World, around: Around | None = None) -> Done:
    """The broker's messages come into a store."""
    rng, around = world.rng, around or _around(world)
    limit = ["--limit", rng.choice((1, 7, 25))] if rng.random() < 0.3 else []
    began = "mirror" not in world.remade
    wanted = world.queues(SENT)
    done = _run(world, around, "mirror", SENT, world.copy, *limit, "--broker-conf", world.conf_file)
    if "nto another store" in done.err:
        if around.quiet and began:
            raise Wrong(f"nothing was made again: {done}")
        _next_mirror(world)
        world.counts["mirror refused"] += 1
    elif done.code == 0 and not limit and not around.meanwhile:
        ours = numbers_of(world.copy, SENT)
        if lost := [n for queue, numbers in wanted.items() for n in numbers if n not in ours.get(queue, [])]:
            raise Wrong(f"not mirrored: {lost[:10]} ({len(lost)}): {done}")
        world.counts["mirrored"] += 1
        if not began and ours == wanted:
            world.remade.discard("mirror")
    return done


def _next_mirror(world: World) -> None:
    world.mirrors += 1
    world.remade.discard("mirror")


def consume(world: World, around: Around | None = None) -> Done:
    """A group writes the broker's messages."""
    rng, around = world.rng, around or _around(world)
    if around.way == "no master":
        around.way = ""  # what a slave lacks proves nothing: a group waits for the master
    limit = ["--limit", rng.choice((1, 7, 25))] if rng.random() < 0.3 else []
    orderly = ["--orderly"] if rng.random() < 0.3 else []
    wanted = {number for numbers in world.queues(SENT).values() for number in numbers}
    args = (SENT, "--group", world.group, "--ack", "--from", "earliest", "-o", "ndjson", *limit, *orderly)
    done = _run(world, around, "consume", *args)
    out = world.output.read_text("utf-8", "replace") if around.way == "full disk" else done.out
    for line in out[: out.rfind("\n") + 1].splitlines():
        world.seen.add(int(json.loads(line)["body"][1:].partition(">")[0]))
    if done.code == 3 and "made again" in done.err:
        if around.quiet and "group" not in world.remade:
            raise Wrong(f"nothing was made again: {done}")
        world.counts["consume refused"] += 1
    if done.code in (0, 1) and not limit and not around.kill and not around.meanwhile and around.way != "full disk":
        if lost := wanted - world.seen:
            raise Wrong(f"not consumed: {sorted(lost)[:10]} ({len(lost)}): {done}")
        world.counts["consumed"] += 1
    return done


def _number_of(message: Received) -> int:
    return int(message.body[1:].partition(b">")[0])


def _write(messages: Sequence[Received]) -> None:
    """One write for all: what a kill leaves is whole, and was there before any commit."""
    os.write(1, "".join(f"{_number_of(message)}\n" for message in messages).encode())


async def _pull_all(namesrv: str, group: str) -> None:
    """Every queue up to what is its end now, and a commit behind each poll."""
    async with PullConsumer(ClientOptions(namesrv=namesrv), group, batch=5, wait=0.2) as consumer:
        queues = await consumer.queues(SENT)
        await consumer.assign(queues)
        ends = {queue: (await consumer.offsets(queue))[1] for queue in queues}
        while any(consumer.position(queue) < end for queue, end in ends.items()):
            _write(await consumer.poll(1))
            await consumer.commit()


async def _listen_to_all(namesrv: str, group: str) -> None:
    """Until nothing has come for a second."""
    loop = asyncio.get_running_loop()
    last = loop.time()

    async def listen(messages: Sequence[Received]) -> None:
        nonlocal last
        _write(messages)
        last = loop.time()

    options = PushOptions(start=From.FIRST, error_pause=0.05, persist_interval=0.1, hold=0.3, pull_batch=5)
    async with PushConsumer(ClientOptions(namesrv=namesrv), group, {SENT: "*"}, listen, options):
        while loop.time() - last < 1:
            await asyncio.sleep(0.05)


_Consumer = Callable[[str, str], Coroutine[Any, Any, None]]


def _consume_with(world: World, kind: str, consumer: _Consumer, around: Around | None) -> Done:
    around = around or _around(world)
    if around.way == "no master":
        around.way = ""
    group = world.group_of(kind)
    wanted = {number for numbers in world.queues(SENT).values() for number in numbers}

    def instead(namesrv: str) -> int:
        try:
            asyncio.run(consumer(namesrv, group))
        except (ClientError, RemotingError) as err:
            print(err, file=sys.stderr)
            return 3
        except KeyboardInterrupt:
            return 130
        return 0

    done = _run(world, around, kind, group=group, instead=instead)
    world.taken[group] |= set(map(int, done.out.split()))
    if done.code == 0 and around.quiet and wanted <= world.taken[group]:
        world.counts[f"{kind}ed"] += 1
    return done


def pull(world: World, around: Around | None = None) -> Done:
    """A PullConsumer commits what it was given."""
    return _consume_with(world, "pull", _pull_all, around)


def push(world: World, around: Around | None = None) -> Done:
    """A PushConsumer's listener is given the broker's messages."""
    return _consume_with(world, "push", _listen_to_all, around)


COMMANDS: dict[str, Callable[[World, Around | None], Done]] = {
    "replay": replay, "mirror": mirror, "consume": consume, "pull": pull, "push": push
}  # fmt: skip


def copy_on_full_disk(world: World) -> None:
    """A command that writes to a disk with hardly any room: a store, a journal, or what a group gets."""
    path = world.home / "own"
    fill(path, world.rng.choice((0, 1, 2, 5, 12)))
    world.note("with hardly any room:")
    try:
        COMMANDS[world.rng.choice(tuple(COMMANDS))](world, Around(way="full disk"))
    finally:
        empty(path)


def odd_broker_file(world: World) -> None:
    """The broker starts with something in its store that is no file of its own, and without it again."""
    world.down(world.rng.choice((signal.SIGKILL, signal.SIGTERM)))
    names = ("checkpoint", "abort", "lock", *(f"config/{name}" for name in _CONFIGS))
    with odd_file(world.store / world.rng.choice(names), world.rng) as odd:
        world.note(f"the broker has {odd}")
        try:
            world.up()
        except RuntimeError:
            world.note("and does not start")
        else:
            world.counts["served with an odd file"] += 1
            send(world)
            a_command(world)
        world.broker.end(world.rng.choice((signal.SIGKILL, signal.SIGTERM)))
    world.up()
    world.catch_up()


def odd_own_file(world: World) -> None:
    """A command whose own files are not what they were, until it has ended."""
    world.up()
    name = world.rng.choice(("replay", "mirror"))
    names = ("checkpoint", "config/topics.json", "config/consumerOffset.json", "abort", "lock")
    store = world.origin if name == "replay" else world.copy
    own = world.journal if name == "replay" else world.copy / POSITIONS
    path = own if world.rng.random() < 0.4 else store / world.rng.choice(names)
    if not path.parent.is_dir():
        return
    with odd_file(path, world.rng, keep=path == own) as odd:
        world.note(f"with {odd}:")
        COMMANDS[name](world, Around(way="odd file"))


def a_command(world: World) -> None:
    """One of them, in whatever circumstances."""
    if world.rng.random() < 0.85:
        world.up()
    COMMANDS[world.rng.choice(tuple(COMMANDS))](world, None)


def settle(world: World) -> None:
    """Everything heals, and every command comes to its end."""
    world.note("-- settled:")
    world.broker.clock = 0
    world.up()
    world.send(SENT, 1)
    for name, ended in (
        ("replay", "replayed"), ("mirror", "mirrored"), ("consume", "consumed"), ("pull", "pulled"), ("push", "pushed"),
    ):  # fmt: skip
        before, attempts_ = world.counts[ended], 0
        while world.counts[ended] == before:
            if (attempts_ := attempts_ + 1) > _MOST_ATTEMPTS:
                raise Wrong(f"{name} does not come to its end: {world.history[-1]}")
            COMMANDS[name](world, Around())
    world.remade -= {"mirror", "group"}  # a replay that has nothing to send asks nobody


def _around(world: World) -> Around:
    rng = world.rng
    way = rng.choice(WAYS) if rng.random() < 0.35 else ""
    clock = rng.choice(_CLOCKS) if rng.random() < 0.25 else 0
    kill, meanwhile = None, ""
    if (chance := rng.random()) < 0.3:
        kill = Kill(rng.choice(_KILLS), int(2 ** rng.uniform(0, 6)))
    elif chance < 0.7:
        (meanwhile,) = rng.choices(tuple(_MEANWHILE), [1, 1, 1, 1, 3, 1])
    return Around(way, kill, meanwhile, clock)


def _run(
    world: World, around: Around, *args: object, group: str = "", instead: Callable[[str], int] | None = None
) -> Done:
    """Run a command, or what stands for it with the address of the name server."""
    rng = world.rng
    pause = Pause(int(2 ** rng.uniform(0, 6)), lambda: _do(world, around.meanwhile)) if around.meanwhile else None
    with ExitStack() as stack:
        namesrv = world.broker.namesrv
        if around.way in WAYS:
            topics = (SENT, REPLAYED, f"%RETRY%{group or world.group}")
            between = Between(world.broker.address, around.way, rng.randrange(1 << 30), topics)
            namesrv = between.start()
            stack.callback(between.end, signal.SIGKILL)
            world.note(f"through {between!r}:")
        first, *others = args
        stands_for = partial(instead, namesrv) if instead is not None else None
        output = world.output if first == "consume" and around.way == "full disk" else None
        if around.clock:
            world.note(f"by a clock that is {around.clock} ms ahead:")
            world.counts[f"{first} by a wrong clock"] += 1

        def before() -> None:
            _hurry()
            _be_ahead(around.clock)
            if output is not None:
                os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)

        result = run(
            first, "--namesrv", namesrv, *others, kill=around.kill, pause=pause, before=before, instead=stands_for
        )
    if "Traceback" in result.err:
        raise Wrong(result.err)
    world.counts[f"{first} {around.way}".strip()] += 1
    if result.killed:
        world.counts["killed"] += 1
    world.note(result)
    return result


def _do(world: World, meanwhile: str) -> None:
    world.note(f"meanwhile: {meanwhile}")
    world.counts[f"meanwhile {meanwhile}"] += 1
    _MEANWHILE[meanwhile](world)


def _be_ahead(millis: int) -> None:
    if millis:
        real = time.time_ns
        time.time_ns = lambda: real() + millis * 1_000_000
        time.time = lambda: time.time_ns() / 1e9


def _hurry() -> None:
    """What is asked of a peer is a step too; and nobody is farther away than this machine."""
    STEPPED.append((Connection, "call"))
    changes: tuple[tuple[object, str, object], ...] = (
        (replaying, "_PAUSES", (0.05, 0.1, 0.2, 0.4)),
        (attempts, "PAUSES", (0.05, 0.1, 0.2, 0.4)),
        (mirror_command, "_PAUSE", 0.05),
        (mirror_command, "_MOST", 5),
        (replay_command, "_ROUND", 15),
        (acked, "_ERROR_PAUSE", 0.05),
        (pull_consumer, "_PAUSE", 0.05),
    )
    for owner, name, value in changes:
        setattr(owner, name, value)
    defaults: dict[str, Any] = replaying.ReplayOptions.__init__.__kwdefaults__ or {}
    defaults["settle"] = 0.3
    (ClientOptions.__init__.__kwdefaults__ or {})["timeout"] = 1.0
    (PushOptions.__init__.__kwdefaults__ or {})["pull_batch"] = 5


WEIGHTS: dict[Callable[[World], None], int] = {
    a_command: 12,
    send: 3,
    restart: 1,
    go: 1,
    clock: 1,
    remake: 1,
    keep: 1,
    full: 1,
    grow: 1,
    power_cut: 1,
    copy_on_full_disk: 2,
    odd_broker_file: 1,
    odd_own_file: 1,
}
