"""What a request needs: which rights on which topics and groups.

Brokers of 4.9 look at nine kinds of request and let everybody who signs do the rest. What these nine need is the same
here; of the others, those that read, write or tell something of a topic or a group need a right on that, and all that
is left is for administrators.

Source: acl.plain.PlainAccessValidator, acl.common.Permission (4.9.8).
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from formats.message.ids import parse_offset_id
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.server.access.files import GROUP_PREFIX, Perm
from rmqtool.server.broker.context.answers import content_of, header_of, send_header

Need: TypeAlias = tuple[str, Perm]
"""A topic, or a group's retry topic, and the rights of which one is needed."""
TopicAt: TypeAlias = Callable[[int], str | None]
"""The topic that the message at a physical offset is for; None where there is no message."""

_PUB, _SUB, _ANY = Perm.PUB, Perm.SUB, Perm.PUB | Perm.SUB
_SENT = {C.SEND_MESSAGE, C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE}
_REPLIED = {C.SEND_REPLY_MESSAGE, C.SEND_REPLY_MESSAGE_V2}
_OLD = {C.SEND_MESSAGE, C.SEND_REPLY_MESSAGE}  # whose fields have their whole names


def _group(name: str | None) -> list[Need]:
    return [(GROUP_PREFIX + name, _SUB)] if name else []


class Rights:
    """What requests to one broker need.

    Args:
        topic_at: of its store.
        reply_topic: which everybody may send replies to.
    """

    def __init__(self, topic_at: TopicAt, reply_topic: str) -> None:
        self._topic_at, self._reply_topic = topic_at, reply_topic
        self._by_code: dict[int, Callable[[Command], Iterable[Need]]] = {
            **dict.fromkeys(_SENT, self._sent),
            **dict.fromkeys(_REPLIED, self._replied),
            **dict.fromkeys((C.PULL_MESSAGE, C.LITE_PULL_MESSAGE), _of(h.Pull)),
            **dict.fromkeys((C.QUERY_CONSUMER_OFFSET, C.UPDATE_CONSUMER_OFFSET), _of(h.GroupQueue)),
            **dict.fromkeys((C.POP_MESSAGE, C.PEEK_MESSAGE, C.NOTIFICATION, C.POLLING_INFO), _of(h.GroupQueue)),
            **dict.fromkeys((C.ACK_MESSAGE, C.CHANGE_MESSAGE_INVISIBLETIME), self._acknowledged),
            C.BATCH_ACK_MESSAGE: self._acks,
            C.QUERY_ASSIGNMENT: self._assignment,
            **dict.fromkeys((C.GET_MAX_OFFSET, C.GET_MIN_OFFSET, C.GET_EARLIEST_MSG_STORETIME), self._queue),
            C.SEARCH_OFFSET_BY_TIMESTAMP: self._queue,
            **dict.fromkeys((C.GET_TOPIC_STATS_INFO, C.QUERY_TOPIC_CONSUME_BY_WHO), self._topic),
            C.QUERY_MESSAGE: lambda request: [(header_of(h.Query, request).topic, _SUB)],
            C.QUERY_CONSUME_QUEUE: lambda request: [(header_of(h.QueryConsumeQueue, request).topic, _SUB)],
            C.VIEW_MESSAGE_BY_ID: lambda request: self._at(header_of(h.Offset, request).offset, _SUB),
            C.HEART_BEAT: self._heartbeat,
            C.UNREGISTER_CLIENT: lambda request: _group(header_of(h.Unregister, request).consumer_group),
            C.CHECK_CLIENT_CONFIG: lambda request: _group(content_of(b.CheckClient, request).group),
            C.CONSUMER_SEND_MSG_BACK: self._given_back,
            C.END_TRANSACTION: lambda request: self._at(header_of(h.EndTransaction, request).commit_log_offset, _PUB),
            C.GET_PRODUCER_CONNECTION_LIST: lambda _request: [],  # groups of producers have no rights
            **dict.fromkeys((C.GET_CONSUMER_LIST_BY_GROUP, C.GET_CONSUMER_CONNECTION_LIST), _of(h.Group)),
            C.GET_CONSUME_STATS: _of(h.Group),
            C.LOCK_BATCH_MQ: self._locked,
            C.UNLOCK_BATCH_MQ: self._locked,
            C.INVOKE_BROKER_TO_RESET_OFFSET: _of(h.ResetOffset),
            C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _of(a.ConsumerStatus),
            C.QUERY_CONSUME_TIME_SPAN: _of(a.TimeSpan),
            C.QUERY_TOPICS_BY_CONSUMER: _of(a.OneGroup),
            C.QUERY_SUBSCRIPTION_BY_CONSUMER: _of(a.GroupOfTopic),
            C.GET_CONSUMER_RUNNING_INFO: _of(a.RunningInfo),
            C.CONSUME_MESSAGE_DIRECTLY: self._consumed_directly,
            C.RECALL_MESSAGE: lambda request: [(header_of(h.Recall, request).topic, _PUB)],
        }

    def needed(self, request: Command) -> dict[str, Perm] | None:
        """By topic or group's retry topic; None where only an administrator may ask.

        Raises:
            BadText: a field is missing, or not of its type.
        """
        find = self._by_code.get(request.code)
        if find is None:
            return None
        needs: dict[str, Perm] = {}
        for resource, perm in find(request):
            if needs.get(resource, perm) != perm:  # as much as one of several asks for
                perm = min(perm, needs[resource], key=lambda each: each.bit_count())
            needs[resource] = perm
        return needs

    def _at(self, offset: int, perm: Perm) -> list[Need]:
        topic = self._topic_at(offset)
        return [(topic, perm)] if topic else []

    def _sent(self, request: Command) -> list[Need]:
        topic = send_header(request, old=C.SEND_MESSAGE).topic
        # a consumer puts there what it could not consume; brokers of 4.9 look at a group that it may choose
        return [(topic, _SUB if topic.startswith(GROUP_PREFIX) else _PUB)]

    def _replied(self, request: Command) -> list[Need]:
        topic = send_header(request, old=C.SEND_REPLY_MESSAGE).topic
        return [] if topic == self._reply_topic else [(topic, _PUB)]

    def _topic(self, request: Command) -> list[Need]:
        return [(header_of(h.Topic, request).topic, _ANY)]

    def _queue(self, request: Command) -> list[Need]:
        return [(header_of(h.Queue, request).topic, _ANY)]

    def _heartbeat(self, request: Command) -> Iterable[Need]:
        for consumer in content_of(b.HeartbeatData, request).consumer_data_set:
            yield from _group(consumer.group_name)
            yield from ((subscription.topic, _SUB) for subscription in consumer.subscription_data_set)

    def _given_back(self, request: Command) -> list[Need]:
        header = header_of(h.SendBack, request)
        return _group(header.group) + self._at(header.offset, _SUB)

    def _locked(self, request: Command) -> list[Need]:
        body = content_of(b.LockRequest, request)
        return _group(body.consumer_group) + [(queue.topic, _SUB) for queue in body.mq_set]

    def _consumed_directly(self, request: Command) -> list[Need]:
        header = header_of(a.ConsumeDirectly, request)
        found = self._at(parse_offset_id(header.msg_id).physical_offset, _SUB) if header.msg_id else []
        return _group(header.consumer_group) + found

    def _acknowledged(self, request: Command) -> list[Need]:
        header = header_of(h.GroupQueue, request)
        own = GROUP_PREFIX + header.consumer_group
        if header.topic.startswith((own + "_", own + "+")):  # where messages that a group has popped come again
            return _group(header.consumer_group)
        return [(header.topic, _SUB), *_group(header.consumer_group)]

    def _assignment(self, request: Command) -> list[Need]:
        body = content_of(b.AssignmentRequest, request)
        return [(body.topic, _SUB), *_group(body.consumer_group)]

    def _acks(self, request: Command) -> Iterable[Need]:
        for ack in content_of(p.BatchAcks, request).acks if request.body else ():
            yield ack.topic, _SUB
            yield from _group(ack.consumer_group)


def _of(declared: type[Any]) -> Callable[[Command], list[Need]]:
    """What is read of a group, and of a topic where the header names one."""

    def needs(request: Command) -> list[Need]:
        header = header_of(declared, request)
        group = getattr(header, "consumer_group", None) or getattr(header, "group", None)
        topic = getattr(header, "topic", None)
        return ([(topic, _SUB)] if topic else []) + _group(group)

    return needs
