"""The queues that a push consumer has: taken, fed, locked, given up (impl.consumer.RebalancePushImpl)."""

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
from rmqtool.client.consumer.offsets import beginning
from rmqtool.client.consumer.options import PushOptions
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.subscriptions import Subscriptions
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_TIMEOUT = 1.0  # s
_LAST_CALL = 1.0  # s that a listener has until its queue is tried to be given up later


@dataclass(frozen=True)
class Locks:
    """Asks brokers for queues, and gives them back. A lock lasts for 60 s, and belongs to the client's id."""

    cluster: Cluster
    group: str

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Those of some queues of one broker that are this client's alone now; locks that it has are renewed.

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


class HeldQueues:
    """Has the queues that are this client's, and gives them up with the group's offsets in them.

    Args:
        fetcher: fills them.
        handler: consumes them.
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
        self._taking: set[MessageQueue] = set()  # queues that may be locked, and are not held yet
        self._turn = asyncio.Lock()  # a queue that is reset is not to be given up meanwhile, with its old offset

    # -- taking and giving up -----------------------------------------------------------------------------------------

    async def apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        """Have these queues of a topic, and no others; whether that is so now."""
        async with self._turn:
            return await self._apply(topic, mine)

    async def _apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        held, balanced = self._subscriptions, True
        before = set(held.queues)
        for process in held.of_topic(topic):
            # one that is leaving was not ready to be given up, and is this client's again
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
            process.offset = await beginning(
                puller, queue, options.start, options.start_time, self._subscriptions.began
            )
        else:
            process.offset = process.consumed
        self._fetcher.start(process)
        self._taking.discard(queue)
        return True

    async def _give_up(self, process: ProcessQueue) -> bool:
        """Leave a queue to others, with its offset; whether the listener was ready for it."""
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
        """Go on at other offsets (ResetOffset of an admin); queues that are not this client's are left alone."""
        async with self._turn:
            queues = self._subscriptions.queues
            resetting = [queues[queue] for queue in offsets if queue in queues]
            for process in resetting:
                process.stop()
                process.dropped = True  # what a listener has counts no more
            await asyncio.gather(*[self._handler.leave(process, RESET_WAIT) for process in resetting])
            for process in filter(self._subscriptions.holds, resetting):
                process.consumed = offsets[process.queue]
                await self._subscriptions.keep(process)
            for process in filter(self._subscriptions.holds, resetting):
                self._fetcher.restart(process, offsets[process.queue])

    # -- while they are held ------------------------------------------------------------------------------------------

    async def renew_locks(self) -> None:
        """Say to brokers that queues are still this client's. A queue that has become another's is left."""
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
        """Whether the group is further than this client has brought it, whose lock had run out."""
        try:
            stored = await self._subscriptions.store.read(process.queue)
        except (ClientError, RemotingError):
            return True
        return stored is not None and stored > (process.consumed or 0)

    async def close(self) -> None:
        """Keep the offsets, and give back all queues but those whose listener has not come to an end."""
        await self._subscriptions.keep()
        done: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self._taking - self._subscriptions.queues.keys():
            done[queue.broker_name].append(queue)
        for queue, process in list(self._subscriptions.queues.items()):
            process.dropped = True
            if self._locking and await self._handler.leave(process, 0.01):
                done[queue.broker_name].append(queue)
        self._subscriptions.revoke_all()
        await asyncio.gather(*[self._locks.unlock(queues) for queues in done.values()])


def _mark_locked(process: ProcessQueue) -> None:
    process.locked_at = asyncio.get_running_loop().time()
    process.lock_time = time.time_ns() // 1_000_000
