"""Lite topics of 5.5: subscriptions, pops, acks.

Source: broker.processor.PopLiteMessageProcessor, LiteSubscriptionCtlProcessor, AckMessageProcessor.ackLite,
ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForLite (5.5.0).
"""

import logging
from dataclasses import dataclass
from random import Random

from formats.fastjson.declare import read_body
from formats.remoting import lite as lt
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.topics import Perm
from formats.variants.pop_handle import ORDERED, Handle
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Connection
from rmqtool.rules.kinds import is_lite, lite_names
from rmqtool.rules.releases import V5_5
from rmqtool.rules.statuses import GetStatus
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.requests.popping import waiting_until
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.lite.service import LitePopped, LiteService, queue_names
from rmqtool.services.lite.subscriptions import NotForThisGroup, TooManySubscriptions
from rmqtool.services.popping.finishing import Finishing, NoEffect
from rmqtool.services.popping.ordered import QueueOrders
from rmqtool.services.popping.parked import Parked, WaitKey
from rmqtool.services.popping.popping import Popping, PopRecords
from rmqtool.services.popping.settings import PopSettings

log = logging.getLogger(__name__)

_MOST = 32  # messages of one pop


@dataclass(slots=True, eq=False)
class _Waiting:
    call: Call[lt.PopLite, None]
    until: float  # s of the monotonic clock


class LiteRequests:
    """Handles what clients of lite topics ask.

    Args:
        records: never used: pops of light queues are in order.

    Attributes:
        service: the broker's lite topics.
    """

    def __init__(self, context: BrokerContext, records: PopRecords, settings: PopSettings, random: Random) -> None:
        self._context, self._settings = context, settings
        orders = QueueOrders(context.clock)
        popping = Popping(
            context.reading, context.state, records, orders, settings, context.settings.name,
            clock=context.clock, random=random, resets=context.resets, failed=context.log.warn,
        )  # fmt: skip
        self.service = service = LiteService(
            context.store.layout, context.reading, context.state, popping, orders,
            resets=context.resets, random=random, wake=self._wake, excluded=self._tell_excluded,
        )  # fmt: skip
        self._finishing = Finishing(
            context.state, records, orders,
            clock=context.clock, resets=context.resets, freed=lambda queue, group, _id: service.note(queue, group),
        )  # fmt: skip
        self._held: Parked[_Waiting] = Parked(settings.most_waiting, lambda _topic, _group: [])
        self._connections: dict[str, Connection] = {}
        context.arrivals.subscribe(service.arrive)

    # -- subscriptions ------------------------------------------------------------------------------------------------

    @handles(C.LITE_SUBSCRIPTION_CTL, right=rights.subscribe_lite, since=V5_5)
    def subscribe(self, call: Call[None, bytes]) -> Command:
        """Request 200071."""
        if not call.body:
            raise Failed(ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
        changes = read_body(lt.LiteSubscriptionChanges, call.body).subscription_set
        if not changes:
            raise Failed(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        for change in changes:
            self._change(call.connection, change)
        return call.answer()

    def _change(self, connection: Connection, change: lt.LiteSubscriptionChange) -> None:
        client, group, topic = change.client_id or "", change.group or "", change.topic or ""
        if not (client.strip() and group.strip() and topic.strip()):
            log.warning("%s: a change of lite topics lacks client, group or topic: it is ignored", connection.peer)
            return
        subscriptions, queues = self.service.subscriptions, queue_names(topic, change.lite_topic_set or ())
        if change.action in (lt.ADD_SOME, lt.ADD_ALL):
            config = self._context.state.groups.get(group)
            if config is None or not config.consume_enable:
                remark = "java.lang.IllegalStateException: Consumer group is not allowed to consume."
                raise Failed(ResponseCode.ILLEGAL_OPERATION, remark)
            self._connections[client] = connection
        try:
            if change.action == lt.ADD_SOME:
                option = change.offset_option
                subscriptions.add(client, group, topic, queues, lambda queue: self.service.begin(group, queue, option))
            elif change.action == lt.REMOVE_SOME:
                subscriptions.remove(client, group, topic, queues)
            elif change.action == lt.ADD_ALL:
                subscriptions.set(client, group, topic, queues)
            elif change.action == lt.REMOVE_ALL:
                self._connections.pop(client, None)
                self.service.leave(client)
        except TooManySubscriptions as err:
            remark = f"org.apache.rocketmq.broker.lite.LiteQuotaException: {err}"
            raise Failed(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, remark) from None
        except NotForThisGroup as err:
            raise Failed(ResponseCode.ILLEGAL_OPERATION, f"java.lang.IllegalStateException: {err}") from None

    def _tell_excluded(self, client: str, group: str, queue: str) -> None:
        connection, names = self._connections.get(client), lite_names(queue)
        if connection is not None and names is not None:
            header = lt.NotifyUnsubscribeLite(lite_topic=names[1], consumer_group=group, client_id=client)
            connection.tell(Command(C.NOTIFY_UNSUBSCRIBE_LITE, fields=to_fields(header)))

    # -- pops ---------------------------------------------------------------------------------------------------------

    @handles(C.POP_LITE_MESSAGE, right=rights.consume, since=V5_5)
    def pop(self, call: Call[lt.PopLite, None]) -> Command | None:
        """Request 200070."""
        header = call.header
        self._check(header)
        until = waiting_until(self._context, self._settings, header.poll_time, header.born_time)
        return self._pop(_Waiting(call, until))

    def _check(self, header: lt.PopLite) -> None:
        context, address = self._context, self._context.settings.address
        if not context.settings.permission & Perm.READ:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{address}] pop message is forbidden")
        if header.max_msg_num > _MOST:
            remark = f"the broker[{address}] pop message's num is greater than {_MOST}"
            raise Failed(ResponseCode.INVALID_PARAMETER, remark)
        config = context.topic(header.topic)
        if not config.perm & Perm.READ:
            raise Failed(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] peeking message is forbidden")
        if not is_lite(config):
            remark = f"the topic [{header.topic}] message type not match"
            raise Failed(ResponseCode.INVALID_PARAMETER, remark)
        group = context.state.ensure_group(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist"
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise Failed(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
        if self.service.subscriptions.kind(header.consumer_group).topic != header.topic:
            remark = f"subscription bind topic not match, {header.consumer_group}"
            raise Failed(ResponseCode.INVALID_PARAMETER, remark)

    def _pop(self, waiting: _Waiting, *, last: bool = False) -> Command | None:
        """Try to answer a pop; None if it has to wait."""
        header = waiting.call.header
        try:
            popped = self.service.pop(
                header.client_id, header.consumer_group, header.max_msg_num, header.invisible_time, header.attempt_id
            )
        except (OSError, RmqError) as err:
            raise self._context.failure("messages cannot be handed out", err) from None
        if popped.messages:
            key, add = f"{header.topic}@{header.consumer_group}", self._context.counts.add
            add(counts.GROUP_GET, key, len(popped.messages))
            add(counts.GROUP_GET_SIZE, key, sum(map(len, popped.messages)))
            add(counts.BROKER_GET, self._context.settings.cluster, len(popped.messages))
            return self._answer(waiting, popped, ResponseCode.SUCCESS, GetStatus.FOUND)
        code = ResponseCode.POLLING_TIMEOUT
        if not last and waiting.until > self._context.now():
            if self._held.add(WaitKey(header.client_id, "", 0), waiting.until, waiting):
                return None
            code = ResponseCode.POLLING_FULL
        return self._answer(waiting, popped, code, GetStatus.NO_MESSAGE_IN_QUEUE)

    @staticmethod
    def _answer(waiting: _Waiting, popped: LitePopped, code: int, remark: str) -> Command:
        response = lt.PopLiteResponse(
            pop_time=popped.pop_time,
            invisible_time=waiting.call.header.invisible_time,
            revive_qid=ORDERED,
            order_count_info=popped.counts,
        )
        return waiting.call.answer(response, b"".join(popped.messages), code=code, remark=remark)

    # -- acks ---------------------------------------------------------------------------------------------------------

    def ack(self, call: Call[p.AckMessage, None]) -> Command:
        """Answer request 200051 that names a lite topic."""
        header = call.header
        if self.service.subscriptions.kind(header.consumer_group).topic != header.topic:
            raise Failed(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        (queue,) = queue_names(header.topic, [header.lite_topic or ""])
        if header.offset > self.service.end(queue):
            raise Failed(ResponseCode.NO_MESSAGE, "ack offset illegal.")
        handle = Handle.parse(header.extra_info)
        if header.queue_id != 0 or handle.revive_queue != ORDERED:
            raise Failed(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        try:
            self._finishing.ack(queue, header.consumer_group, handle, [header.offset])
        except NoEffect as err:
            raise Failed(err.code, "ack offset illegal.") from None
        return call.answer()

    def change_invisible_time(self, call: Call[p.ChangeInvisible, None]) -> Command:
        """Answer request 200053 that names a lite topic."""
        header = call.header
        (queue,) = queue_names(header.topic, [header.lite_topic or ""])
        if header.offset > self.service.end(queue):
            return call.request.response(ResponseCode.NO_MESSAGE, None)
        if header.offset < self.service.offset(header.consumer_group, queue):
            return call.answer()
        handle, orders = Handle.parse(header.extra_info), self.service.orders
        until = self._context.clock() + header.invisible_time
        if header.suspend:
            orders.suspend(queue, header.consumer_group, 0, handle.pop_time, until)
        else:
            orders.postpone(queue, header.consumer_group, 0, header.offset, handle.pop_time, until)
        response = p.InvisibleChanged(
            pop_time=handle.pop_time, invisible_time=until - handle.pop_time, revive_qid=handle.revive_queue
        )
        return call.answer(response)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wake(self, client: str) -> bool:
        """Retry a waiting pop of a client; returns whether it was answered."""
        key = WaitKey(client, "", 0)
        waiting = self._held.take(key)
        while waiting is not None and waiting.call.connection.closed:
            waiting = self._held.take(key)
        return waiting is not None and self._send(waiting)

    def _send(self, waiting: _Waiting, *, last: bool = False) -> bool:
        response: Command | None
        if waiting.call.connection.closed:
            return False
        try:
            response = self._pop(waiting, last=last)
        except Failed as err:
            response = err.answer(waiting.call.request)
        if response is not None:
            waiting.call.connection.send(response)
        return response is not None

    def forget_silent(self) -> None:
        """Forget clients that have not renewed their subscriptions."""
        self.service.expire()
        known = self.service.subscriptions
        self._connections = {client: at for client, at in self._connections.items() if known.of(client) is not None}

    def expire(self) -> None:
        """Answer pops whose waiting time is over."""
        for _key, waiting in self._held.late(self._context.now()):
            self._send(waiting, last=True)
