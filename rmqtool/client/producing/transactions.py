"""Messages delivered only if a local transaction commits (client.producer.TransactionMQProducer)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeAlias

from formats.errors import FormatError
from formats.message.ids import parse_offset_id
from formats.message.read import End, read
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.cluster.hooks import tell_hooks
from rmqtool.client.cluster.namespaces import without_namespace
from rmqtool.client.consumer.received import Received
from rmqtool.client.producing.hooks import EndHook, EndTransactionContext
from rmqtool.client.producing.message import Message, NotSent, SendResult
from rmqtool.client.producing.producer import Producer, ProducerOptions, Select
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_PREPARED, _GROUP, _DELAY = "TRAN_MSG", "PGROUP", "DELAY"


class State(IntEnum):
    """Outcome of a transaction, with its code on the wire."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


_STATE_NAMES = {State.UNKNOWN: "UNKNOW", State.COMMIT: "COMMIT_MESSAGE", State.ROLLBACK: "ROLLBACK_MESSAGE"}


class NotEnded(ClientError):
    """A half message is stored, but its broker has not confirmed the outcome.

    Attributes:
        sent: the send result of the half message.
    """

    def __init__(self, text: str, sent: SendResult) -> None:
        super().__init__(text)
        self.sent = sent


Execute: TypeAlias = Callable[[Message, SendResult], State | Awaitable[State]]
Check: TypeAlias = Callable[[Received], State | Awaitable[State]]


class TransactionProducer(Producer):
    """Sends transactional messages.

    Args:
        check: returns the outcome of a message's transaction, for brokers that do not know it. Runs in a thread unless
            it is a coroutine function.
    """

    def __init__(
        self, client: str | ClientOptions | Cluster, group: str, check: Check, options: ProducerOptions | None = None
    ) -> None:
        super().__init__(client, group, options)
        self._check = check
        self._end_hooks = [hook for hook in self.options.hooks if isinstance(hook, EndHook)]
        self.cluster.share(_Checks).producers[self.group] = self

    async def close(self) -> None:
        """Leave the group; brokers then send checks to other members."""
        self.cluster.share(_Checks).producers.pop(self.group, None)
        await super().close()

    async def send_in_transaction(
        self,
        message: Message,
        execute: Execute,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        confirm: bool = False,
    ) -> tuple[SendResult, State]:
        """Send a half message, execute the local transaction, and report the outcome.

        If the broker does not receive the outcome, it sends a check later. A delay of the message is ignored, as in
        Java.

        Args:
            execute: the local transaction. Its exceptions propagate; the outcome is then unknown, and brokers send
                checks. Runs in a thread unless it is a coroutine function.
            queue, select: as for :meth:`send`.
            confirm: wait until the broker confirms the outcome. The Java client does not.

        Raises:
            NotEnded: with ``confirm``, no confirmation arrived. The outcome is not reported again, as the broker might
                then deliver the message twice; it sends a check if it does not know the outcome.
            NotSent: the half message was not stored; the transaction did not begin.
            ValueError: brokers would refuse the message.
        """
        own = {name: value for name, value in message.properties.items() if name != _DELAY}
        prepared = replace(message, delay_level=0, properties={**own, _PREPARED: "true", _GROUP: self.group})
        sent = await self.send(prepared, queue=queue, select=select, timeout=timeout)
        try:
            offset = parse_offset_id(sent.offset_message_id).physical_offset
        except FormatError as err:
            text = f"{message.topic}: the broker does not say where it is: {err}"
            raise NotSent(text, maybe_in=(*sent.maybe_in, sent.queue)) from err
        state = State.ROLLBACK  # a half message stored less safely than configured: do not begin
        try:
            if sent.status == "SEND_OK":
                state = State.UNKNOWN
                state = State(await _call(execute, message, sent))
        finally:
            header = h.EndTransaction(
                producer_group=self.group,
                tran_state_table_offset=sent.queue_offset,
                commit_log_offset=offset,
                commit_or_rollback=state,
                from_transaction_check=False,
                msg_id=sent.message_id,
                transaction_id=sent.transaction_id,
                topic=self._name(message.topic) if self._release.is_5 else None,
                bname=sent.queue.broker_name,
            )
            confirmed = confirm and state != State.UNKNOWN  # brokers do not answer UNKNOWN
            await self._end(sent, self.cluster.request(RequestCode.END_TRANSACTION, header), confirmed=confirmed)
            named = prepared.all_properties()
            self._tell_end(named, message.topic, header, self._address(sent.queue))
        return sent, state

    async def _end(self, sent: SendResult, request: Command, *, confirmed: bool) -> None:
        try:
            address = self.cluster.address(sent.queue.broker_name)
            if confirmed:
                await self.cluster.ask(address, request)
            else:
                await self.cluster.oneway(address, request)
        except (ClientError, RemotingError) as err:
            if confirmed:
                raise NotEnded(f"{sent.queue.topic}: stored, but its end is not known: {err}", sent) from err
            log.warning("the end of a transaction was not sent, its broker will ask: %s", err)

    def _address(self, queue: MessageQueue) -> str:
        try:
            return self.cluster.address(queue.broker_name)
        except ClientError:
            return ""

    def _tell_end(self, properties: Mapping[str, str], topic: str, header: h.EndTransaction, address: str) -> None:
        if not self._end_hooks:
            return
        ending = EndTransactionContext(
            group=without_namespace(self._namespace, self.group),
            topic=without_namespace(self._namespace, topic),
            properties=dict(properties),
            message_id=header.msg_id or "",
            transaction_id=header.transaction_id,
            address=address,
            state=_STATE_NAMES[State(header.commit_or_rollback)],
            checked=bool(header.from_transaction_check),
        )
        tell_hooks([hook.before_end for hook in self._end_hooks], ending)

    async def answer_check(self, connection: Connection, header: h.CheckTransaction, message: Received) -> None:
        """Answer a broker's check of a transaction."""
        try:
            state = State(await _call(self._check, message))
        except Exception:  # the broker will check again
            log.exception("how the transaction of %s ended is not known", message.message_id)
            state = State.UNKNOWN
        answer = h.EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            topic=message.topic if self._release.is_5 else None,
        )
        await self.cluster.tell(connection, self.cluster.request(RequestCode.END_TRANSACTION, answer))
        self._tell_end(message.properties, message.topic, answer, connection.peer)


class _Checks:
    """Dispatches checks to the producers of a client."""

    def __init__(self, cluster: Cluster) -> None:
        self.producers: dict[str, TransactionProducer] = {}
        cluster.on(RequestCode.CHECK_TRANSACTION_STATE, self._answer_check)

    async def _answer_check(self, connection: Connection, request: Command) -> None:
        try:
            header = from_fields(h.CheckTransaction, request.fields)
        except FormatError as err:
            log.warning("%s: not a question after a transaction: %s", connection.peer, err)
            return
        record = read(request.body, 0, len(request.body))
        if isinstance(record, End):
            log.warning("%s: a question after a transaction without its message: %s", connection.peer, record.reason)
            return
        half = Received(MessageQueue(record.topic.decode("utf-8", "replace"), "", record.queue_id), record)
        producer = self.producers.get(half.properties.get(_GROUP, ""))
        if producer is not None:
            await producer.answer_check(connection, header, half)


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    answer = await asyncio.to_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer
