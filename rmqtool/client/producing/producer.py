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
from rmqtool.client.cluster.member import Member
from rmqtool.client.cluster.namespaces import with_namespace, without_namespace
from rmqtool.client.cluster.routes import Route
from rmqtool.client.producing.batching import batches
from rmqtool.client.producing.choice import QueueChoice, watch
from rmqtool.client.producing.hooks import EndHook, SendHook, SendHooks
from rmqtool.client.producing.message import Message, NotSent, SendResult
from rmqtool.client.producing.replying import NoReply, Replied, Replies
from rmqtool.client.producing.requests import MESSAGE_TYPE, REPLY, Outgoing, Packer, Packing, results_of
from rmqtool.remoting.errors import NotReached, RemotingError
from rmqtool.rules.sending import batch_properties, check_message

Select: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]
_INSTANCE = "INSTANCE_ID"
BATCH_BYTES = 4_000_000  # of one request, below what any broker takes


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(Packing):
    """Settings, with the defaults of the Java client.

    Attributes:
        timeout: seconds for a message, all attempts together.
        attempt_timeout: seconds for one attempt; all that are left by default (``sendMsgMaxTimeoutPerRequest``).
        retries: further attempts when one fails.
        retry_not_stored: try another broker too where a message was stored, but not as safely as it should be.
        fault_tolerance: leave out brokers that failed or were slow with messages before (``sendLatencyFaultEnable``).
        detector: ask brokers that were left out as unreachable every now and then whether they are there again
            (``startDetectorEnable``, of 5.x).
        batch_unique_id: give a batch an id of its own, as the Java client of 5.x does. The broker stores it behind the
            ids of the messages, and readers take it for the id of each.
        hooks: see each attempt, and how transactions end.
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
    """The queue for a sharding key: the same for each message with that key, also from Java, while queues stay."""
    return lambda queues: queues[abs(java_hash(key)) % len(queues)]


class Producer(Member):
    """Sends messages. Use as an asynchronous context manager; several sends may be under way at a time.

    Args:
        client: addresses of name servers, options of a client, or a shared cluster.
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
        self._topic = ""  # one that was sent to, to detect brokers with

    async def _join(self) -> None:
        self.cluster.groups.add_producer(self.group)
        if self.options.detector and self._release.is_5:
            self._watching = asyncio.create_task(watch(self.cluster, self._choice, lambda: self._topic))

    async def close(self) -> None:
        """Wait for what is being sent, leave the group, and close the connections that are this producer's own."""
        await super().close()

    async def _leave(self) -> None:
        await asyncio.gather(*self._sending, return_exceptions=True)
        if self._watching is not None:
            self._watching.cancel()
        await self.cluster.groups.remove_producer(self.group)

    # -- what is asked for --------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic may go to.

        Raises:
            NoRoute: there are none.
            RemotingError: no name server answers.
        """
        return self._known_as((await self._route(self._name(topic))).writable)

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
        return (await self._send(self._outgoing(message), queue, select, timeout))[0]

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> "asyncio.Task[SendResult]":
        """As :meth:`send`, without waiting: the task has the result. :meth:`close` waits for it."""
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
        """Send a message, and wait until its consumer has answered (see :func:`.replying.reply_to`).

        Args:
            timeout: seconds for both.

        Raises:
            NotSent: it was not acknowledged.
            NoReply: no answer came in time.
            ValueError: no message that a broker would take.
        """
        limit = self.options.timeout if timeout is None else timeout
        clock = asyncio.get_running_loop().time
        end = clock() + limit
        replies = self.cluster.share(Replies)
        asked, answer = replies.asking(message, limit)
        try:
            outgoing = self._outgoing(asked)
            known = self.cluster.knows(outgoing.topic)
            await self._try_route(outgoing.topic)
            if not known:  # a broker hands an answer only to clients that it has heard of
                await self.cluster.heartbeat()
            sent = (await self._send(outgoing, queue, select, max(end - clock(), 0)))[0]
            try:
                async with asyncio.timeout_at(end):
                    return await answer
            except TimeoutError:
                raise NoReply(f"{message.topic}: no answer within {limit:g} s", sent) from None
        finally:
            replies.forget(asked)

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
        """Send a message without an answer: whether it is stored is not known. Its unique id.

        Raises:
            NotSent: there was no connection.
            ValueError: no message that a broker would take.
        """
        outgoing = self._outgoing(message)
        try:
            route = await self._route(outgoing.topic)
            chosen = queue or self._choose(route, select, None)
            address = self.cluster.address(chosen.broker_name)
            sending = self._hooks.before(outgoing, chosen, address)
            await self.cluster.oneway(address, self._packer.request(outgoing, chosen))
            self._hooks.after(sending)
        except (ClientError, RemotingError) as err:
            raise NotSent(f"{outgoing.topic}: not sent: {err}") from err
        return outgoing.properties[UNIQ_KEY]

    async def recall(self, topic: str, handle: str, broker_name: str) -> str:
        """Call back a message that still waits for its time (5.x). Its unique id.

        Args:
            handle, broker_name: of the result of its sending.

        Raises:
            BrokerError: the broker does not do so, or it is too late.
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

    def _known_as(self, queues: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
        """The queues with the name of the topic that applications have for it."""
        if not self._namespace:
            return tuple(queues)
        topic = without_namespace(self._namespace, queues[0].topic)
        return tuple(MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in queues)

    def _choose(self, route: Route, select: Select | None, last_broker: str | None) -> MessageQueue:
        if select is not None:
            return select(self._known_as(route.writable))
        return self._known_as([self._choice.queue(route, last_broker)])[0]

    def _outgoing(self, message: Message) -> Outgoing:
        """A message as it is sent, with an id, and with the names that brokers know."""
        named = message.all_properties(self._instance, self.cluster.unique_id())
        check_message(message.topic, message.body, self.options.max_message_size)
        build(named, trailing_separator=self._packer.separated)  # which may refuse them
        return self._packer.single(message, self._topic_at_brokers(message, named), named)

    def _topic_at_brokers(self, message: Message, named: Mapping[str, str]) -> str:
        """The topic with the namespace; a reply's has none."""
        return message.topic if named.get(MESSAGE_TYPE) == REPLY else self._name(message.topic)

    async def _send(
        self, outgoing: Outgoing, queue: MessageQueue | None, select: Select | None, timeout: float | None
    ) -> list[SendResult]:
        """Make attempts until one succeeds; the results name the queues that other attempts may have stored it in."""
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
            except (ClientError, RemotingError) as err:  # of a broker without a master too: another one may have one
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
        sending = self._hooks.before(outgoing, queue, address)
        try:
            response = await self.cluster.call(address, self._packer.request(outgoing, queue), left)
            with self.cluster.answers_of(address):
                results = results_of(outgoing, queue, response, address)
        except (ClientError, RemotingError) as err:
            self._hooks.after(sending, error=err)
            raise
        self._hooks.after(sending, results)
        return results


def _millis(begin: float, end: float) -> int:
    return round((end - begin) * 1000)
