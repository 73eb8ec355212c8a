"""What brokers and clients have promised each other, and the look whether it is kept."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from formats.message.properties import UNIQ_KEY, parse
from formats.remoting.shapes import MessageQueue
from rmqtool import NewMessage, Store
from rmqtool.cli.live.copying.positions import FILE
from rmqtool.client import ClientOptions, Message, Producer
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.copying.steps import REPLAY
from rmqtool.client.producing.message import NotSent
from rmqtool.remoting.errors import RemotingError
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.model.neighbours import Neighbour
from tests.model.world import Wrong

SENT, REPLAYED = "Sent", "Replayed"  # topics: what is mirrored and consumed, and what a store is replayed to
QUEUES = 4
SIZES = {"mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "6000"}
_BODY = re.compile(rb"<(\d+)>")
_SETTINGS = {"brokerName": "broker-a", "defaultTopicQueueNums": str(QUEUES), "flushIntervalConsumerOffset": "1000"}


def copy_store(source: Path, target: Path) -> None:
    """With its holes: an index file that was just made is mostly one, and the disk is small."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)


@dataclass
class Told:
    """What the broker has acknowledged; goes back with its store.

    Attributes:
        stored: number of a message to its topic and queue.
    """

    stored: dict[int, tuple[str, int]] = field(default_factory=dict)


@dataclass
class World:
    """A broker, a store that is replayed to it, and a store that it is mirrored into.

    Attributes:
        told: what must be in the broker's log.
        kept: an earlier state of the broker's store, and what it had acknowledged by then.
        mirrors, journals, groups: number of the mirror, replay or group that is gone on with.
        stores: how many the broker has had.
        cut_journals: numbers of the journals that have lost a line.
        remade: the broker's store was made anew, or an earlier one, since the mirror, replay or group began.
        seen: numbers that ``consume --ack`` has written whole.
        taken: group of a consumer of the library to the numbers that it was given.
        twice: numbers that were replayed to the broker's store when another replay of them began.
        ids: replay and place to the unique ids of the messages that it has ever stored.
    """

    home: Path
    rng: Random
    history: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    told: Told = field(default_factory=Told)
    kept: Told | None = None
    mirrors: int = 1
    journals: int = 1
    groups: int = 1
    stores: int = 1
    cut_journals: set[int] = field(default_factory=set)
    remade: set[str] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    taken: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    twice: set[int] = field(default_factory=set)
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    next_number: int = 1

    def __post_init__(self) -> None:
        self.conf = {**SIZES, **_SETTINGS}
        self.conf_file = self.home / "conf"
        self.conf_file.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
        self.broker = Neighbour(self.home / "broker" / "store", self.conf)

    @property
    def store(self) -> Path:
        """The broker's."""
        return self.home / "broker" / "store"

    @property
    def origin(self) -> Path:
        """The store that is replayed."""
        return self.home / "own" / "origin"

    @property
    def copy(self) -> Path:
        """The store that is mirrored into."""
        return self.home / "own" / f"copy{self.mirrors}"

    @property
    def journal(self) -> Path:
        """Of the replay."""
        return self.home / "own" / f"journal{self.journals}"

    @property
    def output(self) -> Path:
        """What a group gets, where that is not a pipe."""
        return self.home / "own" / "output"

    @property
    def group(self) -> str:
        """That consumes."""
        return f"group{self.groups}"

    def group_of(self, kind: str) -> str:
        """That a consumer of the library uses, of a kind; another one with each store of the broker."""
        return f"{kind}{self.stores}"

    def note(self, text: object) -> None:
        self.history.append(str(text))

    # -- what is done -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The first messages of both sides."""
        self.broker.start()
        self.fill_origin(60)
        self.send(SENT, 40)

    def up(self) -> None:
        """The broker runs."""
        if not self.broker.runs:
            self.broker.start()
            self.note(f"the broker starts; its clock is {self.broker.clock} ms ahead")

    def down(self, number: int) -> None:
        """The broker has ended."""
        self.broker.end(number)
        self.note(f"the broker is ended: {signal.Signals(number).name}")

    def numbers(self, count: int) -> list[int]:
        first, self.next_number = self.next_number, self.next_number + count
        return list(range(first, first + count))

    def fill_origin(self, count: int) -> None:
        """More messages to be replayed."""
        numbers = self.numbers(count)
        new = not self.origin.exists()
        with (
            Store.create(self.origin, broker_conf=self.conf)
            if new
            else Store(self.origin, write=True, broker_conf=self.conf) as store
        ):
            store.append_many([NewMessage(topic=REPLAYED, queue_id=n % QUEUES, body=_body(n)) for n in numbers])

    def send(self, topic: str, count: int) -> None:
        """Messages, one or several in a request; what is acknowledged must be there from now on."""
        numbers = self.numbers(count)
        acked = asyncio.run(self._send(topic, numbers))
        self.told.stored |= acked
        self.note(f"sent {numbers[0]} to {numbers[-1]} to {topic}: {len(acked)} acknowledged")

    async def _send(self, topic: str, numbers: list[int]) -> dict[int, tuple[str, int]]:
        acked: dict[int, tuple[str, int]] = {}
        async with Producer(ClientOptions(namesrv=self.broker.namesrv, timeout=5), "senders") as producer:
            at = 0
            while at < len(numbers):
                part = numbers[at : at + self.rng.choice((1, 2, 8))]
                at += len(part)
                queue = MessageQueue(topic, "broker-a", self.rng.randrange(QUEUES))
                try:
                    await producer.send_batch([Message(topic, _body(n)) for n in part], queue=queue)
                except NotSent:
                    continue
                acked |= dict.fromkeys(part, (topic, queue.queue_id))
        return acked

    def remake(self, *, older: bool) -> None:
        """Another store in the place of the broker's: an empty one, or what it was before."""
        if older and self.kept is None:
            return
        self.remember()
        runs = self.broker.runs
        self.broker.end(signal.SIGTERM)
        shutil.rmtree(self.store)
        self.told = Told()
        if older and self.kept is not None:
            copy_store(self.home / "kept", self.store)
            self.told = Told(dict(self.kept.stored))
        self.remade |= {"mirror", "replay", "group"}
        self.stores += 1
        self.note(f"the broker's store is {'what it was' if older else 'made anew'}")
        if runs:
            self.broker.start()
            for topic in (SENT, REPLAYED):
                self.send(topic, self.rng.choice((1, 10, 80, 160)))

    def keep(self) -> None:
        """A copy of the broker's store, as backups have it."""
        runs = self.broker.runs
        self.broker.end(signal.SIGTERM)
        shutil.rmtree(self.home / "kept", ignore_errors=True)
        if self.store.exists():
            copy_store(self.store, self.home / "kept")
            self.kept = Told(dict(self.told.stored))
            self.note("the broker's store is kept")
        if runs:
            self.broker.start()

    def catch_up(self) -> None:
        """What is in the broker's log is in its queues, when there is room again.

        Raises:
            Wrong: it does not get there.
        """
        if not self.broker.runs:
            return
        until = time.monotonic() + 30
        while True:
            wanted = {queue: len(numbers) for queue, numbers in self.queues(SENT).items()}
            ends = asyncio.run(_asked(self.broker.namesrv, self.group, Puller.end))
            if not ends or all(ends.get(queue) == end for queue, end in wanted.items()):
                return
            if time.monotonic() > until:
                raise Wrong(f"the broker's queues end at {ends}, and its log has {wanted}")
            time.sleep(0.05)

    # -- the look -----------------------------------------------------------------------------------------------------

    def remember(self) -> dict[str, set[str]]:
        """Which messages of replays are in the broker's log: replay and place to their unique ids."""
        there: dict[str, set[str]] = defaultdict(set)
        for located in _walk(self.store):
            mark = parse(located.record.properties)
            if REPLAY in mark:
                there[mark[REPLAY]].add(mark[UNIQ_KEY])
        for place, ids in there.items():
            self.ids[place] |= ids
        return there

    def begin_replay_again(self) -> None:
        """Another journal sends everything again, also what an earlier store still has of the replays before."""
        self.journals += 1
        self.remade.discard("replay")
        replayed = (found for found in _walk(self.store) if REPLAY in parse(found.record.properties))
        self.twice |= {number for found in replayed if (number := _number(found)) is not None}

    def look(self) -> None:
        """What holds at any time.

        Raises:
            Wrong: it does not.
        """
        if not self.store.exists():
            return
        there = Counter(number for located in _walk(self.store) if (number := _number(located)) is not None)
        if lost := self.told.stored.keys() - there.keys():
            raise Wrong(f"the broker has lost {sorted(lost)[:10]} ({len(lost)}), which it has acknowledged")
        foreign = {n: times for n, times in there.items() if times > 1 and n not in self.twice}
        if foreign:
            raise Wrong(f"the broker has more than once: {sorted(foreign.items())[:10]} ({len(foreign)})")
        replayed = self.remember()
        twice = [mark for mark, ids in self.ids.items() if len(ids) > 1]
        if "replay" in self.remade and self.journals in self.cut_journals:
            # neither the journal nor the broker, which has an earlier store, knows of what was sent last
            self.ids.update({mark: replayed.get(mark, set()) for mark in twice})
            twice = [mark for mark in twice if len(self.ids[mark]) > 1]
        if twice:
            raise Wrong(f"replayed twice: {sorted(twice)[:10]} ({len(twice)})")
        self._look_at_mirror()
        self._look_at_group()

    def queues(self, topic: str) -> dict[int, list[int]]:
        """Numbers of the messages of each queue of the broker."""
        return numbers_of(self.store, topic)

    def _look_at_mirror(self) -> None:
        if not self.copy.exists() or "mirror" in self.remade:
            return
        theirs, ours = self.queues(SENT), numbers_of(self.copy, SENT)
        for queue, numbers in ours.items():
            if numbers != theirs.get(queue, [])[: len(numbers)]:
                raise Wrong(f"the mirror's queue {queue} has {numbers}, and the broker's {theirs.get(queue)}")
        if (file := self.copy / FILE).exists():
            for topic, _broker, queue, at, *_ in json.loads(file.read_text())["positions"]:
                if topic == SENT and at > len(ours.get(queue, [])):
                    raise Wrong(f"the mirror is at {at} of queue {queue}, and has {len(ours.get(queue, []))}")

    def _look_at_group(self) -> None:
        if not self.broker.runs:
            return
        theirs = self.queues(SENT)
        seen_by = {self.group: self.seen} | {group: self.taken[group] for group in map(self.group_of, ("pull", "push"))}
        for group, seen in seen_by.items():
            for queue, at in asyncio.run(_asked(self.broker.namesrv, group, Puller.committed)).items():
                if passed := set(theirs.get(queue, [])[:at]) - seen:
                    raise Wrong(f"{group} is at {at} of queue {queue}, and has not seen {sorted(passed)[:10]}")


def _body(number: int) -> bytes:
    return b"<%d>" % number + b"z" * (number % 300)


def _number(located: LocatedRecord) -> int | None:
    record = located.record
    if record.topic.decode() not in (SENT, REPLAYED) or not (body := _BODY.match(record.body)):
        return None
    return int(body[1])


def _walk(store: Path) -> Iterator[LocatedRecord]:
    if store.exists():
        for item in CommitLog(StoreLayout(str(store), BrokerConf(dict(SIZES)))).walk():
            if isinstance(item, LocatedRecord):
                yield item


def numbers_of(store: Path, topic: str) -> dict[int, list[int]]:
    """Numbers of the messages of each queue of a topic, in its order.

    Raises:
        Wrong: offsets are missing, or are there twice.
    """
    queues: dict[int, list[int]] = defaultdict(list)
    for located in _walk(store):
        if located.record.topic.decode() == topic and (number := _number(located)) is not None:
            queue = queues[located.record.queue_id]
            if located.record.queue_offset != len(queue):
                raise Wrong(f"{store}: {topic} queue {located.record.queue_id}: offset {located.record.queue_offset}")
            queue.append(number)
    return queues


async def _asked(
    namesrv: str, group: str, what: Callable[[Puller, MessageQueue], Awaitable[int | None]]
) -> dict[int, int]:
    """Of each queue; nothing of a store that was made anew, and has no topic yet."""
    async with Cluster(ClientOptions(namesrv=namesrv)) as cluster:
        puller = Puller(cluster, group)
        try:
            queues = (await cluster.route(SENT)).readable
            return {queue.queue_id: await what(puller, queue) or 0 for queue in queues}
        except (ClientError, RemotingError):
            return {}
