"""Lite topics of 5.5: headers and bodies of requests and responses (remoting.protocol.header, body; common.lite)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from formats.fastjson.declare import Int, Long
from formats.remoting.shapes import OffsetWrapper, TopicOffset

# LiteSubscriptionAction
ADD_SOME, REMOVE_SOME, ADD_ALL, REMOVE_ALL = "PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_ADD", "COMPLETE_REMOVE"
# OffsetOption.Type
POLICY, OFFSET, TAIL_N = "POLICY", "OFFSET", "TAIL_N"
MIN_POLICY, MAX_POLICY = 1, 2


@dataclass(kw_only=True)
class PopLite:
    """Asks for messages of the lite topics that a client subscribes to (PopLiteMessageRequestHeader)."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    attempt_id: str | None = None
    bname: str | None = None


@dataclass(kw_only=True)
class PopLiteResponse:
    """Data needed to acknowledge the messages (PopLiteMessageResponseHeader)."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    order_count_info: str = ""


@dataclass(kw_only=True)
class OffsetOption:
    """Where a subscription begins (lite.OffsetOption)."""

    type: str | None = None
    value: Long = 0


@dataclass(kw_only=True)
class LiteSubscriptionChange:
    """A change of what a client subscribes to (lite.LiteSubscriptionDTO)."""

    action: str | None = None
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    lite_topic_set: list[str] | None = None
    offset_option: OffsetOption | None = None
    version: Long = 0


@dataclass
class LiteSubscriptionChanges:
    """Changes of subscriptions (body.LiteSubscriptionCtlRequestBody)."""

    subscription_set: list[LiteSubscriptionChange] | None = None


@dataclass(kw_only=True)
class NotifyUnsubscribeLite:
    """Tells a client that another one has its lite topic now (NotifyUnsubscribeLiteRequestHeader)."""

    lite_topic: str
    consumer_group: str
    client_id: str


@dataclass(kw_only=True)
class GetParentTopic:
    """Asks about a topic that has lite topics (GetParentTopicInfoRequestHeader)."""

    topic: str


@dataclass(kw_only=True)
class GetLiteTopic:
    """Asks about a lite topic (GetLiteTopicInfoRequestHeader)."""

    parent_topic: str | None = None
    lite_topic: str | None = None


@dataclass(kw_only=True)
class GetLiteClient:
    """Asks what a client subscribes to (GetLiteClientInfoRequestHeader)."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int = 1000


@dataclass(kw_only=True)
class GetLiteGroup:
    """Asks for the progress of a group (GetLiteGroupInfoRequestHeader)."""

    group: str
    lite_topic: str | None = None
    top_k: Int = 0


@dataclass(kw_only=True)
class TriggerLiteDispatch:
    """Has lite topics with messages left noted for their clients again (TriggerLiteDispatchRequestHeader)."""

    group: str
    client_id: str | None = None


@dataclass(kw_only=True)
class BrokerLiteInfo:
    """A broker's lite topics (body.GetBrokerLiteInfoResponseBody)."""

    store_type: str
    max_lmq_num: Int
    current_lmq_num: Int
    lite_subscription_count: Int
    order_info_count: Int
    cq_table_size: Int
    offset_table_size: Int
    event_map_size: Int
    topic_meta: Mapping[str, Int]
    group_meta: Mapping[str, list[str]]


@dataclass(kw_only=True)
class ParentTopicInfo:
    """A topic that has lite topics (body.GetParentTopicInfoResponseBody)."""

    topic: str
    ttl: Int
    groups: list[str] | None = None
    lmq_num: Int
    lite_topic_count: Int


@dataclass
class ClientGroup:
    """A client of a group (entity.ClientGroup)."""

    client_id: str
    group: str


@dataclass(kw_only=True)
class LiteTopicInfo:
    """A lite topic (body.GetLiteTopicInfoResponseBody)."""

    parent_topic: str
    lite_topic: str | None = None
    subscriber: list[ClientGroup]
    topic_offset: TopicOffset
    sharding_to_broker: bool


@dataclass(kw_only=True)
class LiteClientInfo:
    """What a client subscribes to (body.GetLiteClientInfoResponseBody). Times are ms since the epoch."""

    parent_topic: str
    group: str
    client_id: str | None = None
    last_access_time: Long
    last_consume_time: Long
    lite_topic_count: Int
    lite_topic_set: list[str] | None = None


@dataclass(kw_only=True)
class LiteLag:
    """The lag of a group in a lite topic (lite.LiteLagInfo)."""

    lite_topic: str
    lag_count: Long
    earliest_unconsumed_timestamp: Long


@dataclass(kw_only=True)
class LiteGroupInfo:
    """The progress of a group (body.GetLiteGroupInfoResponseBody). Times are ms since the epoch."""

    group: str
    parent_topic: str
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: Long = -1
    total_lag_count: Long = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLag] | None = field(default=None)
    lag_timestamp_top_k: list[LiteLag] | None = field(default=None)
