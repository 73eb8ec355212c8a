"""The queues of a push consumer: acquiring, locking and releasing them (impl.consumer.RebalancePushImpl)."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from formats.fastjson.declare import body_of
from formats.remoting import headers as h
from formats.remoting.bodies import LockRequest, LockResponse
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.client.consumer.fetcher import RESET_WAIT, Fetcher, Handler
from rmqtool.client.consumer.offsets import find_beginning
from rmqtool.client.consumer.options import PushOptions
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.subscriptions import Subscriptions
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_TIMEOUT = 1.0  # s
_LAST_CALL = 1.0  # s to wait for a listener before releasing its queue is postponed


@dataclass(frozen=True)
class Locks:
    """Locks and unlocks queues at brokers. A lock lasts 60 s and belongs to the client id."""

    cluster: Cluster
    group: str

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Lock queues of one broker, or renew the locks; returns the queues that are locked for this client.

        Raises:
            ClientError, RemotingError: the broker does not answer.
        """
        address = self._address(queues)
        response = await self.cluster.call(address, self._request(RequestCode.LOCK_BATCH_MQ, queues))
        if response.code:
            log.warning("queues are not locked: %s", BrokerError(response, address))
            return set()
        return set(body_from(LockResponse, response, address).lock_ok_mq_set) & set(queues)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock queues of one broker; if that fails, the locks expire."""
        try:
            address = self._address(queues)
            await self.cluster.ask(address, self._request(RequestCode.UNLOCK_BATCH_MQ, queues), _TIMEOUT)
        except (ClientError, RemotingError) as err:
            log.warning("queues stay locked for a while: %s", err)

    def _address(self, queues: Collection[MessageQueue]) -> str:
        return self.cluster.address(next(iter(queues)).broker_name)

    def _request(self, code: RequestCode, queues: Collection[MessageQueue]) -> Command:
        older = not self.cluster.options.release.is_5
        lock_request = LockRequest(self.group, self.cluster.client_id, sorted(queues), None if older else False)
        return self.cluster.request(code, None if older else h.Empty(), body_of(lock_request))


class HeldQueues:
    """Acquires and releases this client's queues, committing their offsets.

    Args:
        fetcher: pulls their messages.
        handler: consumes their messages.
    """

    def __init__(
        self,
        subscriptions: Subscriptions[ProcessQueue],
        options: PushOptions,
        fetcher: Fetcher,
        handler: Handler,
        locks: Locks,
    ) -> None:
        self._subscriptions, self._options, self._fetcher = subscriptions, options, fetcher
        self._handler, self._locks = handler, locks
        self._locking = options.orderly and not options.broadcasting
        self._taking: set[MessageQueue] = set()  # queues that may be locked but are not held yet
        self._turn = asyncio.Lock()  # a queue being reset must not be released meanwhile with its old offset

    # -- taking and giving up -----------------------------------------------------------------------------------------

    async def apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        """Hold exactly these queues of a topic; returns whether that is so now."""
        async with self._turn:
            return await self._apply(topic, mine)

    async def _apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        held, balanced = self._subscriptions, True
        before = set(held.queues)
        for process in held.of_topic(topic):
            # a leaving queue that could not be released yet belongs to this client again
            if process.queue not in mine or process.leaving:
                balanced &= await self._give_up(process)
        for queue in sorted(set(mine) - held.queues.keys()):
            try:
                balanced &= await self._take(queue)
            except (ClientError, RemotingError) as err:
                log.warning("%s: not consumed yet: %s", queue, err)
                balanced = False
        if before != set(held.queues):
            held.topics[topic].limits = self._options.limits.of_queue(len(held.of_topic(topic)))
        return balanced

    async def _take(self, queue: MessageQueue) -> bool:
        process = ProcessQueue(queue)
        if self._locking:
            self._taking.add(queue)
            if queue not in await self._locks.lock([queue]):
                log.info("%s: another client has it still", queue)
                self._taking.discard(queue)
                return False
            _mark_locked(process)
        process.consumed = await self._subscriptions.store.read(queue)
        if process.consumed is None:
            options, puller = self._options, self._subscriptions.puller(queue.topic)
            process.offset = await find_beginning(
                puller, queue, options.start, options.start_time, self._subscriptions.began
            )
        else:
            process.offset = process.consumed
        self._fetcher.start(process)
        self._taking.discard(queue)
        return True

    async def _give_up(self, process: ProcessQueue) -> bool:
        """Release a queue with its offset; returns False if its listener is still running."""
        process.stop()
        if not await self._handler.leave(process, _LAST_CALL):
            log.info("%s: its listener is not at its end; given up later", process.queue)
            return False
        if not self._subscriptions.holds(process):
            return True
        process.dropped = True
        await self._subscriptions.keep(process)
        self._subscriptions.revoke(process.queue)
        if self._locking:
            await self._locks.unlock([process.queue])
        return True

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets (an admin's reset); queues of other members are ignored."""
        async with self._turn:
            queues = self._subscriptions.queues
            resetting = [queues[queue] for queue in offsets if queue in queues]
            for process in resetting:
                process.stop()
                process.dropped = True  # ignore results of running calls
            await asyncio.gather(*[self._handler.leave(process, RESET_WAIT) for process in resetting])
            for process in filter(self._subscriptions.holds, resetting):
                process.consumed = offsets[process.queue]
                await self._subscriptions.keep(process)
            for process in filter(self._subscriptions.holds, resetting):
                self._fetcher.restart(process, offsets[process.queue])

    # -- while they are held ------------------------------------------------------------------------------------------

    async def renew_locks(self) -> None:
        """Renew the locks at brokers. A queue now locked by another member is released."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self._subscriptions.queues:
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
            process = self._subscriptions.queues.get(queue)
            if process is None or process.dropped:
                continue
            lost = queue not in granted
            if not lost and not process.is_locked(now):
                lost = await self._others_went_on(process)
            if lost:
                log.warning("%s: another client has had it meanwhile; started again", queue)
                process.stop()
                process.dropped = process.leaving = True
                self._subscriptions.revoke(queue)
            else:
                _mark_locked(process)

    async def _others_went_on(self, process: ProcessQueue) -> bool:
        """Whether the group's offset has moved beyond this client's, whose lock had expired."""
        try:
            stored = await self._subscriptions.store.read(process.queue)
        except (ClientError, RemotingError):
            return True
        return stored is not None and stored > (process.consumed or 0)

    async def close(self) -> None:
        """Commit offsets, and release all queues except those whose listener is still running."""
        await self._subscriptions.keep()
        released: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self._taking - self._subscriptions.queues.keys():
            released[queue.broker_name].append(queue)
        for queue, process in list(self._subscriptions.queues.items()):
            process.dropped = True
            if self._locking and await self._handler.leave(process, 0.01):
                released[queue.broker_name].append(queue)
        self._subscriptions.revoke_all()
        await asyncio.gather(*[self._locks.unlock(queues) for queues in released.values()])


def _mark_locked(process: ProcessQueue) -> None:
    process.locked_at = asyncio.get_running_loop().time()
    process.lock_time = time.time_ns() // 1_000_000
