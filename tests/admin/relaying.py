"""A broker that answers some questions and refuses others."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import connect
from tests.admin.test_several_brokers import namesrv_of
from tests.client.peers import peer

Refuses = Callable[[Command], bool]
Changes = Callable[[Command, Command], Command]
"""The answer to a request in the place of the broker's."""


@asynccontextmanager
async def relay(
    broker: str,
    refuses: Refuses,
    *,
    beside: bool = False,
    changes: Changes | None = None,
    ignores: Collection[int] = (),
) -> AsyncIterator[str]:
    """The address of a name server with one broker, ``lab-a``, that passes on what it does not refuse.

    Args:
        ignores: codes of requests that are answered with success, and not passed on.
        beside: there is a second one, ``lab-b``, that refuses nothing.
    """

    async def answer(request: Command) -> Command:
        if refuses(request):
            return request.response(ResponseCode.SYSTEM_ERROR, "not now")
        host, _, port = broker.rpartition(":")
        async with AsyncExitStack() as stack:
            answer = request.response()
            if request.code not in ignores:
                upstream = await connect(host, int(port))
                stack.push_async_callback(upstream.close)
                answer = replace(await upstream.call(request, 10), opaque=request.opaque)
            return answer if changes is None else changes(request, answer)

    async with peer() as made:
        made.replies = dict.fromkeys(C, answer)
        async with namesrv_of({"lab-a": {0: made.address}} | ({"lab-b": {0: broker}} if beside else {})) as namesrv:
            yield namesrv


def about(*codes: C) -> Refuses:
    """Refuse all requests of these codes."""
    return lambda request: request.code in codes


def about_queues_of(topic: str) -> Refuses:
    """Refuse to tell the queues of a topic."""
    return lambda request: request.code == C.GET_TOPIC_STATS_INFO and (request.fields or {})["topic"] == topic


def pulls_of(topic: str) -> Refuses:
    """Refuse to give the messages of a topic."""
    return lambda request: request.code == C.PULL_MESSAGE and (request.fields or {})["topic"] == topic
