"""Queues that brokers keep for one client of a group (impl.consumer.RebalanceImpl.lock, lockAll, unlockAll)."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from formats.fastjson.declare import body_of
from formats.remoting import headers as h
from formats.remoting.bodies import LockRequest, LockResponse
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError
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
