"""The queues that a push consumer has: taken, fed, locked, given up (impl.consumer.RebalancePushImpl)."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from formats.remoting import headers as h
from formats.remoting.bodies import LockRequest, LockResponse
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.remoting.typed import body_of
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer.fetcher import Feeding, Held
from rmqtool.client.consumer.offsets import LocalOffsets, Offsets, RemoteOffsets, beginning
from rmqtool.client.consumer.options import PushOptions
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.puller import Puller
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_TIMEOUT = 1.0  # s


@dataclass(frozen=True)
class Locks:
    """Asks brokers for queues, and gives them back. A lock lasts for 60 s, and belongs to the client's id."""

    cluster: Cluster
    group: str

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Those of some queues of one broker that are this client's alone now; locks that it has are renewed.

        Raises:
            ClientError, RemotingError: it cannot be told.
        """
        address = self._address(queues)
        response = await self.cluster.call(address, self._request(RequestCode.LOCK_BATCH_MQ, queues))
        if response.code:
            log.warning("%s: queues are not locked: %s", address, response.remark)
            return set()
        return set(body_from(LockResponse, response, address).lock_ok_mq_set) & set(queues)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Give back queues of one broker; where that fails, the locks end by themselves."""
        try:
            address = self._address(queues)
            await self.cluster.ask(address, self._request(RequestCode.UNLOCK_BATCH_MQ, queues), _TIMEOUT)
        except (ClientError, RemotingError) as err:
            log.warning("queues stay locked for a while: %s", err)

    def _address(self, queues: Collection[MessageQueue]) -> str:
        return self.cluster.address(next(iter(queues)).broker_name)

    def _request(self, code: RequestCode, queues: Collection[MessageQueue]) -> Command:
        older = not self.cluster.options.release.is_5
        wanted = LockRequest(self.group, self.cluster.client_id, sorted(queues), None if older else False)
        return self.cluster.request(code, None if older else h.Empty(), body_of(wanted))


_LAST_CALL = 1.0  # s that a listener has until its queue is tried to be given up later
_RESET_WAIT = 10.0  # s that it has where offsets are reset


class Handler(Protocol):
    """Who consumes: a Processing or an OrderlyProcessing."""

    async def leave(self, process: ProcessQueue, wait: float) -> bool:
        """Begin no call more; whether the one that runs has ended."""


class Holding:
    """Queues and where the group is in them.

    Args:
        pullers: topic to who asks for its queues.
        offsets: in memory.
        kept: where they last.
        began: when the consumer was made, in ms.

    Attributes:
        held: the queues.
        feeding: fills them; set before the first is taken.
        handler: consumes them; likewise.
    """

    feeding: Feeding
    handler: Handler

    def __init__(
        self,
        pullers: Mapping[str, Puller],
        options: PushOptions,
        offsets: Offsets,
        kept: RemoteOffsets | LocalOffsets,
        locks: Locks,
        began: int,
    ) -> None:
        self._pullers, self._options, self.offsets, self._kept = pullers, options, offsets, kept
        self._locks, self._began = locks, began
        self._locking = options.orderly and not options.broadcasting
        self.held: dict[MessageQueue, Held] = {}
        self._taking: set[MessageQueue] = set()  # queues that may be locked, and are not held yet
        self._turn = asyncio.Lock()  # a queue that is reset is not to be given up meanwhile, with its old offset

    # -- taking and giving up -----------------------------------------------------------------------------------------

    async def apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        """Have these queues of a topic, and no others; whether that is so now."""
        async with self._turn:
            return await self._apply(topic, mine)

    async def _apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        balanced, before = True, set(self.held)
        for queue in [queue for queue in self.held if queue.topic == topic and queue not in mine]:
            balanced &= await self._give_up(queue)
        for queue in [queue for queue in self.held if queue.topic == topic and self.held[queue].process.leaving]:
            balanced &= await self._give_up(queue)  # it was not ready to be given up, and is this client's again
        for queue in sorted(set(mine) - self.held.keys()):
            try:
                balanced &= await self._take(queue)
            except (ClientError, RemotingError) as err:
                log.warning("%s: not consumed yet: %s", queue, err)
                balanced = False
        if before != set(self.held):
            self.feeding.limits[topic] = self._options.limits.of_queue(sum(queue.topic == topic for queue in self.held))
        return balanced

    async def _take(self, queue: MessageQueue) -> bool:
        process = ProcessQueue()
        if self._locking:
            self._taking.add(queue)
            if queue not in await self._locks.lock([queue]):
                log.info("%s: another client has it still", queue)
                self._taking.discard(queue)
                return False
            _locked(process)
        self.offsets.forget(queue)
        offset = await self._first(queue)
        held = self.held[queue] = Held(offset, process)
        self._taking.discard(queue)
        self.feeding.begin(queue, held)
        return True

    async def _give_up(self, queue: MessageQueue) -> bool:
        """Leave a queue to others, with its offset; whether the listener was ready for it."""
        held = self.held[queue]
        stop(held)
        if not await self.handler.leave(held.process, _LAST_CALL):
            log.info("%s: its listener is not at its end; given up later", queue)
            return False
        if self.held.get(queue) is not held:
            return True
        held.process.dropped = True
        await self.persist([queue])
        self.held.pop(queue, None)
        self.offsets.forget(queue)
        if self._locking:
            await self._locks.unlock([queue])
        return True

    async def _first(self, queue: MessageQueue) -> int:
        """Where the group goes on, or begins."""
        stored = await self._kept.read(queue)
        if stored is not None:
            self.offsets.set(queue, stored)
            return stored
        options = self._options
        return await beginning(self._pullers[queue.topic], queue, options.start, options.start_time, self._began)

    async def move(self, queue: MessageQueue, held: Held, offset: int) -> None:
        """The broker has nothing at an offset: go on where it says, with nothing of what was pulled before."""
        level = logging.INFO if self.offsets.at(queue) is None else logging.WARNING  # or it is a group's beginning
        log.log(level, "%s: offset %d is outside of the queue; on at %d", queue, held.offset, offset)
        await self.handler.leave(held.process, _RESET_WAIT)
        held.process.dropped = True
        self.offsets.set(queue, offset)
        await self.persist([queue])
        await asyncio.sleep(self._options.error_pause)  # brokers that say so for ever are asked once in a while
        if self.held.get(queue) is held:
            self._begin_again(queue, held, offset)

    def _begin_again(self, queue: MessageQueue, before: Held, offset: int) -> None:
        held = self.held[queue] = Held(offset)
        held.process.locked_at, held.process.lock_time = before.process.locked_at, before.process.lock_time
        self.feeding.begin(queue, held)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets (ResetOffset of an admin); queues that are not this client's are left alone."""
        async with self._turn:
            await self._reset(offsets)

    async def _reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        there = {queue: self.held[queue] for queue in offsets if queue in self.held}
        for held in there.values():
            stop(held)
            held.process.dropped = True  # what a listener has counts no more
        await asyncio.gather(*[self.handler.leave(held.process, _RESET_WAIT) for held in there.values()])
        for queue, held in there.items():
            if self.held.get(queue) is held:
                self.offsets.set(queue, offsets[queue])
                await self.persist([queue])
        for queue, held in there.items():
            if self.held.get(queue) is held:
                self._begin_again(queue, held, offsets[queue])

    def position(self, queue: MessageQueue) -> int:
        """The next offset to consume of a queue that is held."""
        known = self.offsets.at(queue)
        if known is not None:
            return known
        held = self.held[queue]
        return held.process.span()[0] if len(held.process) else held.offset

    # -- while they are held ------------------------------------------------------------------------------------------

    async def persist_all(self) -> None:
        """Keep the offsets of all queues."""
        await self.persist(list(self.held))

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Keep the offsets of queues."""
        known = {queue: offset for queue in queues if (offset := self.offsets.at(queue)) is not None}
        if known:
            await self._kept.write(known)

    async def renew_locks(self) -> None:
        """Say to brokers that queues are still this client's. A queue that has become another's is left."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self.held:
            by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*[self._renew(queues) for queues in by_broker.values()])

    async def _renew(self, queues: list[MessageQueue]) -> None:
        now = asyncio.get_running_loop().time()
        try:
            granted = await self._locks.lock(queues)
        except (ClientError, RemotingError) as err:
            log.warning("locks are not renewed: %s", err)
            return
        for queue in queues:
            held = self.held.get(queue)
            if held is None or held.process.dropped:
                continue
            lost = queue not in granted
            if not lost and not held.process.locked(now):
                lost = await self._others_went_on(queue)
            if lost:
                log.warning("%s: another client has had it meanwhile; begun anew", queue)
                self._lose(queue, held)
            else:
                _locked(held.process)

    async def _others_went_on(self, queue: MessageQueue) -> bool:
        """Whether the group is further than this client has brought it, whose lock had run out."""
        try:
            stored = await self._kept.read(queue)
        except (ClientError, RemotingError):
            return True
        return stored is not None and stored > (self.offsets.at(queue) or 0)

    def _lose(self, queue: MessageQueue, held: Held) -> None:
        """A queue is another client's: its offset too, and nothing of this client's counts."""
        stop(held)
        held.process.dropped = held.process.leaving = True
        del self.held[queue]
        self.offsets.forget(queue)

    async def close(self) -> None:
        """Keep the offsets, and give back all queues but those whose listener has not come to an end."""
        await self.persist_all()
        done: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self._taking - self.held.keys():
            done[queue.broker_name].append(queue)
        for queue, held in self.held.items():
            held.process.dropped = True
            if self._locking and await self.handler.leave(held.process, 0.01):
                done[queue.broker_name].append(queue)
        self.held.clear()
        await asyncio.gather(*[self._locks.unlock(queues) for queues in done.values()])


def stop(held: Held) -> None:
    """Pull no more."""
    if held.task is not None:
        held.task.cancel()


def _locked(process: ProcessQueue) -> None:
    process.locked_at = asyncio.get_running_loop().time()
    process.lock_time = time.time_ns() // 1_000_000
