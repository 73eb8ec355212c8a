"""Declarations for recorded frames: requests from the servers' tables, and those of answers."""

from typing import Any, NamedTuple

from formats.errors import BadText
from formats.fastjson.declare import read_body
from formats.model.topics import DataVersion, TopicConfig
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting import namesrv as n
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from rmqtool.server.broker.table import REQUESTS as OF_BROKERS
from rmqtool.server.namesrv.requests import REQUESTS as OF_NAME_SERVERS


class Records:
    """A body of concatenated message records, as in the commit log."""


class Declared(NamedTuple):
    """A header and a body; None if there is none, ``bytes`` if the body is not a JSON object."""

    header: type[Any] | None = None
    body: type[Any] | None = None


REQUESTS = {code: Declared(row.header, row.body) for code, row in (OF_BROKERS | OF_NAME_SERVERS).items()} | {
    C.REGISTER_BROKER: Declared(n.RegisterBroker, b.RegisterBrokerBody),
    C.BATCH_ACK_MESSAGE: Declared(None, p.BatchAcks),
    # sent to clients
    C.CHECK_TRANSACTION_STATE: Declared(h.CheckTransaction, Records),
    C.NOTIFY_CONSUMER_IDS_CHANGED: Declared(h.ConsumerGroup),
}
ANSWERS: dict[int, Declared] = {
    C.SEND_MESSAGE_V2: Declared(h.Sent),
    C.SEND_BATCH_MESSAGE: Declared(h.Sent),
    C.PULL_MESSAGE: Declared(h.PullResponse, Records),
    C.LITE_PULL_MESSAGE: Declared(h.PullResponse, Records),
    C.QUERY_MESSAGE: Declared(h.Queried, Records),
    C.QUERY_CONSUMER_OFFSET: Declared(h.Offset),
    C.GET_BROKER_CONFIG: Declared(h.ConfigVersion, bytes),
    C.GET_BROKER_RUNTIME_INFO: Declared(None, b.KVTable),
    C.GET_MAX_OFFSET: Declared(h.Offset),
    C.GET_MIN_OFFSET: Declared(h.Offset),
    C.HEART_BEAT: Declared(h.HeartbeatAnswer),
    C.GET_CONSUMER_LIST_BY_GROUP: Declared(None, b.ConsumerIds),
    C.LOCK_BATCH_MQ: Declared(None, b.LockResponse),
    C.GET_KV_CONFIG: Declared(n.KVValue),
    C.REGISTER_BROKER: Declared(n.Registered, b.KVTable),
    C.GET_ROUTEINFO_BY_TOPIC: Declared(None, b.TopicRouteData),
    C.GET_BROKER_CLUSTER_INFO: Declared(None, b.ClusterInfo),
    C.GET_TOPIC_STATS_INFO: Declared(None, b.TopicStats),
    C.GET_CONSUMER_CONNECTION_LIST: Declared(None, b.ConsumerConnection),
    C.GET_PRODUCER_CONNECTION_LIST: Declared(None, b.ProducerConnection),
    C.WIPE_WRITE_PERM_OF_BROKER: Declared(n.Wiped),
    C.ADD_WRITE_PERM_OF_BROKER: Declared(n.Added),
    C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Declared(None, b.TopicList),
    C.GET_CONSUME_STATS: Declared(None, b.ConsumeStats),
    C.GET_KVLIST_BY_NAMESPACE: Declared(None, b.KVTable),
    C.INVOKE_BROKER_TO_RESET_OFFSET: Declared(None, b.ResetOffsets),
    C.GET_TOPICS_BY_CLUSTER: Declared(None, b.TopicList),
    C.QUERY_TOPIC_CONSUME_BY_WHO: Declared(None, b.GroupList),
    C.GET_SYSTEM_TOPIC_LIST_FROM_NS: Declared(None, b.TopicList),
    C.VIEW_BROKER_STATS_DATA: Declared(None, b.BrokerStats),
    C.GET_NAMESRV_CONFIG: Declared(None, bytes),
    C.QUERY_DATA_VERSION: Declared(n.Changed, DataVersion),
    C.GET_UNIT_TOPIC_LIST: Declared(None, b.TopicList),
    C.GET_HAS_UNIT_SUB_TOPIC_LIST: Declared(None, b.TopicList),
    C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Declared(None, b.TopicList),
    C.GET_CLIENT_CONFIG: Declared(None, bytes),
    C.GET_BROKER_MEMBER_GROUP: Declared(None, b.MemberGroupResponse),
    C.GET_TOPIC_CONFIG: Declared(None, TopicConfig),
    C.RECALL_MESSAGE: Declared(h.Recalled),
    C.QUERY_ASSIGNMENT: Declared(None, b.AssignmentResponse),
    C.POP_MESSAGE: Declared(p.PopResponse, Records),
    C.PEEK_MESSAGE: Declared(p.PopResponse, Records),
    C.CHANGE_MESSAGE_INVISIBLETIME: Declared(p.InvisibleChanged),
    C.NOTIFICATION: Declared(p.Notified),
    C.POLLING_INFO: Declared(p.PollingNumber),
}
# those whose answer has its header though the code is another one
_WITH_HEADER = {
    C.PULL_MESSAGE: {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED},
    C.POP_MESSAGE: {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL},
    C.RECALL_MESSAGE: set(ResponseCode),
}


def declared(request_code: int, *, is_response: bool) -> Declared:
    """The declaration of a request, or of the answer to it."""
    return ANSWERS.get(request_code, Declared()) if is_response else REQUESTS[request_code]


def header_of(command: Command, request_code: int) -> Any:
    """The header of a request, or of the answer to a request with that code.

    Raises:
        BadText: its fields differ from the declaration.
    """
    has = command.code == ResponseCode.SUCCESS or command.code in _WITH_HEADER.get(C(request_code), ())
    kind = declared(request_code, is_response=command.is_response).header
    return from_fields(kind if kind and (has or not command.is_response) else h.Empty, command.fields, strict=True)


def body_of(command: Command, request_code: int) -> Any:
    """The body of a request, or of the answer to it: an object, or plain bytes; None if it has none.

    Raises:
        BadText: it differs from the declaration.
    """
    kind = declared(request_code, is_response=command.is_response).body
    if not command.body:
        return None
    if kind is None:
        raise BadText(0, "a body where none is declared")
    if kind in (bytes, Records):
        return command.body
    return read_body(kind, command.body, strict=True)
