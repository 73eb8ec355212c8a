"""Sending messages (client.producer.DefaultMQProducer, impl.producer.DefaultMQProducerImpl)."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from formats.message import properties
from formats.message.bodies import BatchItem, build_batch
from formats.message.build import MAX_MESSAGE_SIZE
from formats.message.properties import UNIQ_KEY
from formats.primitives import TRANSACTION_PREPARED, java_hash
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError
from rmqtool.client.cluster.routes import Route
from rmqtool.client.producing.choice import Choice
from rmqtool.client.producing.message import STATUSES, Message, NotSent, SendResult
from rmqtool.remoting.errors import NotReached, RemotingError
from rmqtool.services.sending import batch
from rmqtool.services.sending.rules import AUTO_CREATE_TOPIC, COMPRESS_FROM, OutMessage, check_group, check_message
from rmqtool.services.sending.rules import compress as compress_body

Select: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]
BATCH_BYTES = 4_000_000  # of one request, below what any broker takes
_RETRY_CODES = {
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    204,  # NO_BUYER_ID
    205,  # NOT_IN_CURRENT_UNIT
}
_RETRY_CODES_5 = {ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY}  # 5.x too


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """Settings, with the defaults of the Java client.

    Attributes:
        timeout: seconds for a message, all attempts together.
        retries: further attempts when one fails.
        retry_not_stored: try another broker too where a message was stored, but not as safely as it should be.
        fault_tolerance: leave out brokers that failed or were slow with messages before (``sendLatencyFaultEnable``).
        compress_from: bytes from which on a body is compressed.
        compression: ``zlib``, ``lz4`` or ``zstd``.
        queue_nums: queues that a new topic is to have on each broker.
        batch_unique_id: give a batch an id of its own, as the Java client of 5.x does. The broker stores it behind the
            ids of the messages, and whoever reads them takes it for the id of each.
    """

    timeout: float = 3.0
    retries: int = 2
    retry_not_stored: bool = False
    fault_tolerance: bool = False
    compress_from: int = COMPRESS_FROM
    compression: str = "zlib"
    compress_level: int = 5
    max_message_size: int = MAX_MESSAGE_SIZE
    template: str = AUTO_CREATE_TOPIC
    queue_nums: int = 4
    batch_unique_id: bool = False


def by_hash(key: str) -> Select:
    """The queue for a sharding key: the same for each message with that key, also from Java, while queues stay."""
    return lambda queues: queues[abs(java_hash(key)) % len(queues)]


class Producer:
    """Sends messages. Use as an asynchronous context manager; several sends may be under way at a time.

    Args:
        client: addresses of name servers, options of a client, or a cluster that is shared with others.
        group: of producers that do the same.

    Raises:
        ValueError: no name for a group, or options that mean nothing.
        NotReached: no name server is given.
    """

    def __init__(
        self,
        client: str | ClientOptions | Cluster,
        group: str = "rmqtool-producer",
        options: ProducerOptions | None = None,
    ) -> None:
        check_group(group)
        self.group, self.options = group, options or ProducerOptions()
        if isinstance(client, str):
            client = ClientOptions(namesrv=client)
        self._shared = isinstance(client, Cluster)
        self.cluster = client if isinstance(client, Cluster) else Cluster(client)
        self._engine = self.cluster.options.engine
        self._choice = Choice(self._engine, tolerant=self.options.fault_tolerance)
        self._retry_codes = _RETRY_CODES if self._engine == "4.9" else _RETRY_CODES | _RETRY_CODES_5

    async def __aenter__(self) -> Self:
        if not self._shared:
            await self.cluster.__aenter__()
        self.cluster.add_producer(self.group)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the group, and close the connections where they are this producer's own."""
        await self.cluster.remove_producer(self.group)
        if not self._shared:
            await self.cluster.close()

    # -- what is asked for --------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic may go to.

        Raises:
            NoRoute: there are none.
            RemotingError: no name server answers.
        """
        return (await self._route(topic)).writable

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message; it is stored when this returns.

        Args:
            queue: where it is to go; then there is one attempt.
            select: chooses the queue; then too. :func:`by_hash` keeps messages of a key in order.
            timeout: seconds, for all attempts together.

        Raises:
            NotSent: it was not acknowledged.
            ValueError: no message that a broker would take.
        """
        out = self._named(message)
        request = _Request(RequestCode.SEND_MESSAGE_V2, out, *self._body(out))
        return (await self._send(request, queue, select, timeout))[0]

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        limit: int = BATCH_BYTES,
    ) -> list[SendResult]:
        """Send messages of one topic together, in as few requests as hold them; a result for each message.

        Args:
            timeout: seconds for one request.
            limit: bytes of one request.

        Raises:
            NotSent: one was not acknowledged; its ``sent`` tells of those before it that were.
            ValueError: messages that cannot go together, or one that a broker would not take.
        """
        named = [self._named(message) for message in messages]
        batch.check_batch(named)
        sent: list[SendResult] = []
        for part in list(batch.split(named, limit)):
            body = build_batch([BatchItem(m.flag, m.body or b"", self._text(m.properties)) for m in part])
            unique_id = self.cluster.unique_id() if self.options.batch_unique_id else None
            whole = OutMessage(topic=part[0].topic, body=body, properties=batch.batch_properties(part, unique_id))
            request = _Request(RequestCode.SEND_BATCH_MESSAGE, whole, body, 0, part)
            try:
                sent += await self._send(request, queue, select, timeout)
            except NotSent as err:
                err.sent, err.tried = sent, len(part)
                raise
        return sent

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None
    ) -> str:
        """Send a message without an answer: whether it is stored is not known. Its unique id.

        Raises:
            NotSent: there was no connection.
            ValueError: no message that a broker would take.
        """
        out = self._named(message)
        message_request = _Request(RequestCode.SEND_MESSAGE_V2, out, *self._body(out))
        try:
            route = await self._route(out.topic)
            chosen = queue or (select(route.writable) if select is not None else self._choice.queue(route))
            request = self._request(message_request, chosen)
            await self.cluster.oneway(self.cluster.address(chosen.broker_name), request)
        except (ClientError, RemotingError) as err:
            raise NotSent(f"{out.topic}: not sent: {err}") from err
        return out.properties[UNIQ_KEY]

    async def recall(self, topic: str, handle: str, broker_name: str) -> str:
        """Call back a message that still waits for its time (5.x). Its unique id.

        Args:
            handle, broker_name: of the result of its sending.

        Raises:
            BrokerError: the broker does not do so, or it is too late.
            NoRoute, RemotingError: the broker is not reached.
        """
        await self._route(topic)
        header = h.Recall(topic=topic, recall_handle=handle, producer_group=self.group, bname=broker_name)
        address = self.cluster.address(broker_name)
        response = await self.cluster.ask(address, self.cluster.request(RequestCode.RECALL_MESSAGE, header))
        return header_from(h.Recalled, response, address).msg_id or ""

    # -- requests -----------------------------------------------------------------------------------------------------

    async def _route(self, topic: str) -> Route:
        return await self.cluster.publish_route(topic, self.options.template, self.options.queue_nums)

    def _named(self, message: Message) -> OutMessage:
        """As it is sent, with an id."""
        out = message.outgoing()
        check_message(out, self.options.max_message_size)
        if UNIQ_KEY not in out.properties:
            out = replace(out, properties={**out.properties, UNIQ_KEY: self.cluster.unique_id()})
        self._text(out.properties)
        return out

    def _text(self, named: Mapping[str, str]) -> bytes:
        return properties.build(dict(named), trailing_separator=self._engine != "4.9")

    def _body(self, out: OutMessage) -> tuple[bytes, int]:
        options = self.options
        prepared = TRANSACTION_PREPARED if out.properties.get("TRAN_MSG", "").lower() == "true" else 0
        return compress_body(
            out.body or b"", prepared, kind=options.compression, level=options.compress_level,
            over=options.compress_from,
        )  # fmt: skip

    def _request(self, request: "_Request", queue: MessageQueue) -> Command:
        header = h.Send(
            producer_group=self.group,
            topic=request.out.topic,
            default_topic=self.options.template,
            default_topic_queue_nums=self.options.queue_nums,
            queue_id=queue.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=request.out.flag,
            properties=self._text(request.out.properties).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=bool(request.part),
            bname=queue.broker_name,
        )
        return self.cluster.request(request.code, header, request.body)

    async def _send(
        self, request: "_Request", queue: MessageQueue | None, select: Select | None, timeout: float | None
    ) -> list[SendResult]:
        """All attempts."""
        topic, attempts = request.out.topic, 1 if queue or select else 1 + self.options.retries
        clock = asyncio.get_running_loop().time
        end = clock() + (self.options.timeout if timeout is None else timeout)
        last: str | None = None
        stored: list[SendResult] = []
        error: Exception | None = None
        maybe = False
        for _ in range(attempts):
            try:
                route = await self._route(topic)
                chosen = queue or (select(route.writable) if select is not None else self._choice.queue(route, last))
                address = self.cluster.address(chosen.broker_name)
            except (ClientError, RemotingError) as err:
                error = err
                break
            begin = clock()
            if begin >= end:
                break
            last = chosen.broker_name
            try:
                response = await self.cluster.call(address, self._request(request, chosen), end - begin)
                stored = self._results(request, chosen, response, address)
            except BrokerError as err:
                error = err
                self._choice.failed(last, _millis(begin, clock()), refused=True)
                if err.code not in self._retry_codes:
                    break
            except RemotingError as err:
                error, maybe = err, maybe or not isinstance(err, NotReached)
                self._choice.failed(last, _millis(begin, clock()), refused=False)
            else:
                self._choice.answered(last, _millis(begin, clock()))
                if stored[0].status == "SEND_OK" or not self.options.retry_not_stored:
                    return stored
        if stored:
            return stored
        code = error.code if isinstance(error, BrokerError) else None
        words = f"{topic}: not sent: {error or 'there was no time for an attempt'}"
        raise NotSent(words, code=code, maybe_stored=maybe) from error

    def _results(self, request: "_Request", queue: MessageQueue, response: Command, address: str) -> list[SendResult]:
        """A result for each message of a request.

        Raises:
            BrokerError: it was not stored.
            BadAnswer: the answer does not tell where it is.
        """
        status = STATUSES.get(ResponseCode(response.code)) if response.code in set(ResponseCode) else None
        if status is None:
            raise BrokerError(response, address)
        sent = header_from(h.Sent, response, address)
        if sent.queue_id < 0 or sent.queue_offset < 0:
            raise BadAnswer(f"{address}: a message in queue {sent.queue_id} at {sent.queue_offset}")
        messages = request.part or [request.out]
        ids = sent.msg_id.split(",")
        if len(ids) != len(messages):
            ids = [sent.msg_id] * len(messages)  # topics of 5.x that keep a batch as one record have one id for it
        return [
            SendResult(
                status,
                message.properties[UNIQ_KEY],
                offset_id,
                MessageQueue(queue.topic, queue.broker_name, sent.queue_id),
                sent.queue_offset + at,
                sent.transaction_id,
                sent.recall_handle,
                sent.msg_region or "DefaultRegion",
                sent.trace_on != "false",
            )
            for at, (message, offset_id) in enumerate(zip(messages, ids, strict=True))
        ]


@dataclass(frozen=True)
class _Request:
    """What is sent, whatever queue it goes to; ``part`` has the messages of a batch."""

    code: RequestCode
    out: OutMessage
    body: bytes
    sys_flag: int
    part: Sequence[OutMessage] = ()


def _millis(begin: float, end: float) -> int:
    return round((end - begin) * 1000)
