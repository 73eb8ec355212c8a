"""Sends: messages are checked, stored together with others that arrived at the same time, and answered.

Source: broker.processor.SendMessageProcessor, AbstractSendMessageProcessor, ReplyMessageProcessor (4.9.8, 5.3.3);
message-services 9.5, 10.2, 11.2, 12.4.
"""

import asyncio
import logging
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from formats.errors import FormatError
from formats.message.ids import offset_id
from formats.message.properties import DELAY, MULTI_DISPATCH, PRIORITY, UNIQ_KEY, WAIT, parse_text
from formats.message.read import java_int
from formats.model.topics import TopicConfig
from formats.primitives import parse_host
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, Perm
from formats.variants.pop_handle import POP_CK
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Connection
from rmqtool.rules.ids import UniqueIds
from rmqtool.rules.kinds import heeds_priority, lite_queue, own_priority
from rmqtool.rules.sending import Rejected, auto_create, check_at_broker
from rmqtool.rules.static_topics import static_offset_within
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.static_queues import StaticQueue, StaticQueues
from rmqtool.server.broker.requests.recalling import handle_of
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.retries.send_back import SendBackStore
from rmqtool.services.transactions.service import TransactionService
from rmqtool.store.append.answers import Illegal, PutResult, PutStatus
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.disk.durable import is_lacking

log = logging.getLogger(__name__)

_MULTI_TAG = 2  # bits of the system flag
_REGION, _TRACE, _CLUSTER = "MSG_REGION", "TRACE_ON", "CLUSTER"
_HALF_MARK = "TRAN_MSG"
_OFFSET_SIZE = 8  # bytes at the end of an offset id


class _Sent(NamedTuple):
    """A message to be stored, and its call."""

    call: Call[h.Send, bytes]
    queue_id: int  # as requested
    message: NewMessage
    static: StaticQueue | None


class Sending:
    """Requests that send messages.

    Messages of one turn of the event loop are stored together, so with ``SYNC_FLUSH`` they share one sync. Topics
    created for them are written together too, before the first message is stored.
    """

    def __init__(
        self, context: BrokerContext, back: SendBackStore, transactions: TransactionService, random: Random
    ) -> None:
        self._context, self._back, self._transactions, self._random = context, back, transactions, random
        self._static = StaticQueues(context)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Sent] = []
        self._made: dict[str, TopicConfig] = {}  # topics not yet written
        self._announcing: set[asyncio.Task[None]] = set()  # answers that wait until name servers know their topics
        host = parse_host(context.settings.address)
        self._id_of_host = offset_id(*host, 0)[: -2 * _OFFSET_SIZE]
        self._ids = UniqueIds(host[0], 0, self._random.getrandbits(32), context.clock)
        self._release = context.release

    @handles(C.SEND_MESSAGE, C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE, right=rights.send)
    def send(self, call: Call[h.Send, bytes]) -> Command | None:
        """Requests 10, 310 and 320, answered once the message is stored."""
        header = call.header
        static = self._static.find(header.topic, header.queue_id, header.lo, any_queue=True)
        if static is not None:
            header = replace(header, queue_id=static.leader.queue_id)
            call = Call(call.connection, call.request, header, call.body)
        message = self.build(call)
        properties = message.property_map()
        if header.batch:
            return self._batch(call, message, static)
        if properties.get(_HALF_MARK, "").lower() == "true" and not self._comes_back(header, properties):
            return self._half(call, message, static)
        if message.topic.startswith(RETRY_PREFIX):
            return self._retry(call, message)
        if not self._waiting:
            self._loop.call_soon(self.store)
        self._waiting.append(_Sent(call, message.queue_id, message, static))
        return None

    def build(self, call: Call[h.Send, bytes]) -> NewMessage:
        """Build the message of a request. Call :meth:`make_way` before storing it other than by :meth:`store`.

        Raises:
            Failed: the message is not allowed.
        """
        header, peer = call.header, call.connection.peer
        properties = self._properties(header)
        try:
            queue_id, topic_flag = self._check(header, peer, properties)
        except Rejected as err:
            raise Failed(err.code, str(err)) from None
        if DELAY in properties and java_int(properties[DELAY]) is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"delay level {properties[DELAY][:80]!r} is not a number")
        return NewMessage(
            topic=header.topic,
            queue_id=queue_id,
            body=call.body,
            properties=properties,
            flag=header.flag,
            sys_flag=header.sys_flag | topic_flag,
            born_timestamp=header.born_timestamp,
            born_host=peer,
            store_host=self._context.settings.address,
            reconsume_times=header.reconsume_times or 0,
        )

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check(self, header: h.Send, peer: str, properties: dict[str, str]) -> tuple[int, int]:
        """Check a request; returns (queue id, bits that the topic adds to the system flag).

        A priority that has no effect is removed from the properties; the light queue of a lite topic is added.
        """
        context, settings = self._context, self._context.settings
        if not settings.permission & Perm.WRITE:
            raise Rejected(ResponseCode.NO_PERMISSION, f"the broker[{settings.address}] sending message is forbidden")
        topic = header.topic
        config = context.state.topic(topic) or self._made.get(topic)
        if config is None:
            template = header.default_topic
            config = auto_create(
                topic,
                template,
                context.state.topic(template),
                header.default_topic_queue_nums,
                enabled=settings.auto_create_topics,
            )
            check_at_broker(topic, header.queue_id, config, release=self._release)
            assert config is not None  # else it was refused
            log.info("topic %s is made for %s, as %s", topic, peer, template)
            self._made[topic] = config
        else:
            check_at_broker(topic, header.queue_id, config, release=self._release)
        if not config.perm & Perm.WRITE:
            raise Rejected(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(max(config.write_queue_nums, 1))
        if not header.batch:
            queue_id = self._heed_kind(header.topic, properties, queue_id, config.write_queue_nums)
        return queue_id, _MULTI_TAG if config.topic_filter_type == "MULTI_TAG" else 0

    def _heed_kind(self, topic: str, properties: dict[str, str], queue_id: int, queues: int) -> int:
        """Choose the queue of a message with a priority; a message of a lite topic gets the name of its light queue."""
        if self._release.knows_lite_topics and (light := lite_queue(topic, properties)) is not None:
            properties[MULTI_DISPATCH] = light
        priority = own_priority(properties) if self._release.knows_priorities else None
        if priority is None:
            return queue_id
        if heeds_priority(properties):
            return min(priority, queues - 1)
        del properties[PRIORITY]
        return queue_id

    def _properties(self, header: h.Send) -> dict[str, str]:
        properties = parse_text(header.properties or "")
        if not self._release.is_5:
            properties.pop(WAIT, None)
        else:
            properties.pop(POP_CK, None)  # from a popped message that is sent on; the handle is not this message's
            if not header.batch:
                properties.setdefault(UNIQ_KEY, self._ids())
            properties[_REGION] = self._context.settings.region
            properties[_TRACE] = "true" if self._context.settings.trace else "false"
        properties[_CLUSTER] = self._context.settings.cluster
        return properties

    def _comes_back(self, header: h.Send, properties: dict[str, str]) -> bool:
        """Whether a message comes back to a consumer with a delay; 5.x never treats it as a half message."""
        return self._release.is_5 and (header.reconsume_times or 0) > 0 and properties.get(DELAY, "0") != "0"

    # -- storing ------------------------------------------------------------------------------------------------------

    def make_way(self, topic: str) -> None:
        """Store waiting messages, so that a message of a topic may follow.

        Raises:
            Failed: the topic could not be created.
        """
        failed = self.store()
        if failed is not None and self._context.state.topic(topic) is None:
            raise failed

    def store(self) -> Failed | None:
        """Store waiting messages and answer; returns the error if topics could not be created."""
        waiting, self._waiting = self._waiting, []
        created: Container[str] = ()
        failed = None
        if self._made:
            created, failed = set(self._made), self._make_topics()
        if failed is not None:
            lost = [item for item in waiting if self._context.state.topic(item.message.topic) is None]
            _answer([(item, failed.answer(item.call.request)) for item in lost])
            waiting = [item for item in waiting if self._context.state.topic(item.message.topic) is not None]
        if waiting:
            self._store(waiting, created)
        return failed

    def _make_topics(self) -> Failed | None:
        topics, self._made = self._made, {}
        try:
            self._context.set_topics(topics.values())
        except (OSError, RmqError) as err:
            code = ResponseCode.SERVICE_NOT_AVAILABLE if is_lacking(err) else ResponseCode.SYSTEM_ERROR
            return self._context.failure(f"topics {', '.join(topics)} cannot be made", err, code)
        return None

    def _store(self, waiting: list[_Sent], made: Container[str]) -> None:
        try:
            results: Sequence[PutResult] = self._context.store.append_many([item.message for item in waiting])
        except (OSError, RmqError) as err:
            failed = self._context.failure("messages cannot be stored", err)
            _answer([(item, failed.answer(item.call.request)) for item in waiting])
            return
        both = list(zip(waiting, results, strict=True))
        answers = [
            (item, self._answer_of(item.call, item.queue_id, result, static=item.static)) for item, result in both
        ]
        if made and self._context.announced is not None:
            first = [(item, answer) for item, answer in answers if item.message.topic in made]
            answers = [(item, answer) for item, answer in answers if item.message.topic not in made]
            self._announcing.add(task := asyncio.create_task(_answer_after(self._context.announced(), first)))
            task.add_done_callback(self._announcing.discard)
        _answer(answers)
        sizes: defaultdict[str, list[int]] = defaultdict(list)
        grown: set[tuple[str, int]] = set()
        for item, result in both:
            if not result.ok:
                continue
            sizes[item.message.topic].append(result.size)
            grown.add((result.topic, result.queue_id))
            given = item.message.properties
            if isinstance(given, dict) and MULTI_DISPATCH in given:
                grown.update((name, 0) for name in given[MULTI_DISPATCH].split(",") if name)
        for topic, each in sizes.items():
            self._count(topic, len(each), sum(each), puts=len(each))
        for key in grown:
            self._context.arrivals.publish(*key)

    def _answer_of(
        self,
        call: Call[h.Send, bytes],
        queue_id: int,
        result: PutResult,
        unique: str | None = None,
        static: StaticQueue | None = None,
    ) -> Command:
        if not result.ok:
            return call.request.response(_code_of(result.status), result.reason)
        settings = self._context.settings
        header = h.Sent(
            msg_id=result.message_id,
            queue_id=queue_id,
            queue_offset=result.queue_offset,
            transaction_id=unique,
            recall_handle=handle_of(self._context, result) if self._release.has_timer else None,
            msg_region=settings.region,
            trace_on="true" if settings.trace else "false",
        )
        return call.answer(_in_topic(header, static))

    def _batch(self, call: Call[h.Send, bytes], message: NewMessage, static: StaticQueue | None) -> Command:
        self.make_way(message.topic)
        if message.topic.startswith(RETRY_PREFIX):
            raise Failed(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group")
        inner = message.topic in self._context.store.live.batch_topics
        if self._release.is_5 and not inner and len(message.body) > self._context.settings.max_message_size:
            raise Failed(ResponseCode.SYSTEM_ERROR, "message body size exceeded")  # MessageExtEncoder throws it
        try:
            done = self._context.store.live.append_encoded(message)
        except Illegal as err:
            raise Failed(_code_of(err.status), err.reason) from None
        except FormatError as err:
            raise Failed(ResponseCode.MESSAGE_ILLEGAL, str(err)) from None
        except (OSError, RmqError) as err:
            raise self._context.failure("messages cannot be stored", err) from None
        self._context.arrivals.publish(message.topic, message.queue_id)
        self._count(message.topic, done.messages, done.size)
        settings = self._context.settings
        header = h.Sent(
            msg_id=self._ids_of(done.offsets),
            queue_id=message.queue_id,
            queue_offset=done.queue_offset,
            batch_uniq_id=self._batch_id(message),
            msg_region=settings.region,
            trace_on="true" if settings.trace else "false",
        )
        return call.answer(_in_topic(header, static))

    def _batch_id(self, batch: NewMessage) -> str | None:
        """The id of a batch stored as one record; None if each message has its own."""
        inner = self._release.has_attributes and batch.topic in self._context.store.live.batch_topics
        return batch.property_map().get(UNIQ_KEY) if inner else None

    def _count(self, topic: str, messages: int, size: int, puts: int = 1) -> None:
        add, cluster = self._context.counts.add, self._context.settings.cluster
        add(counts.TOPIC_PUT, topic, messages, puts)
        add(counts.TOPIC_PUT_SIZE, topic, size, puts)
        add(counts.BROKER_PUT, cluster, messages, puts)
        add(counts.BROKER_PUT_SIZE, cluster, size, puts)

    def _ids_of(self, physical_offsets: Sequence[int]) -> str:
        """The offset ids of records, as an answer lists them."""
        if not physical_offsets:
            return ""
        digits = struct.pack(f">{len(physical_offsets)}q", *physical_offsets).hex(",", _OFFSET_SIZE).upper()
        return self._id_of_host + digits.replace(",", f",{self._id_of_host}")

    def _half(self, call: Call[h.Send, bytes], message: NewMessage, static: StaticQueue | None) -> Command:
        self.make_way(message.topic)
        if self._context.settings.reject_transactions:
            remark = f"the broker[{self._context.settings.address}] sending transaction message is forbidden"
            raise Failed(ResponseCode.NO_PERMISSION, remark)
        group = message.property_map().get("PGROUP", call.header.producer_group)
        result = self._store_one(lambda: self._transactions.prepare(message, group))
        unique = message.property_map().get(UNIQ_KEY) if self._release.is_5 else None
        return self._answer_of(call, message.queue_id, result, unique, static)

    def _retry(self, call: Call[h.Send, bytes], message: NewMessage) -> Command:
        self.make_way(message.topic)
        most = call.header.max_reconsume_times
        group = message.topic.removeprefix(RETRY_PREFIX)
        locked = self._context.locks.is_held(group)
        result = self._store_one(lambda: self._back.send_to_retry(message, most, locked=locked))
        self._context.arrivals.publish(result.topic, result.queue_id)
        self._context.arrivals.publish(DLQ_PREFIX + group, 0)
        return self._answer_of(call, message.queue_id, result)

    def _store_one(self, put: Callable[[], PutResult]) -> PutResult:
        try:
            return put()
        except Rejected as err:
            raise Failed(err.code, str(err)) from None
        except (OSError, RmqError) as err:
            raise self._context.failure("messages cannot be stored", err) from None


async def _answer_after(announced: Awaitable[None], answers: list[tuple[_Sent, Command]]) -> None:
    """Send the answers for messages of new topics, once the name servers know these topics."""
    await announced
    _answer(answers)


def _answer(answers: list[tuple[_Sent, Command]]) -> None:
    """Send the answers, grouped by connection."""
    by_connection: defaultdict[Connection, list[Command]] = defaultdict(list)
    for sent, response in answers:
        if not sent.call.request.is_oneway:
            by_connection[sent.call.connection].append(response)
    for connection, responses in by_connection.items():
        connection.send_now(responses)


def _in_topic(header: h.Sent, static: StaticQueue | None) -> h.Sent:
    """Where a message was stored, as the queue and offset of a static topic."""
    if static is None:
        return header
    offset = static_offset_within(static.leader, header.queue_offset)
    return replace(header, queue_id=static.queue_id, queue_offset=offset)


def _code_of(status: PutStatus) -> int:
    illegal = status in (
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
    )
    return ResponseCode.MESSAGE_ILLEGAL if illegal else ResponseCode.SYSTEM_ERROR
