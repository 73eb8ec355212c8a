"""How long brokers take to store a message: each gets some, one after the other."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.shapes import MessageQueue
from rmqtool.admin.live.questions import Node, Questions, Warn, ask
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.producing.message import Message, NotSent
from rmqtool.client.producing.producer import Producer, ProducerOptions
from rmqtool.contract import PlainRow
from rmqtool.remoting.errors import RemotingError

_GROUP = "rmqtool-send-rtt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrips(PlainRow):
    """The messages that one broker was sent. Times are ms from sending to the answer; None without any."""

    topic: str
    brokerName: str
    queues: int
    sent: int
    failed: int
    minMillis: float | None
    medianMillis: float | None
    maxMillis: float | None
    reason: str | None  # of the first failure


def plan_round_trips(target: Target, warn: Warn, topic: str | None, brokers: Sequence[str]) -> list[MessageQueue]:
    """The queues that would be sent to.

    Args:
        topic: None for the topic that each broker has of its own name.
        brokers: names; none for all.

    Raises:
        ClientError: no broker has such a queue, or one of those named.
        RemotingError: no name server answers.
    """

    async def work(questions: Questions) -> list[MessageQueue]:
        nodes = [node for node in await questions.nodes() if node.is_master]
        return await _find_queues(questions, nodes, topic, brokers)

    return ask(target, warn, work)


async def _find_queues(
    questions: Questions, nodes: Sequence[Node], topic: str | None, brokers: Sequence[str]
) -> list[MessageQueue]:
    names = sorted({node.name for node in nodes if not brokers or node.name in brokers})
    if unknown := sorted({*brokers} - {*names}):
        raise ClientError(f"{questions.target.text}: no broker {', '.join(unknown)}")
    queues = []
    for chosen in [topic] if topic is not None else names:
        route = await questions.cluster.route(chosen)
        queues += [queue for queue in route.writable if queue.broker_name in names and topic in (None, queue.topic)]
        if topic is None:
            queues = [queue for queue in queues if queue.topic == queue.broker_name]
    if without := [name for name in names if name not in {queue.broker_name for queue in queues}]:
        raise ClientError(f"broker {', '.join(without)} has no queue of topic {topic or without[0]} to send to")
    return queues


def measure_round_trips(
    target: Target, warn: Warn, queues: Sequence[MessageQueue], *, count: int, size: int
) -> list[RoundTrips]:
    """Send messages to each broker, one after the other, to its queues in turn; brokers do not wait for each other.

    Args:
        count: messages for each broker.
        size: bytes of a body.
    """

    async def work(questions: Questions) -> list[RoundTrips]:
        names = sorted({queue.broker_name for queue in queues})
        for topic in {queue.topic for queue in queues}:
            await questions.cluster.route(topic)
        options = ProducerOptions(retries=0)
        async with Producer(questions.cluster, _GROUP, options) as producer:
            own = [[queue for queue in queues if queue.broker_name == name] for name in names]
            return await asyncio.gather(*(_measure(questions, producer, each, count, size) for each in own))

    return ask(target, warn, work)


async def _measure(
    questions: Questions, producer: Producer, queues: Sequence[MessageQueue], count: int, size: int
) -> RoundTrips:
    times, reason, first = [], None, queues[0]
    try:  # connects, which is not part of the time
        header = h.Queue(topic=first.topic, queue_id=first.queue_id)
        address = questions.cluster.address(first.broker_name)
        await questions.cluster.call(address, questions.cluster.request(C.GET_MAX_OFFSET, header), 5)
    except (ClientError, RemotingError):
        pass  # the first message tells
    for number in range(count):
        started = time.perf_counter()
        queue = queues[number % len(queues)]
        try:
            await producer.send(Message(queue.topic, bytes(size), tags=_GROUP), queue=queue)
        except (NotSent, ClientError, RemotingError) as err:
            reason = reason or str(err)
        else:
            times.append((time.perf_counter() - started) * 1000)
    return RoundTrips(
        topic=first.topic,
        brokerName=first.broker_name,
        queues=len(queues),
        sent=len(times),
        failed=count - len(times),
        minMillis=round(min(times), 3) if times else None,
        medianMillis=round(statistics.median(times), 3) if times else None,
        maxMillis=round(max(times), 3) if times else None,
        reason=reason,
    )
