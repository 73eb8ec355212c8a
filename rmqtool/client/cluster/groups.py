"""The groups of a client, and its heartbeats."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from formats.fastjson.declare import body_of
from formats.primitives import java_hash
from formats.remoting import headers as h
from formats.remoting.bodies import HeartbeatData
from formats.remoting.codes import RequestCode
from formats.remoting.shapes import ConsumerData, ProducerData
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.cluster.errors import BrokerError
from rmqtool.client.cluster.peers import Peers
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_LEAVING = 1.0  # s for telling a broker that a client leaves
_SOON = 1.0  # s after which a heartbeat that failed is sent again; doubled each time


class GroupMembership:
    """Announces the client's groups to brokers; without a group there are no heartbeats.

    Args:
        addresses: gives the brokers in routes in use, with or without slaves.
        spawn: runs a task while the client is open.
        short: omit from heartbeats what a broker already knows (heartbeat v2 of 5.x).
        interval: seconds between heartbeats; those that failed are sent again sooner.
    """

    def __init__(
        self,
        client_id: str,
        peers: Peers,
        addresses: Callable[..., list[str]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        short: bool = False,
        interval: float = 30.0,
    ) -> None:
        self._client_id, self._peers, self._addresses, self._spawn = client_id, peers, addresses, spawn
        self._short = short and peers.release.is_5
        self._openings: Counter[str] = Counter()  # a broker forgets a client when its connection ends
        self._known_to: dict[str, tuple[int, int]] = {}  # by broker, over which connection
        self._producers: set[str] = set()
        self._consumers: dict[str, Callable[[], ConsumerData]] = {}
        self._connecting: set[str] = set()  # brokers being connected to for a heartbeat
        self._interval = interval
        self._again: set[str] = set()  # brokers that soon get another heartbeat

    def add_producer(self, group: str) -> None:
        """Join a producer group."""
        self._producers.add(group)
        self.greet(self._known_addresses())

    def add_consumer(self, group: str, describe: Callable[[], ConsumerData]) -> None:
        """Join a consumer group; ``describe`` gives its subscriptions for a heartbeat."""
        self._consumers[group] = describe
        self.greet(self._known_addresses())

    async def remove_producer(self, group: str) -> None:
        """Leave a group; unreachable brokers notice by themselves."""
        if group in self._producers:
            self._producers.remove(group)
            await self._leave(h.Unregister(client_id=self._client_id, producer_group=group))

    async def remove_consumer(self, group: str) -> None:
        """Leave a group; unreachable brokers notice by themselves."""
        if self._consumers.pop(group, None) is not None:
            await self._leave(h.Unregister(client_id=self._client_id, consumer_group=group))

    async def leave_all(self) -> None:
        """Leave all groups."""
        for group in list(self._producers):
            await self.remove_producer(group)
        for group in list(self._consumers):
            await self.remove_consumer(group)

    async def heartbeat(self) -> None:
        """Send heartbeats to all brokers now. Those that fail are sent again soon."""
        await asyncio.gather(*[self._greet(address) for address in self._known_addresses()])

    def forget(self, address: str) -> None:
        """Forget what a broker knows, as its connection is new."""
        self._openings[address] += 1
        self.greet([address])

    def greet(self, addresses: Iterable[str]) -> None:
        """Soon send heartbeats to those of these addresses that need them."""
        addresses_in_use = self._known_addresses()
        for address in addresses:
            if address in addresses_in_use and address not in self._connecting:
                self._spawn(self._greet(address))

    def greet_unknown(self, address: str) -> None:
        """Send a heartbeat to a broker that answers that it does not know a group or its subscription."""
        if self._consumers and address not in self._again:
            self._known_to.pop(address, None)
            self._again.add(address)
            self._spawn(self._greet_again(address, 0.0))

    def _known_addresses(self) -> list[str]:
        if not (self._producers or self._consumers):
            return []
        return self._addresses(slaves=bool(self._consumers))

    async def _greet(self, address: str) -> None:
        self._connecting.add(address)
        try:
            await self._peers.connect(address)
            self._connecting.discard(address)
            await self._beat(address)
        except (RemotingError, BrokerError) as err:
            log.warning("heartbeat: %s", err)
            if address not in self._again:
                self._again.add(address)
                self._spawn(self._greet_again(address, _SOON))
        finally:
            self._connecting.discard(address)

    async def _greet_again(self, address: str, pause: float) -> None:
        """Send heartbeats to a broker until it takes one, or it is time for the next to all.

        Without one a broker gives the consumers of a group nothing; one that starts refuses it.
        """
        try:
            while pause < self._interval:
                await asyncio.sleep(pause)
                if address not in self._known_addresses():
                    return
                try:
                    await self._beat(address)
                except (RemotingError, BrokerError) as err:
                    log.info("heartbeat: %s", err)
                else:
                    await asyncio.sleep(_SOON)  # an answer that does not know it yet may be on its way
                    return
                pause = max(pause * 2, _SOON)
        finally:
            self._again.discard(address)

    async def _beat(self, address: str) -> None:
        data = HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group) for group in sorted(self._producers)],
            consumer_data_set=[describe() for describe in self._consumers.values()],
        )
        if not self._peers.release.is_5:
            await self._peers.ask(address, self._peers.request(RequestCode.HEART_BEAT, body=body_of(data)))
            return
        data.heartbeat_fingerprint = _fingerprint(data) if self._short else 0
        known_to_it = self._openings[address], data.heartbeat_fingerprint
        data.without_sub = self._short and self._known_to.get(address) == known_to_it
        if data.without_sub:
            data.consumer_data_set = [
                replace(consumer, subscription_data_set=[]) for consumer in data.consumer_data_set
            ]
        request = self._peers.request(RequestCode.HEART_BEAT, h.Empty(), body_of(data))
        response = await self._peers.ask(address, request)
        if not self._short:
            return
        answer = header_from(h.HeartbeatAnswer, response, address)
        if answer.is_support_heart_beat_v2 and not answer.is_sub_change:
            self._known_to[address] = known_to_it
        elif self._known_to.pop(address, None) is not None and data.without_sub:
            await self._beat(address)  # all of it, and not only next time

    async def _leave(self, header: h.Unregister) -> None:
        async def tell(address: str) -> None:
            try:
                await self._peers.ask(address, self._peers.request(RequestCode.UNREGISTER_CLIENT, header), _LEAVING)
            except BrokerError as err:
                log.warning("leaving a group: %s", err)
            except RemotingError as err:
                log.info("leaving a group: %s", err)

        await asyncio.gather(*[tell(address) for address in self._addresses()])


def _fingerprint(data: HeartbeatData) -> int:
    """A fingerprint of the client's subscriptions; never 0, which means none."""
    groups = [
        replace(
            group,
            subscription_data_set=[
                replace(subscription, sub_version=0) for subscription in group.subscription_data_set
            ],
        )
        for group in data.consumer_data_set
    ]
    same = replace(data, client_id="", consumer_data_set=groups, heartbeat_fingerprint=0, without_sub=False)
    return java_hash(body_of(same).decode()) or 1
