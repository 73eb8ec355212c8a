"""Message traces of producers and consumers (client.trace.AsyncTraceDispatcher).

async with Tracer("127.0.0.1:9876") as tracer:
    async with Producer("127.0.0.1:9876", "senders", ProducerOptions(hooks=[tracer.sends])) as producer:
        ...

Tracing never delays the traced work: if records arrive faster than they can be sent, some are dropped.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from formats.message import trace
from formats.message.properties import DELAY, KEYS, TAGS
from formats.topics import TRACE
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.cluster.identity import new_client_id
from rmqtool.client.consumer.options import ConsumeHook, Consumption
from rmqtool.client.producing.hooks import EndHook, EndTransactionContext, SendAttempt, SendHook
from rmqtool.client.producing.message import Message
from rmqtool.client.producing.producer import Producer, ProducerOptions
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_MOST = 1024  # records waiting to be sent
_TOGETHER = 100  # records per message
_BYTES = 118_000  # per message
_GROUP = "_INNER_TRACE_PRODUCER"
_TIMEOUT = 5.0  # s
_CLOSING = 5.0  # s to send waiting records on close
_REGION, _TRACE_ON = "MSG_REGION", "TRACE_ON"


@dataclass(frozen=True)
class _Entry:
    """Records of one event, and the keys to look them up."""

    topic: str
    text: str
    keys: Sequence[str]


class Tracer:
    """Sends trace records. Use as an asynchronous context manager around the traced clients.

    Attributes:
        sends: hook for ``ProducerOptions.hooks``.
        endings: additional hook for a transaction producer.
        consumes: hook for consumers.
        dropped: number of records that did not fit or could not be sent.

    Args:
        topic: topic of the records. Brokers create the default one themselves (``traceTopicEnable``).
        group: part of the name of the sending group.
    """

    def __init__(self, client: str | ClientOptions, topic: str = TRACE, group: str = "rmqtool") -> None:
        options = ClientOptions(namesrv=client) if isinstance(client, str) else client
        # brokers know one connection per client id, so this client needs another id; the topic has no namespace
        options = replace(options, client_id=new_client_id(), namespace="")
        self._producer = Producer(options, f"{_GROUP}-{group}", ProducerOptions(timeout=_TIMEOUT))
        self._topic = topic
        self._waiting: asyncio.Queue[_Entry] = asyncio.Queue(_MOST)
        self._sending: asyncio.Task[None] | None = None
        self.dropped = 0
        self.sends: SendHook = _Sends(self)
        self.endings: EndHook = _Endings(self)
        self.consumes: ConsumeHook = _Consumes(self)

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        self._sending = asyncio.create_task(self._send_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send the waiting records, and close."""
        if self._sending is not None:
            try:
                async with asyncio.timeout(_CLOSING):
                    await self._waiting.join()
            except TimeoutError:
                self.dropped += self._waiting.qsize()
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._producer.close()

    def covers(self, topic: str) -> bool:
        """Whether messages of a topic are traced: trace records themselves are not."""
        return not topic.startswith(self._topic)

    def request_id(self) -> str:
        """A new id that links the records of one listener call."""
        return self._producer.cluster.unique_id()

    def add(self, topic: str, text: str, keys: Iterable[str]) -> None:
        """Queue the records of an event of a message."""
        try:
            self._waiting.put_nowait(_Entry(topic, text, list(keys)))
        except asyncio.QueueFull:
            self.dropped += 1

    async def _send_forever(self) -> None:
        while True:
            entries = [await self._waiting.get()]
            while len(entries) < _TOGETHER and not self._waiting.empty():
                entries.append(self._waiting.get_nowait())
            try:
                for part in _parts(entries):
                    await self._send(part)
            finally:
                for _ in entries:
                    self._waiting.task_done()

    async def _send(self, entries: Sequence[_Entry]) -> None:
        keys = list(dict.fromkeys(key for entry in entries for key in entry.keys))
        message = Message(self._topic, "".join(entry.text for entry in entries).encode(), keys=keys)
        try:
            await self._producer.send(message)
        except (ClientError, RemotingError, ValueError) as err:
            self.dropped += len(entries)
            log.warning("%d records of traces are lost: %s", len(entries), err)


def _parts(entries: Sequence[_Entry]) -> Iterable[list[_Entry]]:
    """Split entries into parts of one topic that fit into a message."""
    for _topic, group in itertools.groupby(sorted(entries, key=lambda entry: entry.topic), lambda entry: entry.topic):
        part: list[_Entry] = []
        size = 0
        for entry in group:
            if part and size + len(entry.text) > _BYTES:
                yield part
                part, size = [], 0
            part.append(entry)
            size += len(entry.text)
        yield part


class _Sends(SendHook):
    """Records sent messages; failed ones are not recorded, as in Java."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def after(self, sending: SendAttempt) -> None:
        topic = sending.queue.topic
        if not sending.results or not sending.results[0].trace_on or not self._tracer.covers(topic):
            return
        first, named = sending.results[0], sending.properties[0]
        alone = len(sending.results) == 1
        kind = trace.HALF if sending.half else trace.DELAYED if DELAY in named else trace.NORMAL
        ids = ",".join(result.message_id for result in sending.results)
        keys = named.get(KEYS) if alone else None
        record = trace.Pub(
            time=sending.began,
            region=first.region,
            group=sending.group,
            topic=topic,
            message_id=ids,
            tags=named.get(TAGS) if alone else None,
            keys=keys,
            store_host=sending.address,
            body_length=sum(map(len, sending.bodies)),
            took=sending.took,
            kind=kind,
            offset_message_id=",".join(result.offset_message_id for result in sending.results),
            success=first.status == "SEND_OK",
        )
        found_by = [result.message_id for result in sending.results]
        self._tracer.add(topic, record.text(), found_by + (keys or "").split())


class _Endings(EndHook):
    """Records outcomes of transactions."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def before_end(self, ending: EndTransactionContext) -> None:
        named = ending.properties
        if named.get(_TRACE_ON) == "false" or not self._tracer.covers(ending.topic):
            return
        record = trace.TransactionEnd(
            time=_now(),
            region=named.get(_REGION, "DefaultRegion"),
            group=ending.group,
            topic=ending.topic,
            message_id=ending.message_id,
            tags=named.get(TAGS),
            keys=named.get(KEYS),
            store_host=ending.address,
            kind=trace.COMMIT,
            transaction_id=ending.transaction_id,
            state=ending.state,
            from_check=ending.checked,
        )
        self._tracer.add(ending.topic, record.text(), [ending.message_id, *named.get(KEYS, "").split()])


class _Consumes(ConsumeHook):
    """Records listener calls and their outcomes."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def before(self, consumption: Consumption) -> None:
        traced = [m for m in consumption.messages if m.properties.get(_TRACE_ON) != "false"]
        if not traced:
            return
        request_id, now = self._tracer.request_id(), _now()
        consumption.more[self] = request_id, now, traced
        records = [
            trace.SubBefore(
                time=now,
                region=message.properties.get(_REGION),
                group=consumption.group,
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=message.properties.get(KEYS),
            )
            for message in traced
        ]
        self._add(consumption, "".join(record.text() for record in records))

    def after(self, consumption: Consumption) -> None:
        if self not in consumption.more:
            return
        request_id, began, traced = consumption.more[self]
        records = [
            trace.SubAfter(
                request_id=request_id,
                message_id=message.message_id,
                took=(_now() - began) // len(consumption.messages),
                success=consumption.success,
                keys=message.properties.get(KEYS),
                outcome=trace.OUTCOMES.index(consumption.outcome),
                time=_now(),
                group=consumption.group,
            )
            for message in traced
        ]
        self._add(consumption, "".join(record.text() for record in records))

    def _add(self, consumption: Consumption, text: str) -> None:
        traced = consumption.more[self][2]
        keys = [word for message in traced for word in (message.message_id, *message.keys)]
        self._tracer.add(consumption.queue.topic, text, keys)


def _now() -> int:
    return time.time_ns() // 1_000_000
