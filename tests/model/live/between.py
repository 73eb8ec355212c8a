"""What stands between a command and a broker: a name server that knows it or not, and a broker that lies."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.cli.serve.running import until_stopped
from tests.client.lying import Liar, Opaques, lied_about
from tests.client.peers import peer, route, tells
from tests.model.neighbours import Forked

WAYS = ("liar", "liar", "opaques", "no route", "no broker", "no master", "route now and then")
"""Ways that an answer, or an absence, comes about."""
_LIES = 12  # then it is honest, so that commands come to an end


class Between(Forked):
    """A name server, and what its route leads to.

    Args:
        broker: address of the one that is honest.
        way: one of :data:`WAYS`.
        seed: decides about each answer.
        topics: that have a route.
    """

    def __init__(self, broker: str, way: str, seed: int, topics: tuple[str, ...]) -> None:
        self._broker, self._way, self._seed, self._topics = broker, way, seed, topics

    def __repr__(self) -> str:
        return f"{self._way} (seed {self._seed})"

    async def _serve(self, write: int) -> None:
        async with until_stopped() as told, self._name_server() as address:
            os.write(write, address.encode())
            os.close(write)
            await told.wait()

    @asynccontextmanager
    async def _name_server(self) -> AsyncIterator[str]:
        if self._way in ("liar", "opaques"):
            liar = (
                Opaques(self._seed, 0.5, _LIES)
                if self._way == "opaques"
                else Liar(self._seed, Random(self._seed).choice((0.05, 0.2, 0.5)), (), _LIES)
            )
            async with lied_about(self._broker, liar, *self._topics) as address:
                yield address
            return
        chance = Random(self._seed)
        broker = "127.0.0.1:1" if self._way == "no broker" else self._broker
        data = route(("broker-a", broker), queues=4)
        if self._way == "no master":
            data.broker_datas[0].broker_addrs = {1: broker}
        known = tells({} if self._way == "no route" else dict.fromkeys((*self._topics, "TBW102"), data))

        def answer(request: Command) -> object:
            if self._way == "route now and then" and chance.random() < 0.6:
                return request.response(ResponseCode.TOPIC_NOT_EXIST, "no route now")
            return known(request)

        async with peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = answer  # type: ignore[assignment]
            yield namesrv.address
