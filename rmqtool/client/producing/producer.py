"""Sending messages (client.producer.DefaultMQProducer, impl.producer.DefaultMQProducerImpl)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from formats.message.properties import UNIQ_KEY, build
from formats.primitives import java_hash
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BrokerError, ClientError, NoRoute
from rmqtool.client.cluster.member import GroupMember
from rmqtool.client.cluster.namespaces import with_namespace, without_namespace
from rmqtool.client.cluster.routes import Route
from rmqtool.client.producing.batching import batches
from rmqtool.client.producing.choice import QueueChoice, watch
from rmqtool.client.producing.hooks import EndHook, SendHook, SendHooks
from rmqtool.client.producing.message import (
    MESSAGE_TYPE,
    REPLY,
    Message,
    NotSent,
    Outgoing,
    Packer,
    Packing,
    SendResult,
    results_of,
)
from rmqtool.client.producing.replying import NoReply, Replied, Replies
from rmqtool.remoting.errors import NotReached, RemotingError
from rmqtool.rules.sending import batch_properties, check_message

Select: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]
_INSTANCE = "INSTANCE_ID"
BATCH_BYTES = 4_000_000  # per request, below the default limit of brokers


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(Packing):
    """Settings of a producer, with the defaults of the Java client.

    Attributes:
        timeout: seconds for a message, including all attempts.
        attempt_timeout: seconds for one attempt; by default all that are left (``sendMsgMaxTimeoutPerRequest``).
        retries: further attempts after a failure.
        retry_not_stored: also try another broker if a message was stored, but less safely than configured.
        fault_tolerance: avoid brokers that failed or were slow before (``sendLatencyFaultEnable``).
        detector: regularly probe brokers avoided as unreachable (``startDetectorEnable``, 5.x).
        batch_unique_id: give a batch an id of its own, as the Java client of 5.x does. The broker stores it after the
            ids of the messages, and readers then see it as the id of each message.
        hooks: called for each attempt, and at the end of transactions.
    """

    timeout: float = 3.0
    attempt_timeout: float | None = None
    retries: int = 2
    retry_not_stored: bool = False
    fault_tolerance: bool = False
    detector: bool = False
    batch_unique_id: bool = False
    hooks: Sequence[SendHook | EndHook] = ()


def by_hash(key: str) -> Select:
    """Select a queue by a sharding key, as in Java: the same queue for the same key, as long as the queues are the
    same.
    """
    return lambda queues: queues[abs(java_hash(key)) % len(queues)]


class Producer(GroupMember):
    """Sends messages. Use as an asynchronous context manager; concurrent sends are allowed.

    Args:
        client: addresses of name servers, options of a client, or a shared cluster.
        group: the producer group.

    Raises:
        ValueError: an invalid group name, or invalid options.
        NotReached: no name server is given.
    """

    def __init__(
        self,
        client: str | ClientOptions | Cluster,
        group: str = "rmqtool-producer",
        options: ProducerOptions | None = None,
    ) -> None:
        super().__init__(client, group)
        self.options = options or ProducerOptions()
        self._instance = {_INSTANCE: self._namespace} if self._namespace else {}
        self._release = self.cluster.options.release
        self._packer = Packer(self.cluster, self.group, self.options)
        self._choice = QueueChoice(self._release, tolerant=self.options.fault_tolerance, detected=self.options.detector)
        self._retry_codes = self._release.retry_codes
        self._hooks = SendHooks(without_namespace(self._namespace, self.group), self.options.hooks)
        self._watching: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[SendResult]] = set()
        self._topic = ""  # a topic that was sent to, for the detector

    async def _join(self) -> None:
        self.cluster.groups.add_producer(self.group)
        if self.options.detector and self._release.is_5:
            self._watching = asyncio.create_task(watch(self.cluster, self._choice, lambda: self._topic))

    async def close(self) -> None:
        """Wait for messages being sent, leave the group, and close own connections."""
        await super().close()

    async def _leave(self) -> None:
        await asyncio.gather(*self._sending, return_exceptions=True)
        if self._watching is not None:
            self._watching.cancel()
        await self.cluster.groups.remove_producer(self.group)

    # -- what is asked for --------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The writable queues of a topic.

        Raises:
            NoRoute: there are none.
            RemotingError: no name server answers.
        """
        return self._without_namespace((await self._route(self._name(topic))).writable)

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
            queue: the queue to send to, in a single attempt.
            select: selects the queue, for a single attempt. :func:`by_hash` keeps messages of a key in order.
            timeout: seconds for all attempts together.

        Raises:
            NotSent: the message was not acknowledged.
            ValueError: brokers would refuse the message.
        """
        return (await self._send(self._prepare(message), queue, select, timeout))[0]

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> "asyncio.Task[SendResult]":
        """As :meth:`send`, without waiting: returns a task. :meth:`close` waits for it."""
        task = asyncio.create_task(self.send(message, queue=queue, select=select, timeout=timeout))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> Replied:
        """Send a message, and wait for its consumer's reply (see :func:`.replying.reply_to`).

        Args:
            timeout: seconds for sending and reply together.

        Raises:
            NotSent: the message was not acknowledged.
            NoReply: no reply arrived in time.
            ValueError: brokers would refuse the message.
        """
        limit = self.options.timeout if timeout is None else timeout
        clock = asyncio.get_running_loop().time
        end = clock() + limit
        replies = self.cluster.share(Replies)
        request, answer = replies.make_request(message, limit)
        try:
            outgoing = self._prepare(request)
            route_known = self.cluster.knows(outgoing.topic)
            await self._try_route(outgoing.topic)
            if not route_known:  # a broker forwards a reply only to clients that have sent it a heartbeat
                await self.cluster.heartbeat()
            sent = (await self._send(outgoing, queue, select, max(end - clock(), 0)))[0]
            try:
                async with asyncio.timeout_at(end):
                    return await answer
            except TimeoutError:
                raise NoReply(f"{message.topic}: no answer within {limit:g} s", sent) from None
        finally:
            replies.forget(request)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        limit: int = BATCH_BYTES,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as possible; returns a result for each message.

        Args:
            timeout: seconds per request.
            limit: bytes per request.

        Raises:
            NotSent: a request was not acknowledged; ``sent`` has the results of the messages before.
            ValueError: the messages cannot be sent together, or brokers would refuse one.
        """
        packed = batches(
            messages, self.cluster.unique_id.take(len(messages)), self._instance,
            separated=self._packer.separated, max_message_size=self.options.max_message_size, limit=limit,
        )  # fmt: skip
        sent: list[SendResult] = []
        for together in packed:
            first, named = together.messages[0]
            unique_id = self.cluster.unique_id() if self.options.batch_unique_id else None
            outgoing = Outgoing(
                RequestCode.SEND_BATCH_MESSAGE,
                self._topic_at_brokers(first, named),
                together.body,
                batch_properties(named, unique_id) | self._instance,
                together.messages,
            )
            try:
                sent += await self._send(outgoing, queue, select, timeout)
            except NotSent as err:
                err.sent, err.tried = sent, len(together.messages)
                raise
        return sent

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None
    ) -> str:
        """Send a message without waiting for an acknowledgement; returns its unique id.

        Raises:
            NotSent: there was no connection.
            ValueError: brokers would refuse the message.
        """
        outgoing = self._prepare(message)
        try:
            route = await self._route(outgoing.topic)
            chosen = queue or self._choose(route, select, None)
            address = self.cluster.address(chosen.broker_name)
            sending = self._hooks.call_before(outgoing, chosen, address)
            await self.cluster.oneway(address, self._packer.request(outgoing, chosen))
            self._hooks.call_after(sending)
        except (ClientError, RemotingError) as err:
            raise NotSent(f"{outgoing.topic}: not sent: {err}") from err
        return outgoing.properties[UNIQ_KEY]

    async def recall(self, topic: str, handle: str, broker_name: str) -> str:
        """Recall a message that is waiting for its delivery time (5.x); returns its unique id.

        Args:
            handle, broker_name: from the message's send result.

        Raises:
            BrokerError: the broker does not support it, or it is too late.
            NoRoute, RemotingError: the broker is not reached.
        """
        topic = self._name(topic)
        await self._route(topic)
        header = h.Recall(topic=topic, recall_handle=handle, producer_group=self.group, bname=broker_name)
        address = self.cluster.address(broker_name)
        response = await self.cluster.ask(address, self.cluster.request(RequestCode.RECALL_MESSAGE, header))
        return header_from(h.Recalled, response, address).msg_id or ""

    # -- requests -----------------------------------------------------------------------------------------------------

    async def _route(self, topic: str) -> Route:
        return await self.cluster.publish_route(topic, self.options.template, self.options.queue_nums)

    async def _try_route(self, topic: str) -> None:
        try:
            await self._route(topic)
        except (ClientError, RemotingError) as err:
            raise NotSent(f"{topic}: not sent: {err}") from err

    def _name(self, topic: str) -> str:
        return with_namespace(self._namespace, topic)

    def _without_namespace(self, queues: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
        """The queues with the application's name of the topic, without namespace."""
        if not self._namespace:
            return tuple(queues)
        topic = without_namespace(self._namespace, queues[0].topic)
        return tuple(MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in queues)

    def _choose(self, route: Route, select: Select | None, last_broker: str | None) -> MessageQueue:
        if select is not None:
            return select(self._without_namespace(route.writable))
        return self._without_namespace([self._choice.select(route, last_broker)])[0]

    def _prepare(self, message: Message) -> Outgoing:
        """Prepare a message: add an id, and use the names with namespace."""
        named = message.all_properties(self._instance, self.cluster.unique_id())
        check_message(message.topic, message.body, self.options.max_message_size)
        build(named, trailing_separator=self._packer.separated)  # raises if they cannot be encoded
        return self._packer.single(message, self._topic_at_brokers(message, named), named)

    def _topic_at_brokers(self, message: Message, named: Mapping[str, str]) -> str:
        """The topic with the namespace; a reply topic has none."""
        return message.topic if named.get(MESSAGE_TYPE) == REPLY else self._name(message.topic)

    async def _send(
        self, outgoing: Outgoing, queue: MessageQueue | None, select: Select | None, timeout: float | None
    ) -> list[SendResult]:
        """Try until an attempt succeeds; results name the queues in which other attempts may have stored the
        message.
        """
        topic, attempts = outgoing.topic, 1 if queue or select else 1 + self.options.retries
        clock = asyncio.get_running_loop().time
        end = clock() + (self.options.timeout if timeout is None else timeout)
        last: str | None = None
        stored: list[SendResult] = []
        error: Exception | None = None
        maybe_in: list[MessageQueue] = []
        for _ in range(attempts):
            begin = clock()
            try:
                route = await self._route(topic)
                chosen = queue or self._choose(route, select, last)
            except (ClientError, RemotingError) as err:
                error = err
                break
            if begin >= end:
                break
            last, begin, self._topic = chosen.broker_name, clock(), topic
            try:
                results = await self._attempt(outgoing, chosen, end - begin)
            except BrokerError as err:
                error = err
                self._choice.note_failure(last, _millis(begin, clock()), refused=True)
                if err.code not in self._retry_codes:
                    break
            except (ClientError, RemotingError) as err:  # also for a broker without a master: another one may have one
                error = err
                if isinstance(err, RemotingError) and not isinstance(err, NotReached):
                    maybe_in.append(chosen)
                self._choice.note_failure(last, _millis(begin, clock()), unasked=isinstance(err, NoRoute))
            else:
                self._choice.note_answer(last, _millis(begin, clock()))
                maybe_in += [result.queue for result in stored[:1]]
                stored = results
                if stored[0].status == "SEND_OK" or not self.options.retry_not_stored:
                    break
        if stored:
            return [result._replace(maybe_in=tuple(maybe_in)) for result in stored] if maybe_in else stored
        code = error.code if isinstance(error, BrokerError) else None
        text = f"{topic}: not sent: {error or 'there was no time for an attempt'}"
        raise NotSent(text, code=code, maybe_in=maybe_in) from error

    async def _attempt(self, outgoing: Outgoing, queue: MessageQueue, left: float) -> list[SendResult]:
        address = self.cluster.address(queue.broker_name)
        if self.options.attempt_timeout is not None:
            left = min(left, self.options.attempt_timeout)
        sending = self._hooks.call_before(outgoing, queue, address)
        try:
            response = await self.cluster.call(address, self._packer.request(outgoing, queue), left)
            with self.cluster.answers_of(address):
                results = results_of(outgoing, queue, response, address)
        except (ClientError, RemotingError) as err:
            self._hooks.call_after(sending, error=err)
            raise
        self._hooks.call_after(sending, results)
        return results


def _millis(begin: float, end: float) -> int:
    return round((end - begin) * 1000)
