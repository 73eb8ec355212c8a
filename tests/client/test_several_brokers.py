"""Two or three of our brokers at one name server, one of them killed and restarted: no message is lost."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from formats.fastjson.declare import body_of
from formats.remoting import headers as h
from formats.remoting.bodies import SetRequestMode
from formats.remoting.codes import RequestCode as C
from rmqtool.client import ClientOptions, From, Message, NotSent, Producer, PushConsumer, PushOptions, Received
from tests.amounts import by_turns, some
from tests.client.test_consuming import until
from tests.client.test_replay import messages
from tests.interop.serving import Serving

TOPIC, GROUP = "Several", "several"
_OPTIONS = ("--create", "--engine", "5.3")


@by_turns(13)
@pytest.mark.parametrize("count", some([2], [2, 3]))
@pytest.mark.parametrize("popping", [False, True], ids=["shared", "popped"])
def test_one_is_killed_and_comes_back(tmp_path: Path, count: int, popping: bool) -> None:
    names = ("a", "b", "c")[:count]
    with ExitStack() as stack:
        first = stack.enter_context(Serving(tmp_path / "a", *_OPTIONS, "--name", "a"))
        joined = (*_OPTIONS, "--namesrv", first.namesrv)
        others = [stack.enter_context(Serving(tmp_path / name, *joined, "--name", name)) for name in names[1:]]
        brokers = [first.broker, *(waiting.broker for waiting in others)]

        def come_back() -> None:
            name, options = names[-1], ("--namesrv", first.namesrv)
            stack.enter_context(Serving(tmp_path / name, *options, "--name", name, listen=brokers[-1]))

        asyncio.run(scenario(first.namesrv, brokers, others[-1], come_back, popping=popping))
    for name in names:
        assert messages(str(tmp_path / name), TOPIC), f"{name} has had none"


async def scenario(
    namesrv: str, brokers: list[str], dying: Serving, come_back: Callable[[], None], *, popping: bool
) -> None:
    client = ClientOptions(namesrv=namesrv, route_interval=0.5, heartbeat_interval=0.5, timeout=2)
    consuming = PushOptions(
        start=From.FIRST, client_rebalance=not popping, pop_invisible=5, hold=2, persist_interval=0.1,
        rebalance_interval=0.2, error_pause=0.05, shutdown_wait=5,
    )  # fmt: skip
    acknowledged, seen, count = set[int](), set[int](), 0

    async def listen(messages: Sequence[Received]) -> None:
        seen.update(int(message.body) for message in messages)

    async with asyncio.timeout(240), Producer(client, "senders") as producer:
        for address in brokers:
            made = h.CreateTopic(
                topic=TOPIC, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
                topic_filter_type="SINGLE_TAG",
            )  # fmt: skip
            await producer.cluster.ask(address, producer.cluster.request(C.UPDATE_AND_CREATE_TOPIC, made))
            if popping:
                mode = body_of(SetRequestMode(TOPIC, GROUP, "POP", 8))
                await producer.cluster.ask(address, producer.cluster.request(C.SET_MESSAGE_REQUEST_MODE, body=mode))
        while len((await producer.cluster.fetch_route(TOPIC)).brokers) < len(brokers):
            await asyncio.sleep(0.05)

        async def send(most: int) -> None:
            nonlocal count
            for _ in range(most):
                number, count = count, count + 1
                try:
                    await producer.send(Message(TOPIC, b"%d" % number), timeout=5)
                except NotSent:
                    continue
                acknowledged.add(number)

        async with PushConsumer(client, GROUP, {TOPIC: "*"}, listen, consuming):
            async with PushConsumer(client, GROUP, {TOPIC: "*"}, listen, consuming):
                await send(60)
                await until(lambda: len(seen) > 20)
                dying.process.send_signal(signal.SIGKILL)
                await send(60)
                await asyncio.to_thread(come_back)
                await send(60)
            await send(60)
            await until(lambda: seen >= acknowledged)
    assert len(acknowledged) > 200
