"""Requests that brokers send to a consumer, for themselves and for admins (client.impl.ClientRemotingProcessor)."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from formats.errors import FormatError
from formats.fastjson.declare import body_of, read_body
from formats.message.read import End, read
from formats.remoting import admin as a
from formats.remoting import headers as h
from formats.remoting.bodies import ResetOffsets
from formats.remoting.codes import Language, RequestCode, ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.namespaces import without_namespace
from rmqtool.client.consumer.listener import Calls, ConsumeCounts, ListenerFailure
from rmqtool.client.consumer.options import Ordered, PushOptions, Said
from rmqtool.client.consumer.pop import PopLoop
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.queues import HeldQueues
from rmqtool.client.consumer.received import Received, as_sent
from rmqtool.client.consumer.subscriptions import Subscriptions
from rmqtool.remoting.connection import Answer, Connection

log = logging.getLogger(__name__)

_NOTHING = ConsumeCounts()


@dataclass
class GroupRequests:
    """Answers requests for a group.

    Args:
        changed: called when members of the group have changed.
    """

    cluster: Cluster
    group: str
    options: PushOptions
    subscriptions: Subscriptions[ProcessQueue]
    held: HeldQueues
    popping: PopLoop
    calls: Calls
    changed: Callable[[], None]

    def begin(self) -> None:
        """Start answering."""
        for code, handler in {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume,
        }.items():
            self.cluster.on(code, handler)

    def members_changed(self, _connection: Connection, _request: Command) -> None:
        """Request 40."""
        self.changed()

    def reset(self, _connection: Connection, request: Command) -> Answer:
        """Request 220: continue at other offsets."""
        header = from_fields(h.ResetOffset, request.fields)
        if header.group != self.group:
            return None
        return self._reset(header.topic, read_body(ResetOffsets, request.body).offset_table)

    async def _reset(self, topic: str, table: dict[MessageQueue, int]) -> None:
        log.warning("%s: offsets are reset by an admin: %d queues of %s", self.group, len(table), topic)
        await self.held.reset({queue: max(at, 0) for queue, at in table.items() if queue.topic == topic})

    def status(self, _connection: Connection, request: Command) -> Answer:
        """Request 221: the positions of this client."""
        header = from_fields(a.ConsumerStatus, request.fields)
        offsets = self.subscriptions.next_offsets().items() if header.group == self.group else ()
        table = {queue: offset for queue, offset in offsets if queue.topic == header.topic}
        return _answer(request, body_of(a.ClientOffsets(table)))

    def running_info(self, _connection: Connection, request: Command) -> Answer:
        """Request 307: the state of this client."""
        return answer_running_info(request, self.group, self._info)

    def _info(self) -> a.ConsumerRunningInfo:
        now = asyncio.get_running_loop().time()
        options, subscriptions = self.options, self.subscriptions
        return a.ConsumerRunningInfo(
            properties={
                **client_properties(self.cluster, subscriptions.began, "CONSUME_PASSIVELY", options.concurrency),
                "PROP_CONSUMEORDERLY": str(options.orderly).lower(),
                "consumeFromWhere": options.start.value,
                "messageModel": "BROADCASTING" if options.broadcasting else "CLUSTERING",
                "consumeMessageBatchMaxSize": str(options.batch),
                "pullBatchSize": str(options.pull_batch),
            },
            subscription_set=subscriptions.for_heartbeat(),
            mq_table={queue: _queue_state(process) for queue, process in sorted(subscriptions.queues.items())},
            mq_pop_table={
                queue: a.PopQueueState(
                    wait_ack_count=state.waiting, droped=state.leaving, last_pop_timestamp=state.popped_at
                )
                for queue, state in sorted(self.popping.held.items())
            }
            or None,
            status_table={
                topic: self._rates(topic, subscription.pulled, now)
                for topic, subscription in subscriptions.topics.items()
            },
        )

    def _rates(self, topic: str, pulled: ConsumeCounts, now: float) -> a.ConsumeStatus:
        consumed = self.calls.counts.get(without_namespace(self.cluster.options.namespace, topic), _NOTHING)
        ok_rate, fail_rate, call_time = consumed.rates(now)
        pulls, _none, waited = pulled.rates(now)
        return a.ConsumeStatus(
            pull_rt=waited, pull_tps=pulls, consume_rt=call_time, consume_ok_tps=ok_rate, consume_failed_tps=fail_rate,
            consume_failed_msgs=consumed.failed_in_all,
        )  # fmt: skip

    def consume(self, _connection: Connection, request: Command) -> Answer:
        """Request 309: call the listener with one message now, without affecting offsets.

        Raises:
            FormatError: the body is not a message.
        """
        header = from_fields(a.ConsumeDirectly, request.fields)
        if header.consumer_group != self.group:
            return _not_here(request, header.consumer_group)
        record = read(request.body, 0, len(request.body))
        if isinstance(record, End):
            raise FormatError(record.at, f"no message: {record.reason}")
        topic = record.topic.decode("utf-8", "replace")
        queue = MessageQueue(topic, header.broker_name or "", record.queue_id)
        message = as_sent(Received(queue, record), self.cluster.options.namespace)
        return self._consume(request, message)

    async def _consume(self, request: Command, message: Received) -> Command:
        begin = time.monotonic_ns()
        answer = await self.calls.call([message])
        return _answer(
            request,
            body_of(
                a.ConsumedDirectly(
                    order=self.options.orderly,
                    auto_commit=self.options.auto_commit,
                    consume_result=_result(answer),
                    remark=answer.words if isinstance(answer, ListenerFailure) else None,
                    spent_time_mills=(time.monotonic_ns() - begin) // 1_000_000,
                )
            ),
        )


def client_properties(cluster: Cluster, began: int, kind: str, threads: int) -> dict[str, str]:
    """Properties of every consumer (ConsumerRunningInfo)."""
    return {
        "PROP_CONSUMEORDERLY": "false",
        "PROP_CONSUME_TYPE": kind,
        "PROP_CLIENT_VERSION": cluster.options.release.full_name,
        "PROP_THREADPOOL_CORE_SIZE": str(threads),
        "PROP_CONSUMER_START_TIMESTAMP": str(began),
        "PROP_NAMESERVER_ADDR": cluster.options.namesrv,
    }


def answer_running_info(request: Command, group: str, info: Callable[[], a.ConsumerRunningInfo]) -> Command:
    """The answer of a group's consumer to request 307."""
    header = from_fields(a.RunningInfo, request.fields)
    if header.consumer_group != group:
        return _not_here(request, header.consumer_group)
    return _answer(request, body_of(info()))


def _queue_state(process: ProcessQueue) -> a.QueueState:
    first, last = process.span()
    taken = process.taken
    return a.QueueState(
        commit_offset=process.consumed or 0,
        cached_msg_min_offset=first,
        cached_msg_max_offset=last,
        cached_msg_count=len(process),
        cached_msg_size_in_mi_b=process.size >> 20,
        transaction_msg_min_offset=taken[0].queue_offset if taken else 0,
        transaction_msg_max_offset=taken[-1].queue_offset if taken else 0,
        transaction_msg_count=len(taken),
        locked=process.locked_at is not None,
        last_lock_timestamp=process.lock_time,
        droped=process.dropped,
        last_pull_timestamp=process.pulled_at,
        last_consume_timestamp=process.consumed_at,
    )


def _not_here(request: Command, group: str) -> Command:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return request.response(ResponseCode.SYSTEM_ERROR, remark, language=Language.PYTHON)


def _answer(request: Command, body: bytes) -> Command:
    return request.response(body=body, language=Language.PYTHON)


def _result(outcome: Said | ListenerFailure) -> str:
    if outcome is None:
        return "CR_SUCCESS"
    if isinstance(outcome, Ordered):
        return f"CR_{outcome.value}"
    if isinstance(outcome, ListenerFailure):
        return "CR_THROW_EXCEPTION" if outcome.error is not None else "CR_RETURN_NULL"
    return "CR_LATER"
