"""A proxy between clients and a real broker that sometimes falsifies answers, at random from a seed."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from formats.message.read import Record, read
from formats.remoting import frame
from formats.remoting.codes import PullFlag, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.remoting.client import connect
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.listener import Listener
from tests.client.peers import peer, route, tells


@dataclass
class Liar:
    """Configuration and counts of the proxy.

    It makes no change that a client could not detect. Only the broker knows which messages a filter excludes: for a
    pull with a filter, no message is removed from an answer, and a denial (nothing at this offset) is not repeated for
    the same offset. Without a filter, every change is made, and repeated.

    Attributes:
        chance: probability that an answer is falsified.
        kinds: kinds of changes; default: all.
        most: maximum number of changes; then all answers are genuine.
        told: number of changes of each kind.
    """

    seed: int
    chance: float = 0.1
    kinds: tuple[str, ...] = ()
    most: int = 60
    told: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._denied: set[tuple[str, str, str]] = set()

    async def answer(self, upstream: Connection, connection: Connection, request: Command) -> Command | None:
        """The broker's answer, genuine or falsified."""
        lies = LIES if request.code == C.PULL_MESSAGE else SENDS if request.code in _SENDS else ANY
        names = [
            name for name in sorted(lies) if (not self.kinds or name in self.kinds) and self._may_tell(name, request)
        ]
        lying = names and self.told.total() < self.most and self._random.random() < self.chance
        name = self._random.choice(names) if lying else ""
        if name in DENIALS:
            self._denied.add(_place(request))

        async def ask(changed: Command) -> Command:
            return replace(await upstream.call(changed, 40), opaque=request.opaque)

        truth = await ask(_as_other_queue(request) if name == "another queue" else request)
        if name in ("", "another queue"):
            self.told[name] += bool(name)
            return truth
        lie = lies[name](self, connection, request, truth)
        self.told[name] += lie is not truth
        return lie

    def _may_tell(self, name: str, request: Command) -> bool:
        if (request.fields or {}).get("subscription", "*") == "*":
            return True
        return name not in OMISSIONS and (name not in DENIALS or _place(request) not in self._denied)

    def draw(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


def _place(request: Command) -> tuple[str, str, str]:
    """The topic, queue and offset of a pull."""
    fields = request.fields or {}
    return fields["topic"], fields["queueId"], fields["queueOffset"]


def _as_other_queue(request: Command) -> Command:
    """The pull, changed to another queue.

    The offset committed with the pull is removed: it belongs to the client's own queue, and no answer could reveal a
    wrong commit.
    """
    fields = dict(request.fields or {})
    fields["queueId"] = str((int(fields["queueId"]) + 1) % 4)
    fields["sysFlag"] = str(int(fields["sysFlag"]) & ~PullFlag.COMMIT_OFFSET.value)
    return replace(request, fields=fields)


def _records(truth: Command) -> list[tuple[Record, bytes]]:
    collected, at = [], 0
    while at < len(truth.body):
        record = read(truth.body, at, len(truth.body))
        assert isinstance(record, Record)
        collected.append((record, truth.body[at : at + record.total_size]))
        at += record.total_size
    return collected


def _with(truth: Command, parts: list[bytes]) -> Command:
    return replace(truth, body=b"".join(parts))


def _told(truth: Command, code: int, following: int) -> Command:
    fields = dict(truth.fields or {}) | {"nextBeginOffset": str(following)}
    return replace(truth, code=code, fields=fields, body=b"")


def _empty(code: int) -> "Lie":
    """Answer that no message matches, or exists, up to the end of the queue."""

    def lie(liar: Liar, _connection: Connection, request: Command, truth: Command) -> Command:
        at, end = int((request.fields or {})["queueOffset"]), int((truth.fields or {}).get("maxOffset", "0"))
        return _told(truth, code, liar.draw(at + 1, end)) if at < end else truth

    return lie


def _first_missing(_liar: Liar, _connection: Connection, _request: Command, truth: Command) -> Command:
    parts = [data for _record, data in _records(truth)]
    return _with(truth, parts[1:]) if parts else truth


def _one_missing(liar: Liar, _connection: Connection, _request: Command, truth: Command) -> Command:
    parts = [data for _record, data in _records(truth)]
    if len(parts) < 2:
        return truth
    del parts[liar.draw(0, len(parts) - 1)]
    return _with(truth, parts)


def _out_of_order(_liar: Liar, _connection: Connection, _request: Command, truth: Command) -> Command:
    parts = [data for _record, data in _records(truth)]
    return _with(truth, parts[1:] + parts[:1]) if len(parts) > 1 else truth


def _another_topic(_liar: Liar, _connection: Connection, _request: Command, truth: Command) -> Command:
    if not (intact := _records(truth)):
        return truth
    record, data = intact[0]
    name = bytes(byte ^ 1 for byte in record.topic)  # as long as it was
    return _with(truth, [data.replace(record.topic, name), *[data for _record, data in intact[1:]]])


def _older(_liar: Liar, _connection: Connection, request: Command, truth: Command) -> Command:
    """Answer with the beginning of the queue instead."""
    if not (intact := _records(truth)):
        return truth
    at = int((request.fields or {})["queueOffset"])
    parts = []
    for number, (_record, data) in enumerate(intact):
        if (old := at - len(intact) + number) < 0:
            return truth
        parts.append(data[:20] + old.to_bytes(8, "big") + data[28:])
    return _with(truth, parts)


def _twice(_liar: Liar, connection: Connection, _request: Command, truth: Command) -> Command:
    connection.send(truth)
    return replace(truth)


def _nobodys(_liar: Liar, _connection: Connection, request: Command, truth: Command) -> Command:
    return replace(truth, opaque=request.opaque ^ 0x40000000)


def _cut(liar: Liar, connection: Connection, _request: Command, truth: Command) -> Command | None:
    data = frame.build(truth)
    transport = connection._transport
    assert transport is not None
    transport.write(data[: liar.draw(1, len(data) - 1)])
    transport.close()
    return None


Lie = Callable[[Liar, Connection, Command, Command], Command | None]
ANY: dict[str, Lie] = {"twice": _twice, "nobody's": _nobodys, "cut": _cut}
LIES: dict[str, Lie] = ANY | {
    "another queue": lambda _liar, _connection, _request, truth: truth,
    "another topic": _another_topic,
    "older": _older,
    "the first is missing": _first_missing,
    "one is missing": _one_missing,
    "out of order": _out_of_order,
    "no match": _empty(ResponseCode.PULL_RETRY_IMMEDIATELY),
    "not found": _empty(ResponseCode.PULL_NOT_FOUND),
    "moved": _empty(ResponseCode.PULL_OFFSET_MOVED),
}
_SENDS = {C.SEND_MESSAGE, C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE}


def _stored(**more: int) -> Lie:
    """The answer to a send, of another queue or with another offset, as of another message that was sent."""

    def lie(_liar: Liar, _connection: Connection, _request: Command, truth: Command) -> Command:
        fields = dict(truth.fields or {})
        if truth.code or any(name not in fields for name in more):
            return truth
        changed = {name: str(max(int(fields[name]) + by, 0)) for name, by in more.items()}
        return replace(truth, fields=fields | changed)

    return lie


SENDS: dict[str, Lie] = ANY | {
    "stored in another queue": _stored(queueId=1),
    "stored far behind": _stored(queueOffset=1000),
    "stored a little behind": _stored(queueOffset=3),
    "stored before": _stored(queueOffset=-3),
}
OMISSIONS = {"the first is missing", "one is missing"}
DENIALS = {"no match", "not found", "another queue"}  # the other queue may have nothing that matches


class Opaques:
    """Swaps the answers of two pulls now and then.

    Args:
        chance: probability that a pull waits for another one, and gets its answer.
        most: maximum number of swaps.
    """

    def __init__(self, seed: int, chance: float, most: int = 25) -> None:
        self._random, self._chance, self._most = random.Random(seed), chance, most
        self._waits: asyncio.Future[Command] | None = None
        self._held: Command
        self.told = Counter[str]()

    async def answer(self, upstream: Connection, _connection: Connection, request: Command) -> Command:
        truth = await upstream.call(request, 40)
        if request.code != C.PULL_MESSAGE or truth.code or self.told.total() >= self._most:
            return replace(truth, opaque=request.opaque)
        if (other := self._waits) is not None and not other.done():
            self._waits = None
            other.set_result(truth)
            self.told["another's opaque"] += 1
            return replace(self._held, opaque=request.opaque)
        if self._random.random() < self._chance:
            self._held = truth
            self._waits = asyncio.get_running_loop().create_future()
            waits = self._waits
            try:
                async with asyncio.timeout(0.3):
                    return replace(await waits, opaque=request.opaque)
            except TimeoutError:
                if self._waits is waits:
                    self._waits = None
        return replace(truth, opaque=request.opaque)


class Answerer(Protocol):
    """Proxy between clients and a broker."""

    async def answer(self, upstream: Connection, connection: Connection, request: Command, /) -> Command | None:
        """The answer to a client."""


@asynccontextmanager
async def lied_about(broker: str, liar: Answerer, *topics: str) -> AsyncIterator[str]:
    """The address of a name server whose only broker is the proxy in front of a genuine one."""
    upstreams: dict[Connection, asyncio.Task[Connection]] = {}
    made: list[Connection] = []
    ends: list[asyncio.Task[None]] = []
    host, _, port = broker.rpartition(":")

    async def dialed(connection: Connection) -> Connection:
        upstream = await connect(host, int(port), handler=lambda _up, back: _forward(connection, back))
        made.append(upstream)
        ends.append(asyncio.create_task(_end_with(connection, upstream)))
        return upstream

    async def answered(connection: Connection, request: Command) -> Command | None:
        if connection not in upstreams:
            upstreams[connection] = asyncio.create_task(dialed(connection))
        upstream = await asyncio.shield(upstreams[connection])
        if request.is_oneway:
            await upstream.oneway(request)
            return None
        return await liar.answer(upstream, connection, request)

    listener = Listener(answered)
    await listener.start("127.0.0.1", 0)
    try:
        async with peer() as namesrv:
            data = route(("broker-a", listener.address), queues=4)
            retries = route(("broker-a", listener.address), queues=1)
            routes = {topic: retries if topic.startswith("%RETRY%") else data for topic in topics}
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({**routes, "TBW102": data})
            yield namesrv.address
    finally:
        await listener.stop()
        for upstream in made:
            upstream.abort()
            await upstream.lost.wait()
        await asyncio.gather(*ends)


async def _end_with(connection: Connection, upstream: Connection) -> None:
    await connection.lost.wait()
    upstream.abort()


def _forward(connection: Connection, request: Command) -> None:
    """Forward requests from the broker to the client."""
    if not connection.closed:
        connection.tell(request)
