"""Pops of messages, with long polling, and related requests.

Source: broker.processor.PopMessageProcessor, NotificationProcessor, PollingInfoProcessor, PeekMessageProcessor,
broker.longpolling.PopLongPollingService (5.3.3); clients-and-live-admin 1.
"""

import asyncio
import logging
from dataclasses import dataclass

from formats.remoting import headers as h
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import Perm
from rmqtool.errors import RmqError
from rmqtool.rules.releases import V5_3
from rmqtool.rules.statuses import GetStatus
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.filters import TAG, Accept, build_filter, compile_subscription, read_subscription
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.popping.parked import Parked, WaitKey
from rmqtool.services.popping.popping import Popping, PopRequest, PopResult
from rmqtool.services.popping.settings import PopSettings

log = logging.getLogger(__name__)
_MOST = 32  # messages of one pop
_SOON = 0.02  # s before a pop whose filter skipped messages continues
_AFTER_A_FAILURE = 1.0  # s before a pop that could not be served is tried again


def check_invisible_time(asked: int, settings: PopSettings) -> None:
    """Check an invisible time.

    Raises:
        Failed: it is out of range.
    """
    if not 0 <= asked <= settings.longest_invisible:
        remark = f"invisibleTime[{asked}] is illegal: it must be between 0 and {settings.longest_invisible} ms"
        raise Failed(ResponseCode.INVALID_PARAMETER, remark)


def waiting_until(context: BrokerContext, settings: PopSettings, wait: int, born: int) -> float:
    """When a request's waiting time is over, s of the monotonic clock.

    Args:
        wait: ms.
        born: ms since the epoch by the client's clock, which may be wrong.
    """
    age = context.clock() - born
    left = wait - age if 0 <= age < wait else wait
    return context.now() + min(max(left, 0), settings.longest_wait) / 1000


FOLLOWS = "it follows a store that another broker is writing, and what that hands out is unknown here: pop from it"


@dataclass(slots=True, eq=False)
class _Waiting:
    """A waiting pop or notification request."""

    call: Call[p.Pop, None] | Call[p.Notification, None]
    accept: Accept | None
    until: float  # s of the monotonic clock


class Pops:
    """Handles pops, and holds those that wait for messages.

    Args:
        popping: None for a followed store.
    """

    def __init__(self, context: BrokerContext, popping: Popping | None) -> None:
        self._context, self._popping = context, popping
        most = popping.settings.most_waiting if popping is not None else (0, 0)
        topics = popping.retry_topics if popping is not None else lambda _topic, _group: []
        self._held: Parked[_Waiting] = Parked(most, topics)
        self._asking: Parked[_Waiting] = Parked(most, topics)
        self._loop = asyncio.get_running_loop()
        context.arrivals.subscribe(self.wake)
        context.freed_queues.subscribe(self.wake_group)

    @property
    def held(self) -> int:
        """The number of waiting requests."""
        return self._held.count + self._asking.count

    # -- requests -----------------------------------------------------------------------------------------------------

    @handles(C.POP_MESSAGE, right=rights.consume, since=V5_3)
    def pop(self, call: Call[p.Pop, None]) -> Command | None:
        """Request 200050."""
        header = call.header
        name = "pop message"
        popping = self._require_popping(name)
        if header.max_msg_nums > _MOST:
            remark = f"the broker[{self._context.settings.address}] {name}'s num is greater than {_MOST}"
            raise Failed(ResponseCode.INVALID_PARAMETER, remark)
        check_invisible_time(header.invisible_time, popping.settings)
        if not popping.settings.timer:
            remark = (
                f"the broker[{self._context.settings.address}] {name} is forbidden because timerWheelEnable is false"
            )
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        self._check(header.topic, header.queue_id, header.consumer_group)
        return self._pop(popping, _Waiting(call, self._accept(header), self._until(header)), header)

    @handles(C.NOTIFICATION, right=rights.consume, since=V5_3)
    def notify(self, call: Call[p.Notification, None]) -> Command | None:
        """Request 200054."""
        header = call.header
        popping = self._require_popping("peeking message")
        self._check(header.topic, header.queue_id, header.consumer_group)
        return self._notify(popping, _Waiting(call, None, self._until(header)), header)

    @handles(C.POLLING_INFO, right=rights.consume, since=V5_3)
    def count_waiting(self, call: Call[h.GroupQueue, None]) -> Command:
        """Request 200055."""
        header = call.header
        self._require_popping("peeking message")
        self._check(header.topic, header.queue_id, header.consumer_group)
        number = self._held.count_waiting(WaitKey(header.topic, header.consumer_group, max(header.queue_id, -1)))
        return call.answer(p.PollingNumber(polling_num=number))

    @handles(C.PEEK_MESSAGE, right=rights.consume, since=V5_3)
    def peek(self, call: Call[p.Peek, None]) -> Command:
        """Request 200052."""
        header = call.header
        popping = self._require_popping("peeking message")
        self._check(header.topic, header.queue_id, header.consumer_group)
        most = min(header.max_msg_nums, _MOST)
        messages, rest = popping.peek(header.topic, header.consumer_group, header.queue_id, most)
        response = p.PopResponse(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
        if not messages:
            return call.answer(response, code=ResponseCode.PULL_NOT_FOUND, remark=GetStatus.NO_MESSAGE_IN_QUEUE)
        return call.answer(response, b"".join(messages), remark=GetStatus.FOUND)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _require_popping(self, what: str) -> Popping:
        settings = self._context.settings
        if self._popping is None:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{settings.address}] {what} is forbidden: {FOLLOWS}")
        if not settings.permission & Perm.READ:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{settings.address}] {what} is forbidden")
        return self._popping

    def _check(self, topic: str, queue_id: int, group_name: str) -> None:
        context = self._context
        config = context.topic(topic)
        if not config.perm & Perm.READ:
            raise Failed(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= config.read_queue_nums:
            count = config.read_queue_nums
            remark = f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{count}]"
            raise Failed(ResponseCode.INVALID_PARAMETER, remark)
        group = context.state.ensure_group(group_name)
        if group is None:
            remark = f"subscription group [{group_name}] does not exist"
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise Failed(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")

    def _accept(self, header: p.Pop) -> Accept | None:
        if not header.exp:
            return None
        context = self._context
        subscription = read_subscription(header.topic, header.exp, header.exp_type)
        if subscription.expression_type != TAG and compile_subscription(subscription, context.release) is None:
            raise Failed(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        return build_filter(subscription, context.reading.record, context.release)

    def _until(self, header: p.Pop | p.Notification) -> float:
        settings = self._popping.settings if self._popping is not None else PopSettings(longest_wait=0)
        return waiting_until(self._context, settings, header.poll_time, header.born_time)

    # -- handing out --------------------------------------------------------------------------------------------------

    def _pop(self, popping: Popping, waiting: _Waiting, header: p.Pop, *, last: bool = False) -> Command | None:
        """Try to answer a pop; None if it has to wait.

        Args:
            last: its waiting time is over.
        """
        asked = PopRequest(
            topic=header.topic,
            group=header.consumer_group,
            queue_id=header.queue_id,
            most=header.max_msg_nums,
            invisible_time=header.invisible_time,
            start=header.init_mode,
            ordered=bool(header.order),
            attempt=header.attempt_id,
            accept=waiting.accept,
        )
        try:
            popped = popping.pop(asked)
        except (OSError, RmqError) as err:
            raise self._context.failure("messages cannot be handed out", err) from None
        key = WaitKey(header.topic, header.consumer_group, max(header.queue_id, -1))
        if popped.messages:
            self._count(header, popped)
            if popped.rest > 0 and self._held.count_waiting(key):
                self._loop.call_soon(self._wake, key)
            return self._answer(waiting, header, popped, ResponseCode.SUCCESS)
        code = ResponseCode.POLLING_TIMEOUT
        if not last and waiting.until > self._context.now():
            if self._held.add(key, waiting.until, waiting):
                if popped.rest > 0:
                    self._loop.call_later(_AFTER_A_FAILURE if popped.failed else _SOON, self._wake, key)
                return None
            code = ResponseCode.POLLING_FULL
        return self._answer(waiting, header, popped, code)

    def _answer(self, waiting: _Waiting, header: p.Pop, popped: PopResult, code: int) -> Command:
        starts, offsets = popped.infos
        response = p.PopResponse(
            pop_time=popped.pop_time,
            invisible_time=header.invisible_time,
            revive_qid=popped.revive_queue,
            rest_num=popped.rest,
            start_offset_info=starts,
            msg_offset_info=offsets,
            order_count_info=";".join(popped.order_counts) if header.order else None,
        )
        remark = GetStatus.FOUND if popped.messages else GetStatus.NO_MESSAGE_IN_QUEUE
        return waiting.call.answer(response, b"".join(popped.messages), code=code, remark=remark)

    def _count(self, header: p.Pop, popped: PopResult) -> None:
        key, add = f"{header.topic}@{header.consumer_group}", self._context.counts.add
        add(counts.GROUP_GET, key, popped.count)
        add(counts.GROUP_GET_SIZE, key, sum(map(len, popped.messages)))
        add(counts.BROKER_GET, self._context.settings.cluster, popped.count)

    def _notify(
        self, popping: Popping, waiting: _Waiting, header: p.Notification, *, last: bool = False
    ) -> Command | None:
        has = popping.waits(
            header.topic,
            header.consumer_group,
            header.queue_id,
            ordered=bool(header.order),
            attempt=header.attempt_id,
        )
        full = False
        if not has and not last and waiting.until > self._context.now():
            key = WaitKey(header.topic, header.consumer_group, max(header.queue_id, -1))
            if self._asking.add(key, waiting.until, waiting):
                return None
            full = True
        return waiting.call.answer(p.Notified(has_msg=has, polling_full=full))

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wake(self, topic: str, queue_id: int) -> None:
        """Retry requests that a new message of a queue concerns."""
        for parked in (self._asking, self._held):  # waiting requests go first
            for key in parked.find_concerned(topic, queue_id):
                self._wake(key, parked)

    def wake_group(self, topic: str, group: str, queue_id: int) -> None:
        """Retry requests of a group that pops in order, after messages became visible again."""
        for parked in (self._asking, self._held):
            for key in (WaitKey(topic, group, -1), WaitKey(topic, group, queue_id)):
                self._wake(key, parked)

    def look(self) -> None:
        """Retry all waiting requests."""
        if self._popping is None:
            return
        for parked in (self._asking, self._held):
            for key in parked.awaited:
                if self._popping.waits(*key):
                    while self._wake(key, parked):
                        pass

    def expire(self) -> None:
        """Answer requests whose waiting time is over."""
        for parked in (self._asking, self._held):
            for _key, request in parked.late(self._context.now()):
                self._send(request, last=True)

    def _wake(self, key: WaitKey, parked: "Parked[_Waiting] | None" = None) -> bool:
        """Retry one request of a key; returns whether it was answered."""
        parked = self._held if parked is None else parked
        request = parked.take(key)
        while request is not None and request.call.connection.closed:
            request = parked.take(key)
        return request is not None and self._send(request)

    def _send(self, waiting: _Waiting, *, last: bool = False) -> bool:
        assert self._popping is not None  # otherwise no request waits
        if waiting.call.connection.closed:
            return False
        header = waiting.call.header
        response: Command | None
        try:
            self._check(header.topic, header.queue_id, header.consumer_group)
            if isinstance(header, p.Pop):
                response = self._pop(self._popping, waiting, header, last=last)
            else:
                response = self._notify(self._popping, waiting, header, last=last)
        except Failed as err:
            response = err.answer(waiting.call.request)
        if response is not None:
            waiting.call.connection.send(response)
        return response is not None
