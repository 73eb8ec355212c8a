"""Pulls of messages, with long polling.

Source: broker.processor.PullMessageProcessor, broker.longpolling.PullRequestHoldService (4.9.8, 5.3.3);
message-services 16.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, replace

from formats.config.files_of_5 import LogicQueueMapping
from formats.fastjson.declare import body_of
from formats.message.properties import TAGS, WAIT
from formats.model.groups import SubscriptionGroup
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import PullFlag, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue, SubscriptionData
from formats.topics import OFFSET_MOVED, Perm
from rmqtool.errors import RmqError
from rmqtool.rules.static_topics import is_ended, physical_offset
from rmqtool.rules.statuses import GetStatus
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.filters import TAG, Accept, build_filter, compile_subscription, read_subscription
from rmqtool.server.broker.context.static_queues import (
    StaticQueue,
    StaticQueues,
    read_header,
    translate_offsets,
    translate_pull,
)
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.lookup.get_message import PulledRecords
from rmqtool.store.append.outgoing import NewMessage

_LONGEST = 24 * 3600.0
_MOST = 4096  # most messages of one pull
_NOT_LEADER = "{}-{} cannot find mapping item in request process of current broker {}"
_NOTHING_PULLED = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a pull reads.

    Attributes:
        header: of the request, with the broker's own queue and its offset.
        static: the queue of a static topic, and the range of it; None for an ordinary topic.
    """

    header: h.Pull
    static: tuple[StaticQueue, LogicQueueMapping] | None = None

    @property
    def is_here(self) -> bool:
        """Whether this broker holds the queue."""
        return self.static is None or self.static[0].is_here(self.static[1])

    def translate(self, code: int, pulled: h.PullResponse) -> tuple[int, h.PullResponse]:
        """(code, offsets) as the client sees them."""
        if self.static is None:
            return code, pulled
        return translate_pull(*self.static, self.header.queue_offset, code, pulled)


@dataclass(slots=True, eq=False)
class _Held:
    """A pull that waits for a message."""

    call: Call[h.Pull, None]
    place: _Place
    accept: Accept | None
    until: float
    looked: int  # queue offset up to which no entry matches


class Pulling:
    """Handles pulls, and holds those that wait for messages."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._static = context, StaticQueues(context)
        self._held: dict[tuple[str, int], list[_Held]] = {}
        context.arrivals.subscribe(self.wake)

    @property
    def held(self) -> int:
        """The number of held pulls."""
        return sum(map(len, self._held.values()))

    @handles(C.PULL_MESSAGE, C.LITE_PULL_MESSAGE, right=rights.consume)
    def pull(self, call: Call[h.Pull, None]) -> Command | Awaitable[Command] | None:
        """Requests 11 and 361."""
        header = call.header
        group = self._check_readable(header)
        place = self._locate(header)
        if not place.is_here:
            return self._pull_elsewhere(call, place)
        accept = self._accept(place.header, group)
        if (moved := self._reset(call, place)) is not None:
            return moved
        result = self._read(place.header, accept)
        code, pulled = self._offsets_of(place, result)
        if header.sys_flag & PullFlag.COMMIT_OFFSET:
            self._commit(header, place)
        if (
            code == ResponseCode.PULL_NOT_FOUND
            and header.sys_flag & PullFlag.SUSPEND
            and header.suspend_timeout_millis > 0
        ):
            self._hold(call, place, accept)
            return None
        return self._answer(call, place, result, code, pulled)

    # -- static topics ------------------------------------------------------------------------------------------------

    def _locate(self, header: h.Pull) -> _Place:
        """Where a pull reads.

        Raises:
            Failed: another broker leads the queue.
        """
        static = self._static.find(header.topic, header.queue_id, header.lo, remark=_NOT_LEADER)
        if static is None:
            return _Place(header)
        item = static.range_of(header.queue_offset)
        offset = physical_offset(item, header.queue_offset)
        most = header.max_msg_nums
        if is_ended(item):
            most = min(most, max(item.end_offset - max(offset, item.start_offset), 1))
        header = replace(header, queue_id=item.queue_id, queue_offset=offset, max_msg_nums=most)
        return _Place(header, (static, item))

    async def _pull_elsewhere(self, call: Call[h.Pull, None], place: _Place) -> Command:
        """Ask the broker that holds the range; it does not wait for messages, as none come any more."""
        assert place.static is not None
        broker = place.static[1].broker_name
        flag = place.header.sys_flag & ~(PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET)
        asked = replace(place.header, sys_flag=flag, bname=broker, lo=False)
        answer = await self._static.ask(broker, C.PULL_MESSAGE, asked, *_NOTHING_PULLED)
        code, pulled = place.translate(answer.code, read_header(h.PullResponse, answer))
        return call.answer(pulled, answer.body, code=code)

    def _commit(self, header: h.Pull, place: _Place) -> None:
        """Store the offset that a pull commits; clients commit what other brokers hold by a request of its own."""
        queue_id, offset = header.queue_id, header.commit_offset
        if place.static is not None:
            static = place.static[0]
            item = static.range_of(offset)
            if not static.is_here(item):
                return
            queue_id, offset = item.queue_id, max(physical_offset(item, offset), 0)
        self._context.state.set_offset(header.topic, header.consumer_group, queue_id, offset)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _accept(self, header: h.Pull, group: SubscriptionGroup) -> Accept | None:
        context = self._context
        return build_filter(self._subscription(header, group), context.reading.record, context.release)

    def _check_readable(self, header: h.Pull) -> SubscriptionGroup:
        """Check that a group may read a topic; returns its settings.

        Raises:
            Failed: it may not.
        """
        context, settings = self._context, self._context.settings
        if not settings.permission & Perm.READ:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{settings.address}] pulling message is forbidden")
        group = context.state.ensure_group(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist"
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise Failed(ResponseCode.NO_PERMISSION, remark)
        config = context.topic(header.topic)
        if not config.perm & Perm.READ:
            raise Failed(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        return group

    def _subscription(self, header: h.Pull, group: SubscriptionGroup) -> SubscriptionData | None:
        """The subscription of a group to the topic.

        Raises:
            Failed: there is none, or the queue does not exist.
        """
        context, settings = self._context, self._context.settings
        config = context.topic(header.topic)
        if not 0 <= header.queue_id < config.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]"
            )
            raise Failed(context.invalid_code, remark)
        if header.sys_flag & PullFlag.SUBSCRIPTION:
            subscription = read_subscription(header.topic, header.subscription, header.expression_type)
        else:
            subscription = self._find_subscription(header, broadcast=group.consume_broadcast_enable)
        if subscription.expression_type != TAG and not settings.property_filter:
            remark = f"The broker does not support consumer to filter message by {subscription.expression_type}"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        return subscription

    def _find_subscription(self, header: h.Pull, *, broadcast: bool) -> SubscriptionData:
        group = self._context.clients.consumers.get(header.consumer_group)
        if group is None:
            raise Failed(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if not broadcast and group.message_model == "BROADCASTING":
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            raise Failed(ResponseCode.NO_PERMISSION, remark)
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise Failed(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if subscription.sub_version < header.sub_version:
            raise Failed(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        release = self._context.release
        if (
            subscription.expression_type != TAG
            and self._context.settings.property_filter
            and compile_subscription(subscription, release) is None
        ):
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise Failed(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        return subscription

    def _reset(self, call: Call[h.Pull, None], place: _Place) -> Command | None:
        """The answer to the first pull after an administrator reset the group's offset."""
        header = place.header
        offset = self._context.resets.pop((header.topic, header.consumer_group, header.queue_id), None)
        if offset is None:
            return None
        reading = self._context.reading
        pulled = h.PullResponse(
            suggest_which_broker_id=0,
            next_begin_offset=offset,
            min_offset=reading.min_offset(header.topic, header.queue_id),
            max_offset=reading.max_offset(header.topic, header.queue_id),
        )
        if place.static is not None:
            pulled = translate_offsets(*place.static, pulled)
        return call.answer(pulled, code=ResponseCode.PULL_OFFSET_MOVED, remark=GetStatus.OFFSET_RESET)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, header: h.Pull, accept: Accept | None) -> PulledRecords:
        most = min(max(header.max_msg_nums, 1), _MOST)
        pulled = self._context.reading.pull_records(header.topic, header.queue_id, header.queue_offset, most, accept)
        place = header.topic, header.consumer_group, header.queue_id
        self._context.pulled[place] = pulled.next_begin_offset
        return pulled

    def _offsets_of(self, place: _Place, result: PulledRecords) -> tuple[int, h.PullResponse]:
        pulled = h.PullResponse(
            suggest_which_broker_id=0,
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        return place.translate(_code_of(result, place.header.queue_offset), pulled)

    def _answer(
        self, call: Call[h.Pull, None], place: _Place, result: PulledRecords, code: int, pulled: h.PullResponse
    ) -> Command:
        header = place.header
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._store_move(header, result.next_begin_offset)
        body = result.records if code == ResponseCode.SUCCESS else b""
        if body:
            key, add = f"{header.topic}@{header.consumer_group}", self._context.counts.add
            add(counts.GROUP_GET, key, result.number)
            add(counts.GROUP_GET_SIZE, key, len(body))
            add(counts.BROKER_GET, self._context.settings.cluster, result.number)
        return call.answer(pulled, body, code=code, remark=result.status)

    def _store_move(self, header: h.Pull, offset: int) -> None:
        """Store an event, as a broker does, that a consumer asked for a missing offset."""
        context = self._context
        if not context.store.writable:
            return
        queue = MessageQueue(header.topic, context.settings.name, header.queue_id)
        moved = b.OffsetMoved(header.consumer_group, queue, offset_new=offset, offset_request=header.queue_offset)
        message = NewMessage(
            topic=OFFSET_MOVED,
            body=body_of(moved),
            properties={TAGS: header.consumer_group, "KEYS": header.consumer_group, WAIT: "false"},
            born_host=context.settings.address,
            store_host=context.settings.address,
        )
        try:
            context.store.append(message)
        except (OSError, RmqError) as err:
            context.log.error(f"that an offset has moved cannot be written down: {err}")

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _hold(self, call: Call[h.Pull, None], place: _Place, accept: Accept | None) -> None:
        header, settings = place.header, self._context.settings
        millis = header.suspend_timeout_millis if settings.long_polling else settings.short_polling
        until = self._context.now() + min(millis / 1000, _LONGEST)
        held = _Held(call, place, accept, until, header.queue_offset)
        self._held.setdefault((header.topic, header.queue_id), []).append(held)

    def wake(self, topic: str, queue_id: int) -> None:
        """Answer held pulls of a queue with a new message."""
        if (topic, queue_id) in self._held:
            self._look(topic, queue_id)

    def look(self) -> None:
        """Check all queues with held pulls, and answer those whose time is over."""
        for topic, queue_id in list(self._held):
            self._look(topic, queue_id)

    def _look(self, topic: str, queue_id: int) -> None:
        waiting = self._held.pop((topic, queue_id))
        newest, now = self._context.reading.max_offset(topic, queue_id), self._context.now()
        left = []
        for held in waiting:
            if held.call.connection.closed:
                continue
            if now >= held.until or self._was_reset(held) or self._wants(held, newest):
                self._send(held)
            else:
                left.append(held)
        if left:
            self._held.setdefault((topic, queue_id), []).extend(left)

    def _was_reset(self, held: _Held) -> bool:
        header = held.place.header
        return (header.topic, header.consumer_group, header.queue_id) in self._context.resets

    def _wants(self, held: _Held, newest: int) -> bool:
        """Whether a new entry matches the subscription."""
        if newest <= held.looked:
            return newest < held.looked  # the queue has lost messages; the answer will say so
        if held.accept is None:
            return True
        queue = self._context.reading.queue(held.place.header.topic, held.place.header.queue_id)
        if queue is None or any(map(held.accept, queue.entries(held.looked, newest))):
            return True
        held.looked = newest
        return False

    def _send(self, held: _Held) -> None:
        """Answer a held pull, by the current rules."""
        call, place = held.call, held.place
        try:
            group = self._check_readable(call.header)
            if place.static is not None:
                place = self._locate(call.header)  # the queue may have moved
                if not place.is_here:
                    call.connection.send(_retry(call))
                    return
            accept = self._accept(place.header, group)
            response = self._reset(call, place)
            if response is None:
                pulled = self._read(place.header, accept)
                response = self._answer(call, place, pulled, *self._offsets_of(place, pulled))
        except Failed as err:
            response = err.answer(call.request)
        call.connection.send(response)


def _code_of(result: PulledRecords, offset: int) -> int:
    if result.status == GetStatus.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


def _retry(call: Call[h.Pull, None]) -> Command:
    """The answer that the same pull is to be sent again."""
    offset = call.header.queue_offset
    pulled = h.PullResponse(suggest_which_broker_id=0, next_begin_offset=offset, min_offset=0, max_offset=offset)
    return call.answer(pulled, code=ResponseCode.PULL_RETRY_IMMEDIATELY)
