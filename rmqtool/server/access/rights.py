"""Which rights on which topics and groups a request needs. Each function is used by some requests.

Brokers of 4.9 check nine kinds of request and permit the rest to every signed client. Here those nine need the same;
other requests about a topic or a group need a right on it, and all others need an administrator.

Source: acl.plain.PlainAccessValidator, acl.common.Permission (4.9.8).
"""

from collections.abc import Iterable
from enum import IntFlag
from typing import Any, TypeAlias

from formats.fastjson.declare import read_body
from formats.message.ids import parse_offset_id
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting import lite as lt
from formats.remoting import pop as p
from formats.topics import REPLY_SUFFIX, RETRY_PREFIX
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, Right

GROUP_PREFIX = RETRY_PREFIX  # a group is represented by its retry topic


class AclPermission(IntFlag):
    """What may be done with a topic or a group (acl.common.Permission)."""

    DENY = 1
    PUB = 4
    SUB = 8


Need: TypeAlias = tuple[str, AclPermission]
"""A topic, or a group's retry topic, and the rights of which one is needed."""


def needs_of(right: Right, context: BrokerContext, call: Call[Any, Any]) -> dict[str, AclPermission]:
    """The rights that a call needs, by topic or group's retry topic."""
    needs: dict[str, AclPermission] = {}
    for resource, wanted in right(context, call):
        perm = AclPermission(wanted)
        if needs.get(resource, perm) != perm:  # the union, if several parts of a request concern it
            perm = min(perm, needs[resource], key=lambda each: each.bit_count())
        needs[resource] = perm
    return needs


def _group(name: str | None) -> list[Need]:
    return [(GROUP_PREFIX + name, AclPermission.SUB)] if name else []


def _message(context: BrokerContext, physical_offset: int, perm: AclPermission) -> list[Need]:
    topic = context.topic_at(physical_offset)
    return [(topic, perm)] if topic else []


# -- topics -----------------------------------------------------------------------------------------------------------


def read_topic(_context: BrokerContext, call: Call[Any, Any]) -> list[Need]:
    """To read from the topic of the header."""
    return [(call.header.topic, AclPermission.SUB)]


def write_topic(_context: BrokerContext, call: Call[Any, Any]) -> list[Need]:
    """To write to the topic of the header."""
    return [(call.header.topic, AclPermission.PUB)]


def use_topic(_context: BrokerContext, call: Call[Any, Any]) -> list[Need]:
    """To read from the topic of the header, or to write to it."""
    return [(call.header.topic, AclPermission.PUB | AclPermission.SUB)]


def read_message(context: BrokerContext, call: Call[h.Offset, None]) -> list[Need]:
    """To read from the topic of one message."""
    return _message(context, call.header.offset, AclPermission.SUB)


def send(_context: BrokerContext, call: Call[h.Send, bytes]) -> list[Need]:
    """To send; consumers send failed messages back this way.

    Brokers of 4.9 check a group that the consumer may choose.
    """
    topic = call.header.topic
    return [(topic, AclPermission.SUB if topic.startswith(GROUP_PREFIX) else AclPermission.PUB)]


def send_reply(context: BrokerContext, call: Call[h.Send, bytes]) -> list[Need]:
    """To send a reply; every client may write to the reply topic."""
    topic = call.header.topic
    return [] if topic == f"{context.settings.cluster}{REPLY_SUFFIX}" else [(topic, AclPermission.PUB)]


def end_transaction(context: BrokerContext, call: Call[h.EndTransaction, None]) -> list[Need]:
    """To write to the topic of a half message."""
    return _message(context, call.header.commit_log_offset, AclPermission.PUB)


# -- groups -----------------------------------------------------------------------------------------------------------


def need_nothing(_context: BrokerContext, _call: Call[Any, Any]) -> list[Need]:
    """Nothing but an account: groups of producers have no rights."""
    return []


def consume(_context: BrokerContext, call: Call[Any, Any]) -> list[Need]:
    """To read as the group of the header, and from its topic if it names one."""
    header = call.header
    group = getattr(header, "consumer_group", None) or getattr(header, "group", None)
    topic = getattr(header, "topic", None)
    return ([(topic, AclPermission.SUB)] if topic else []) + _group(group)


def heartbeat(_context: BrokerContext, call: Call[None, b.HeartbeatData]) -> Iterable[Need]:
    """To read as each group of a client, and from all that it subscribes to."""
    for consumer in call.body.consumer_data_set:
        yield from _group(consumer.group_name)
        yield from ((subscription.topic, AclPermission.SUB) for subscription in consumer.subscription_data_set)


def check_client(_context: BrokerContext, call: Call[None, b.CheckClient]) -> list[Need]:
    """To read as the group of a client that asks whether its filter can be used."""
    return _group(call.body.group)


def send_back(context: BrokerContext, call: Call[h.ConsumerSendBack, None]) -> list[Need]:
    """To read as a group, and from the topic of the message."""
    return _group(call.header.group) + _message(context, call.header.offset, AclPermission.SUB)


def lock(_context: BrokerContext, call: Call[None, b.LockRequest]) -> list[Need]:
    """To read as a group, and from the topics of the queues."""
    return _group(call.body.consumer_group) + [(queue.topic, AclPermission.SUB) for queue in call.body.mq_set]


def consume_directly(context: BrokerContext, call: Call[a.ConsumeDirectly, None]) -> list[Need]:
    """To read as a group, and from the topic of the message that it is given."""
    header = call.header
    offset = parse_offset_id(header.msg_id).physical_offset if header.msg_id else None
    return _group(header.consumer_group) + ([] if offset is None else _message(context, offset, AclPermission.SUB))


def acknowledge(_context: BrokerContext, call: Call[Any, Any]) -> list[Need]:
    """To read as a group and from the topic; the group's retry topic is its own."""
    topic, group = call.header.topic, call.header.consumer_group
    own = GROUP_PREFIX + group
    return ([] if topic.startswith((own + "_", own + "+")) else [(topic, AclPermission.SUB)]) + _group(group)


def batch_acknowledge(_context: BrokerContext, call: Call[None, bytes]) -> Iterable[Need]:
    """To read as each group, and from each topic."""
    for ack in read_body(p.BatchAcks, call.body).acks if call.body else ():
        yield ack.topic, AclPermission.SUB
        yield from _group(ack.consumer_group)


def query_assignment(_context: BrokerContext, call: Call[None, b.AssignmentRequest]) -> list[Need]:
    """To read as a group, and from the topic whose queues it asks for."""
    return [(call.body.topic, AclPermission.SUB), *_group(call.body.consumer_group)]


def subscribe_lite(_context: BrokerContext, call: Call[None, bytes]) -> Iterable[Need]:
    """To read as each group, and from each topic whose lite topics it names."""
    for change in (read_body(lt.LiteSubscriptionChanges, call.body).subscription_set or ()) if call.body else ():
        if change.topic:
            yield change.topic, AclPermission.SUB
        if change.group:
            yield from _group(change.group)
