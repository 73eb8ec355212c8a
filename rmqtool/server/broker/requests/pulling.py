"""Pulls of messages, with long polling.

Source: broker.processor.PullMessageProcessor, broker.longpolling.PullRequestHoldService (4.9.8, 5.3.3);
message-services 16.
"""

from dataclasses import dataclass

from formats.fastjson.declare import body_of
from formats.message.properties import TAGS, WAIT
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import PullFlag, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue, SubscriptionData
from formats.topics import OFFSET_MOVED, Perm
from rmqtool.errors import RmqError
from rmqtool.rules.statuses import GetStatus
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.filters import TAG, Accept, build_filter, compile_subscription, read_subscription
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.lookup.get_message import PulledRecords
from rmqtool.store.append.outgoing import NewMessage

_LONGEST = 24 * 3600.0
_MOST = 4096  # most messages of one pull

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(slots=True, eq=False)
class _Held:
    """A pull that waits for a message."""

    call: Call[h.Pull, None]
    accept: Accept | None
    until: float
    looked: int  # queue offset up to which no entry matches


class Pulling:
    """Handles pulls, and holds those that wait for messages."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._held: dict[tuple[str, int], list[_Held]] = {}
        context.arrivals.subscribe(self.wake)

    @property
    def held(self) -> int:
        """The number of held pulls."""
        return sum(map(len, self._held.values()))

    @handles(C.PULL_MESSAGE, C.LITE_PULL_MESSAGE, right=rights.consume)
    def pull(self, call: Call[h.Pull, None]) -> Command | None:
        """Requests 11 and 361."""
        header = call.header
        accept = self._accept(header)
        if (moved := self._reset(call)) is not None:
            return moved
        result = self._read(header, accept)
        code = _code_of(result, header.queue_offset)
        if header.sys_flag & PullFlag.COMMIT_OFFSET:
            self._context.state.set_offset(header.topic, header.consumer_group, header.queue_id, header.commit_offset)
        if (
            code == ResponseCode.PULL_NOT_FOUND
            and header.sys_flag & PullFlag.SUSPEND
            and header.suspend_timeout_millis > 0
        ):
            self._hold(call, accept)
            return None
        return self._answer(call, result, code)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _accept(self, header: h.Pull) -> Accept | None:
        context = self._context
        return build_filter(self._subscription(header), context.reading.record, context.release)

    def _subscription(self, header: h.Pull) -> SubscriptionData | None:
        """The subscription of the group to the topic.

        Raises:
            Failed: it is not permitted, or there is none.
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

    def _reset(self, call: Call[h.Pull, None]) -> Command | None:
        """The answer to the first pull after an administrator reset the group's offset."""
        header = call.header
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
        return call.answer(pulled, code=ResponseCode.PULL_OFFSET_MOVED, remark=GetStatus.OFFSET_RESET)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, header: h.Pull, accept: Accept | None) -> PulledRecords:
        most = min(max(header.max_msg_nums, 1), _MOST)
        result = self._context.reading.pull_records(header.topic, header.queue_id, header.queue_offset, most, accept)
        place = header.topic, header.consumer_group, header.queue_id
        self._context.pulled[place] = result.next_begin_offset
        return result

    def _answer(self, call: Call[h.Pull, None], result: PulledRecords, code: int) -> Command:
        header = call.header
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._store_move(header, result.next_begin_offset)
        pulled = h.PullResponse(
            suggest_which_broker_id=0,
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
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

    def _hold(self, call: Call[h.Pull, None], accept: Accept | None) -> None:
        header, settings = call.header, self._context.settings
        millis = header.suspend_timeout_millis if settings.long_polling else settings.short_polling
        until = self._context.now() + min(millis / 1000, _LONGEST)
        held = _Held(call, accept, until, header.queue_offset)
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
        header = held.call.header
        return (header.topic, header.consumer_group, header.queue_id) in self._context.resets

    def _wants(self, held: _Held, newest: int) -> bool:
        """Whether a new entry matches the subscription."""
        if newest <= held.looked:
            return newest < held.looked  # the queue has lost messages; the answer will say so
        if held.accept is None:
            return True
        queue = self._context.reading.queue(held.call.header.topic, held.call.header.queue_id)
        if queue is None or any(map(held.accept, queue.entries(held.looked, newest))):
            return True
        held.looked = newest
        return False

    def _send(self, held: _Held) -> None:
        """Answer a held pull, by the current rules."""
        call = held.call
        try:
            accept = self._accept(call.header)
            response = self._reset(call)
            if response is None:
                result = self._read(call.header, accept)
                response = self._answer(call, result, _code_of(result, call.header.queue_offset))
        except Failed as err:
            response = err.answer(call.request)
        call.connection.send(response)


def _code_of(result: PulledRecords, offset: int) -> int:
    if result.status == GetStatus.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]
