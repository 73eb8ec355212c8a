"""A simulated broker and clock: hours of a group in a second, deterministically.

The event loop jumps to the next due event. Requests take time, requests or answers are lost, and members leave or are
killed, at random from a seed.
"""

import asyncio
import random
import selectors
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from formats.fastjson.declare import body_of, read_body
from formats.message.build import compose, pack
from formats.remoting.bodies import ConsumerIds, LockRequest, LockResponse
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue
from rmqtool.client import ClientOptions, Cluster
from rmqtool.client.cluster.groups import GroupMembership
from rmqtool.client.cluster.routes import Route
from rmqtool.remoting.errors import ConnectionLost, NoAnswer

TOPIC, GROUP = "T", "g"
RETRY = f"%RETRY%{GROUP}"
_LOCK_LIFE = 60.0  # s


class _Jumps(selectors.DefaultSelector):
    """A selector without external events: a wait ends at once and advances the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing is due")
        self.now += max(timeout, 0)
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop with simulated time."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now


def simulate(work: Coroutine[Any, Any, None]) -> None:
    """Run a test in simulated time."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(work)


@dataclass
class Stored:
    """A message of a queue, with the time from which it can be pulled."""

    key: int
    times: int
    due: float


class Broker:
    """The group's only broker.

    Args:
        lost: probability that a request, or an answer, is lost.

    Attributes:
        queues: messages by queue, including the retry topic.
        committed: offsets of the group.
        dead: keys of dead letters.
    """

    def __init__(self, chance: random.Random, queues: int, lost: float) -> None:
        self.chance, self.lost = chance, lost
        self.names = [MessageQueue(TOPIC, "a", number) for number in range(queues)]
        self.retry = MessageQueue(RETRY, "a", 0)
        self.queues: dict[MessageQueue, list[Stored]] = {queue: [] for queue in [*self.names, self.retry]}
        self.committed: dict[MessageQueue, int] = {}
        self.dead: set[int] = set()
        self.members: dict[str, Member] = {}
        self.locks: dict[MessageQueue, tuple[str, float]] = {}
        self.came = asyncio.Event()
        self.checks: list[Callable[[MessageQueue, int], None]] = []

    def put(self, queue: MessageQueue, key: int, times: int = 0, delay: float = 0) -> None:
        self.queues[queue].append(Stored(key, times, asyncio.get_running_loop().time() + delay))
        self.came.set()
        self.came = asyncio.Event()

    def route(self, topic: str) -> Route:
        queues = tuple(self.names) if topic == TOPIC else (self.retry,)
        return Route(topic, queues, queues, {"a": {0: "sim"}}, {"a": len(queues)})

    def join(self, member: "Member") -> None:
        if member.client_id not in self.members:
            self.members[member.client_id] = member
            self.notify()

    def leave(self, client_id: str) -> None:
        if self.members.pop(client_id, None) is not None:
            self.notify()

    def notify(self) -> None:
        for member in self.members.values():
            handler = member.answers.get(C.NOTIFY_CONSUMER_IDS_CHANGED)
            if handler is not None and self.chance.random() > self.lost:
                handler(None, Command(C.NOTIFY_CONSUMER_IDS_CHANGED, fields={"consumerGroup": GROUP}))

    async def answer(self, member: "Member", request: Command) -> Command:
        fields = dict(request.fields or {})
        now = asyncio.get_running_loop().time()
        if request.code == C.GET_CONSUMER_LIST_BY_GROUP:
            return request.response(body=body_of(ConsumerIds(sorted(self.members))))
        if request.code in (C.LOCK_BATCH_MQ, C.UNLOCK_BATCH_MQ):
            wanted = read_body(LockRequest, request.body).mq_set
            return self._locked(member, request, wanted, now)
        queue = MessageQueue(fields["topic"], "a", int(fields["queueId"])) if "topic" in fields else self.retry
        if request.code == C.QUERY_CONSUMER_OFFSET:
            if queue not in self.committed:
                return request.response(ResponseCode.QUERY_NOT_FOUND, "never")
            return request.response(fields={"offset": str(self.committed[queue])})
        if request.code == C.UPDATE_CONSUMER_OFFSET:
            self._commit(queue, int(fields["commitOffset"]))
            return request.response()
        if request.code in (C.GET_MIN_OFFSET, C.GET_MAX_OFFSET):
            end = len(self.queues[queue]) if request.code == C.GET_MAX_OFFSET else 0
            return request.response(fields={"offset": str(end)})
        if request.code == C.CONSUMER_SEND_MSG_BACK:
            return self._back(request, fields)
        assert request.code == C.PULL_MESSAGE, request
        return await self._pull(request, fields, queue)

    def _commit(self, queue: MessageQueue, offset: int) -> None:
        self.committed[queue] = offset
        for check in self.checks:
            check(queue, offset)

    def _locked(self, member: "Member", request: Command, wanted: list[MessageQueue], now: float) -> Command:
        granted = []
        for queue in wanted:
            owner, since = self.locks.get(queue, (member.client_id, now))
            if owner == member.client_id or now - since > _LOCK_LIFE:
                granted.append(queue)
                if request.code == C.LOCK_BATCH_MQ:
                    self.locks[queue] = member.client_id, now
                else:
                    self.locks.pop(queue, None)
        return request.response(body=body_of(LockResponse(granted)))

    def _back(self, request: Command, fields: dict[str, str]) -> Command:
        number, offset = divmod(int(fields["offset"]), 1_000_000)
        queue = self.retry if number == 999 else self.names[number]
        stored = self.queues[queue][offset]
        if stored.times >= int(fields["maxReconsumeTimes"]) or int(fields["delayLevel"]) < 0:
            self.dead.add(stored.key)
        else:
            self.put(self.retry, stored.key, stored.times + 1, 10.0 * (stored.times + 1))
        return request.response()

    async def _pull(self, request: Command, fields: dict[str, str], queue: MessageQueue) -> Command:
        loop = asyncio.get_running_loop()
        at, end = int(fields["queueOffset"]), loop.time() + int(fields["suspendTimeoutMillis"]) / 1000
        if int(fields["sysFlag"]) & 1:
            self._commit(queue, int(fields["commitOffset"]))
        log = self.queues[queue]
        while at >= len(log) or log[at].due > loop.time():
            if loop.time() >= end:
                return self._told(request, ResponseCode.PULL_NOT_FOUND, at, len(log))
            try:
                async with asyncio.timeout(min(end - loop.time(), 1.0)):
                    await self.came.wait()
            except TimeoutError:
                pass
        following = at
        body = b""
        while following < min(len(log), at + int(fields["maxMsgNums"])) and log[following].due <= loop.time():
            body += _record(queue, following, log[following])
            following += 1
        return self._told(request, 0, following, len(log), body)

    def _told(self, request: Command, code: int, following: int, end: int, body: bytes = b"") -> Command:
        told = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(end)}
        return request.response(code, fields=told, body=body)


def _record(queue: MessageQueue, offset: int, stored: Stored) -> bytes:
    number = 999 if queue.topic == RETRY else queue.queue_id
    return pack(
        compose(
            topic=queue.topic.encode(), queue_id=queue.queue_id, queue_offset=offset,
            physical_offset=number * 1_000_000 + offset, body=b"%d" % stored.key, born_timestamp=1,
            born_address=b"\x7f\0\0\1", born_port=1, store_timestamp=1, store_address=b"\x7f\0\0\1", store_port=1,
            reconsume_times=stored.times, properties=b"RETRY_TOPIC\x01T" if stored.times else b"",
        )
    )  # fmt: skip


class SimulatedGroups(GroupMembership):
    """The groups of a member, announced by its heartbeats."""

    def __init__(self, member: "Member") -> None:
        self.member = member

    def add_consumer(self, group: str, describe: Callable[[], ConsumerData]) -> None:
        """Do nothing: all heartbeats are equal."""

    async def remove_consumer(self, group: str) -> None:
        if not self.member.gone:
            self.member.broker.leave(self.member.client_id)

    async def leave_all(self) -> None:
        """Do nothing."""


class Member(Cluster):
    """A client's view of the broker, replacing connections."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__(ClientOptions(namesrv="127.0.0.1:1", client_id=name))
        self.broker, self.gone = broker, False
        self.answers: dict[int, Any] = {}
        self.groups = SimulatedGroups(self)
        self._counts: dict[int, int] = defaultdict(int)

    async def call(self, address: str, request: Command, timeout: float | None = None, **_how: Any) -> Command:
        chance = self.broker.chance
        await asyncio.sleep(chance.uniform(0.0005, 0.02))
        if self.gone:
            raise ConnectionLost("it is gone")
        if chance.random() < self.broker.lost:
            await asyncio.sleep(3)
            raise NoAnswer("the request was lost")
        response = await self.broker.answer(self, request)
        await asyncio.sleep(chance.uniform(0.0005, 0.02))
        if self.gone or chance.random() < self.broker.lost:
            await asyncio.sleep(3)
            raise NoAnswer("the answer was lost")
        return response

    async def route(self, topic: str) -> Route:
        return self.broker.route(topic)

    async def publish_route(self, topic: str, template: str = "", queue_nums: int = 4) -> Route:
        raise ConnectionLost("nothing is sent")  # so that what is not sent back is tried again

    def address(self, broker_name: str, broker_id: int = 0) -> str:
        return "sim"

    def reading_address(self, broker_name: str, broker_id: int = 0) -> str:
        return "sim"

    def on(self, code: C, handler: Any) -> None:
        self.answers[code] = handler

    async def heartbeat(self) -> None:
        self.broker.join(self)
