"""What belongs to a request code: headers and bodies of its request and of its response."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from formats.errors import BadText
from formats.fastjson.declare import read_body
from formats.model.groups import SubscriptionGroup
from formats.model.topics import DataVersion, TopicConfig
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting import namesrv as n
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command

Declaration: TypeAlias = type[Any]


class Records:
    """A body of message records, one behind the other, as the commit log has them."""


class Content:
    """A body that is a message's own, or a batch."""


class Properties:
    """A body of lines ``key=value``."""


@dataclass(frozen=True)
class Exchange:
    """Declarations of one request code; None where there is no body."""

    request: Declaration = h.Empty
    body: Declaration | None = None
    response: Declaration = h.Empty
    response_body: Declaration | None = None


EXCHANGES: dict[int, Exchange] = {
    C.SEND_MESSAGE_V2: Exchange(h.Send, Content, h.Sent),
    C.SEND_BATCH_MESSAGE: Exchange(h.Send, Content, h.Sent),
    C.PULL_MESSAGE: Exchange(h.Pull, None, h.Pulled, Records),
    C.LITE_PULL_MESSAGE: Exchange(h.Pull, None, h.Pulled, Records),
    C.QUERY_MESSAGE: Exchange(h.Query, None, h.Queried, Records),
    C.QUERY_CONSUMER_OFFSET: Exchange(h.GroupQueue, None, h.Offset),
    C.UPDATE_CONSUMER_OFFSET: Exchange(h.Commit),
    C.UPDATE_AND_CREATE_TOPIC: Exchange(h.CreateTopic),
    C.GET_BROKER_CONFIG: Exchange(response=h.ConfigVersion, response_body=Properties),
    C.GET_BROKER_RUNTIME_INFO: Exchange(response_body=b.KVTable),
    C.GET_MAX_OFFSET: Exchange(h.Queue, None, h.Offset),
    C.GET_MIN_OFFSET: Exchange(h.Queue, None, h.Offset),
    C.HEART_BEAT: Exchange(h.Empty, b.HeartbeatData, h.HeartbeatAnswer),
    C.UNREGISTER_CLIENT: Exchange(h.Unregister),
    C.CONSUMER_SEND_MSG_BACK: Exchange(h.SendBack),
    C.END_TRANSACTION: Exchange(h.EndTransaction),
    C.GET_CONSUMER_LIST_BY_GROUP: Exchange(h.Group, None, h.Empty, b.ConsumerIds),
    C.CHECK_TRANSACTION_STATE: Exchange(h.CheckTransaction, Records),
    C.NOTIFY_CONSUMER_IDS_CHANGED: Exchange(h.Group),
    C.LOCK_BATCH_MQ: Exchange(h.Empty, b.LockRequest, h.Empty, b.LockResponse),
    C.UNLOCK_BATCH_MQ: Exchange(h.Empty, b.LockRequest),
    C.PUT_KV_CONFIG: Exchange(n.KeyValue),
    C.GET_KV_CONFIG: Exchange(n.KeyValue, None, n.KVValue),
    C.DELETE_KV_CONFIG: Exchange(n.KeyValue),
    C.REGISTER_BROKER: Exchange(n.RegisterBroker, b.RegisterBrokerBody, n.Registered, b.KVTable),
    C.UNREGISTER_BROKER: Exchange(n.Broker),
    C.GET_ROUTEINFO_BY_TOPIC: Exchange(h.Topic, None, h.Empty, b.TopicRouteData),
    C.GET_BROKER_CLUSTER_INFO: Exchange(response_body=b.ClusterInfo),
    C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Exchange(h.Empty, SubscriptionGroup),
    C.GET_TOPIC_STATS_INFO: Exchange(h.Topic, None, h.Empty, b.TopicStats),
    C.GET_CONSUMER_CONNECTION_LIST: Exchange(h.Group, None, h.Empty, b.ConsumerConnection),
    C.GET_PRODUCER_CONNECTION_LIST: Exchange(h.Producers, None, h.Empty, b.ProducerConnection),
    C.WIPE_WRITE_PERM_OF_BROKER: Exchange(n.BrokerName, None, n.Wiped),
    C.ADD_WRITE_PERM_OF_BROKER: Exchange(n.BrokerName, None, n.Added),
    C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Exchange(response_body=b.TopicList),
    C.GET_CONSUME_STATS: Exchange(h.Group, None, h.Empty, b.ConsumeStats),
    C.DELETE_TOPIC_IN_BROKER: Exchange(h.Topic),
    C.DELETE_TOPIC_IN_NAMESRV: Exchange(h.Topic),
    C.REGISTER_TOPIC_IN_NAMESRV: Exchange(h.Topic, b.TopicRouteData),
    C.GET_KVLIST_BY_NAMESPACE: Exchange(n.Namespace, None, h.Empty, b.KVTable),
    C.INVOKE_BROKER_TO_RESET_OFFSET: Exchange(h.ResetOffset, None, h.Empty, b.ResetOffsets),
    C.GET_TOPICS_BY_CLUSTER: Exchange(n.Cluster, None, h.Empty, b.TopicList),
    C.QUERY_TOPIC_CONSUME_BY_WHO: Exchange(h.Topic, None, h.Empty, b.GroupList),
    C.GET_SYSTEM_TOPIC_LIST_FROM_NS: Exchange(response_body=b.TopicList),
    C.VIEW_BROKER_STATS_DATA: Exchange(h.Stats, None, h.Empty, b.BrokerStats),
    C.GET_NAMESRV_CONFIG: Exchange(response_body=Properties),
    C.UPDATE_NAMESRV_CONFIG: Exchange(body=Properties),
    C.QUERY_DATA_VERSION: Exchange(n.Broker, DataVersion, n.Changed, DataVersion),
    C.GET_UNIT_TOPIC_LIST: Exchange(response_body=b.TopicList),
    C.GET_HAS_UNIT_SUB_TOPIC_LIST: Exchange(response_body=b.TopicList),
    C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Exchange(response_body=b.TopicList),
    C.GET_CLIENT_CONFIG: Exchange(h.Empty, b.ConfigKeys, h.Empty, Properties),
    C.GET_BROKER_MEMBER_GROUP: Exchange(n.Group, None, h.Empty, b.MemberGroupResponse),
    C.BROKER_HEARTBEAT: Exchange(n.Alive),
    C.GET_TOPIC_CONFIG: Exchange(h.Topic, None, h.Empty, TopicConfig),
    C.RECALL_MESSAGE: Exchange(h.Recall, None, h.Recalled),
    C.QUERY_ASSIGNMENT: Exchange(h.Empty, b.AssignmentRequest, h.Empty, b.AssignmentResponse),
    C.SET_MESSAGE_REQUEST_MODE: Exchange(h.Empty, b.RequestMode),
    C.POP_MESSAGE: Exchange(p.Pop, None, p.Popped, Records),
    C.ACK_MESSAGE: Exchange(p.Ack),
    C.BATCH_ACK_MESSAGE: Exchange(h.Empty, p.BatchAcks),
    C.PEEK_MESSAGE: Exchange(p.Peek, None, p.Popped, Records),
    C.CHANGE_MESSAGE_INVISIBLETIME: Exchange(p.ChangeInvisible, None, p.InvisibleChanged),
    C.NOTIFICATION: Exchange(p.Notification, None, p.Notified),
    C.POLLING_INFO: Exchange(h.GroupQueue, None, p.PollingNumber),
}
RAW = (Records, Content, Properties)
# those whose response has its header though the code is another one
WITH_HEADER = {
    C.PULL_MESSAGE: {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED},
    C.POP_MESSAGE: {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL},
    C.RECALL_MESSAGE: set(ResponseCode),
}


def header_of(command: Command, request_code: int, strict: bool = False) -> Any:
    """The declared header of a request, or of the response to a request with that code.

    Raises:
        BadText: its fields are not those of the declaration.
        KeyError: no declaration for that code.
    """
    exchange = EXCHANGES[request_code]
    if not command.is_response:
        return from_fields(exchange.request, command.fields, strict)
    has = command.code == ResponseCode.SUCCESS or command.code in WITH_HEADER.get(C(request_code), ())
    return from_fields(exchange.response if has else h.Empty, command.fields, strict)


def body_of(command: Command, request_code: int, strict: bool = False) -> Any:
    """The declared body of a request or of the response to it: an object, plain bytes (see `RAW`), None if it has none.

    Raises:
        BadText: it does not hold what is declared.
        KeyError: no declaration for that code.
    """
    exchange = EXCHANGES[request_code]
    declared = exchange.response_body if command.is_response else exchange.body
    if not command.body:
        return None
    if declared is None:
        if strict:
            raise BadText(0, "a body where none is declared")
        return command.body
    return command.body if declared in RAW else read_body(declared, command.body, strict)
