"""Acks of popped messages, changes of their invisible time, and assignments of queues.

Source: broker.processor.AckMessageProcessor, ChangeInvisibleTimeProcessor, QueryAssignmentProcessor (5.3.3);
clients-and-live-admin 1.3.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import replace

from formats.fastjson.declare import read_body
from formats.remoting import bodies as b
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue, QueueAssignment
from formats.topics import RETRY_PREFIX, REVIVE_PREFIX
from formats.variants.pop_handle import ORDERED, Handle, real_topic
from rmqtool.errors import RmqError
from rmqtool.rules.releases import V5_3
from rmqtool.server.access import rights
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.requests.lite import LiteRequests
from rmqtool.server.broker.requests.popping import FOLLOWS, check_invisible_time
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.popping.assigning import BROADCASTING, Mode, RequestModes, assign
from rmqtool.services.popping.finishing import Finishing, NoEffect, RenewedHandle
from rmqtool.services.popping.settings import PopSettings

log = logging.getLogger(__name__)
_UNSET = "not set any response code"  # a broker's remark with success


class PopAnswers:
    """Acks, changes of the invisible time, and assignments.

    Args:
        finishing: None for a followed store.
        lite: answers what names a lite topic; None before 5.5 and for a followed store.
    """

    def __init__(
        self,
        context: BrokerContext,
        finishing: Finishing | None,
        modes: RequestModes,
        settings: PopSettings,
        lite: LiteRequests | None = None,
    ) -> None:
        self._context, self._finishing, self._modes, self._settings = context, finishing, modes, settings
        self._lite = lite

    # -- acks ---------------------------------------------------------------------------------------------------------

    @handles(C.ACK_MESSAGE, right=rights.acknowledge, since=V5_3)
    def ack(self, call: Call[p.AckMessage, None]) -> Command:
        """Request 200051."""
        header = call.header
        finishing, handle = self._read_handle(header)
        if self._lite is not None and header.lite_topic:
            return self._lite.ack(call)
        low, high = self._range(header.topic, header.queue_id)
        if not low <= header.offset <= high:
            remark = (
                f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, store:{low}~{high}"
            )
            raise Failed(ResponseCode.NO_MESSAGE, remark)
        self._store(lambda: finishing.ack(header.topic, header.consumer_group, handle, [header.offset]))
        return call.answer()

    @handles(C.BATCH_ACK_MESSAGE, right=rights.batch_acknowledge, since=V5_3)
    def batch_ack(self, call: Call[None, bytes]) -> Command:
        """Request 200151."""
        acks = read_body(p.BatchAcks, call.body) if call.body else p.BatchAcks()
        if not acks.acks:
            return call.request.response(ResponseCode.NO_MESSAGE, None)
        finishing = self._require_finishing()
        for ack in acks.acks:
            topic = real_topic(ack.topic, ack.consumer_group, ack.retry or "")
            config = self._context.state.topic(topic)
            if config is None or not 0 <= ack.queue_id < config.read_queue_nums:
                continue
            low, high = self._range(topic, ack.queue_id)
            offsets = [at for at in (ack.start_offset + distance for distance in ack.distances) if low <= at <= high]
            if not offsets:
                continue
            handle = Handle(
                start_offset=ack.start_offset,
                pop_time=ack.pop_time,
                invisible_time=ack.invisible_time,
                revive_queue=self._revive_queue(ack.revive_queue_id),
                origin=ack.retry or "",
                broker_name=acks.broker_name or self._context.settings.name,
                queue_id=ack.queue_id,
                queue_offset=offsets[0],
            )
            self._store(lambda: finishing.ack(topic, ack.consumer_group, handle, offsets, batch=True))  # noqa: B023
        return call.answer()

    @handles(C.CHANGE_MESSAGE_INVISIBLETIME, right=rights.acknowledge, since=V5_3)
    def change_invisible_time(self, call: Call[p.ChangeInvisible, None]) -> Command:
        """Request 200053."""
        header = call.header
        finishing, handle = self._read_handle(header)
        check_invisible_time(header.invisible_time, self._settings)
        if self._lite is not None and header.lite_topic:
            return self._lite.change_invisible_time(call)
        low, high = self._range(header.topic, header.queue_id)
        if not low <= header.offset < high:
            return call.request.response(ResponseCode.NO_MESSAGE, _UNSET)
        changed: list[RenewedHandle | None] = []
        suspend = self._context.release.knows_lite_topics and header.suspend is True

        def change() -> None:
            made = finishing.change(
                header.topic, header.consumer_group, handle, header.offset, header.invisible_time, suspend=suspend
            )
            changed.append(made)

        self._store(change)
        if changed[0] is None:
            return call.answer(remark=_UNSET)
        pop_time, invisible_time, revive_queue = changed[0]
        response = p.InvisibleChanged(pop_time=pop_time, invisible_time=invisible_time, revive_qid=revive_queue)
        return call.answer(response, remark=_UNSET)

    def _read_handle(self, header: p.AckMessage | p.ChangeInvisible) -> tuple[Finishing, Handle]:
        finishing, config = self._require_finishing(), self._context.topic(header.topic)
        if not 0 <= header.queue_id < config.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]"
            )
            raise Failed(ResponseCode.MESSAGE_ILLEGAL, remark)
        handle = Handle.parse(header.extra_info)
        self._revive_queue(handle.revive_queue)
        return finishing, replace(handle, queue_id=header.queue_id)

    def _require_finishing(self) -> Finishing:
        if self._finishing is None:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{self._context.settings.address}]: {FOLLOWS}")
        return self._finishing

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        reading = self._context.reading
        return reading.min_offset(topic, queue_id), reading.max_offset(topic, queue_id)

    def _revive_queue(self, queue_id: int) -> int:
        config = self._context.state.topic(f"{REVIVE_PREFIX}{self._context.settings.cluster}")
        count = max(self._settings.revive_queues, config.read_queue_nums if config is not None else 0)
        if queue_id != ORDERED and not 0 <= queue_id < count:
            raise Failed(ResponseCode.MESSAGE_ILLEGAL, f"there is no revive queue {queue_id}")
        return queue_id

    def _store(self, change: Callable[[], None]) -> None:
        try:
            change()
        except NoEffect as err:
            raise Failed(err.code, str(err)) from None
        except (OSError, RmqError) as err:
            remark = "what a consumer says of its messages cannot be stored"
            raise self._context.failure(remark, err, ResponseCode.SYSTEM_ERROR) from None

    @handles(C.POP_ROLLBACK, since=V5_3)
    def roll_back(self, call: Call[None, None]) -> Command:
        """Request 200056: go back from notes in RocksDB to those in the log, the only ones here."""
        path = self._context.store.layout.path("kvStore")
        if os.path.isdir(path):
            raise Failed(ResponseCode.SYSTEM_ERROR, "this broker does not read kvStore")
        return call.answer()

    # -- assignments --------------------------------------------------------------------------------------------------

    @handles(C.QUERY_ASSIGNMENT, right=rights.query_assignment, since=V5_3)
    async def assign_queues(self, call: Call[None, b.AssignmentRequest]) -> Command:
        """Request 400."""
        asked = call.body
        queues = await self._context.queues_of(asked.topic)
        group = self._context.clients.consumers.get(asked.consumer_group)
        mode = self._modes.of(asked.topic, asked.consumer_group)
        own = None
        if queues is not None:
            own = assign(
                queues,
                asked.client_id,
                None if group is None else [client.client_id for client in group.clients.values()],
                mode,
                strategy=asked.strategy_name,
                broadcast=asked.message_model == BROADCASTING,
                shared_here=self._settings.shares_here,
            )
        if own is None:
            return call.answer(body=b"{}")
        assignments = [QueueAssignment(MessageQueue(*queue), mode.mode) for queue in own]
        return call.answer(body=b.AssignmentResponse(assignments))

    @handles(C.SET_MESSAGE_REQUEST_MODE, since=V5_3)
    def set_mode(self, call: Call[None, b.SetRequestMode]) -> Command:
        """Request 401."""
        asked = call.body
        self._context.check_writable()
        if asked.topic.startswith(RETRY_PREFIX):
            raise Failed(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        self._modes.set(asked.topic, asked.consumer_group, Mode(asked.mode, asked.pop_share_queue_num))
        return call.answer()

    @handles(C.GET_ALL_MESSAGE_REQUEST_MODE, since=V5_3)
    def list_modes(self, call: Call[None, None]) -> Command:
        """Request 402."""
        return call.answer(body=self._modes.build())
