"""Messages that consumers get when a transaction of one's own was committed (client.producer.TransactionMQProducer)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeAlias

from formats.errors import FormatError
from formats.message.ids import parse_offset_id
from formats.message.read import End, read
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.remoting.typed import from_fields
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.producing.message import Message, NotSent, SendResult
from rmqtool.client.producing.producer import Producer, ProducerOptions
from rmqtool.client.pulling.pull import Received
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_PREPARED, _GROUP, _DELAY = "TRAN_MSG", "PGROUP", "DELAY"


class State(IntEnum):
    """How a transaction ended, as it is said on the wire."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


Execute: TypeAlias = Callable[[Message, SendResult], State | Awaitable[State]]
Check: TypeAlias = Callable[[Received], State | Awaitable[State]]


class TransactionProducer(Producer):
    """Sends messages of transactions; a cluster is shared by one such producer at most.

    Args:
        check: tells how the transaction of a message ended, for brokers that have not heard of it. A function that is
            no coroutine runs in a thread.
    """

    def __init__(
        self, client: str | ClientOptions | Cluster, group: str, check: Check, options: ProducerOptions | None = None
    ) -> None:
        super().__init__(client, group, options)
        self._check = check
        self.cluster.on(RequestCode.CHECK_TRANSACTION_STATE, self._asked)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: float | None = None
    ) -> tuple[SendResult, State]:
        """Send a message that nobody gets yet, do what belongs to it, and say how that ended.

        Where the broker does not hear how it ended it asks later. A message with a delay goes without one, as in Java.

        Args:
            execute: the transaction of one's own. What it raises is raised here; the state is then unknown, and brokers
                ask for it. A function that is no coroutine runs in a thread.

        Raises:
            NotSent: the message was not stored; the transaction did not begin.
            ValueError: no message that a broker would take.
        """
        own = {name: value for name, value in message.properties.items() if name != _DELAY}
        prepared = replace(message, delay_level=0, properties={**own, _PREPARED: "true", _GROUP: self.group})
        sent = await self.send(prepared, timeout=timeout)
        try:
            offset = parse_offset_id(sent.offset_message_id).physical_offset
        except FormatError as err:
            raise NotSent(f"{message.topic}: the broker does not say where it is: {err}", maybe_stored=True) from err
        state = State.ROLLBACK  # what is not as safe as it should be is not begun
        try:
            if sent.status == "SEND_OK":
                state = State.UNKNOWN
                state = State(await _called(execute, message, sent))
        finally:
            header = h.EndTransaction(
                producer_group=self.group,
                tran_state_table_offset=sent.queue_offset,
                commit_log_offset=offset,
                commit_or_rollback=state,
                from_transaction_check=False,
                msg_id=sent.message_id,
                transaction_id=sent.transaction_id,
                topic=None if self._engine == "4.9" else message.topic,
                bname=sent.queue.broker_name,
            )
            await self._end(sent.queue, self.cluster.request(RequestCode.END_TRANSACTION, header))
        return sent, state

    async def _end(self, queue: MessageQueue, request: Command) -> None:
        try:
            await self.cluster.oneway(self.cluster.address(queue.broker_name), request)
        except (ClientError, RemotingError) as err:
            log.warning("the end of a transaction was not told, its broker will ask: %s", err)

    async def _asked(self, connection: Connection, request: Command) -> None:
        """A broker asks how a transaction ended."""
        try:
            header = from_fields(h.CheckTransaction, request.fields)
        except FormatError as err:
            log.warning("%s: not a question after a transaction: %s", connection.peer, err)
            return
        record = read(request.body, 0, len(request.body))
        if isinstance(record, End):
            log.warning("%s: a question after a transaction without its message: %s", connection.peer, record.reason)
            return
        asked = Received(MessageQueue(record.topic.decode("utf-8", "replace"), "", record.queue_id), record)
        if asked.properties.get(_GROUP) != self.group:
            return
        try:
            state = State(await _called(self._check, asked))
        except Exception:  # the broker asks again
            log.exception("how the transaction of %s ended is not known", asked.message_id)
            state = State.UNKNOWN
        answer = h.EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state,
            from_transaction_check=True,
            msg_id=asked.message_id,
            transaction_id=header.transaction_id,
            topic=None if self._engine == "4.9" else asked.topic,
        )
        await connection.oneway(self.cluster.request(RequestCode.END_TRANSACTION, answer))


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    answer = await asyncio.to_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer
