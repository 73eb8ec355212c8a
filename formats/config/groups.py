"""``subscriptionGroup.json``: the consumer groups of a broker; `formats.config.files` is the module to import."""

# ruff: noqa: RUF009 - member() makes a dataclass field, not a default that instances share

from collections.abc import Mapping
from dataclasses import dataclass

from formats.config.beans import VERSION, Bean, ConfigFile, DataVersion, Nested, member
from formats.config.kinds import FLAG, INT, LONG, TEXT, Items, Table
from formats.versions import V5_3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialRetry(Bean):
    """``ExponentialRetryPolicy``; milliseconds."""

    initial: int = member("initial", LONG, 5_000)
    max: int = member("max", LONG, 7_200_000)
    multiplier: int = member("multiplier", LONG, 2)


_MINUTE = 60_000
_RETRY_AFTER = (1_000, 5_000, 10_000, 30_000, *(n * _MINUTE for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomizedRetry(Bean):
    """``CustomizedRetryPolicy``; milliseconds until each next attempt."""

    next: tuple[int, ...] = member("next", Items(LONG, inline=True), _RETRY_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRetryPolicy(Bean):
    """``GroupRetryPolicy``: which of the two counts."""

    type: str = member("type", TEXT, "CUSTOMIZED")  # or EXPONENTIAL
    exponential: ExponentialRetry | None = member("exponentialRetryPolicy", Nested(ExponentialRetry))
    customized: CustomizedRetry | None = member("customizedRetryPolicy", Nested(CustomizedRetry))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleSubscription(Bean):
    """``SimpleSubscriptionData``: what a group subscribes to, when the broker knows it."""

    topic: str | None = member("topic", TEXT)
    expression_type: str | None = member("expressionType", TEXT)
    expression: str | None = member("expression", TEXT)
    version: int = member("version", LONG, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroup(Bean):
    """One consumer group (``SubscriptionGroupConfig``)."""

    group_name: str | None = member("groupName", TEXT)
    consume_enable: bool = member("consumeEnable", FLAG, True)
    consume_from_min_enable: bool = member("consumeFromMinEnable", FLAG, True)
    consume_broadcast_enable: bool = member("consumeBroadcastEnable", FLAG, True)
    consume_message_orderly: bool = member("consumeMessageOrderly", FLAG, False, since=V5_3)
    retry_queue_nums: int = member("retryQueueNums", INT, 1)
    retry_max_times: int = member("retryMaxTimes", INT, 16)
    group_retry_policy: GroupRetryPolicy = member(
        "groupRetryPolicy", Nested(GroupRetryPolicy), GroupRetryPolicy, since=V5_3
    )
    broker_id: int = member("brokerId", LONG, 0)
    which_broker_when_consume_slowly: int = member("whichBrokerWhenConsumeSlowly", LONG, 1)
    notify_consumer_ids_changed_enable: bool = member("notifyConsumerIdsChangedEnable", FLAG, True)
    group_sys_flag: int = member("groupSysFlag", INT, 0, since=V5_3)
    consume_timeout_minute: int = member("consumeTimeoutMinute", INT, 15, since=V5_3)
    subscriptions: tuple[SimpleSubscription, ...] | None = member(
        "subscriptionDataSet", Items(Nested(SimpleSubscription), inline=True), since=V5_3
    )
    attributes: Mapping[str, str] = member("attributes", Table(TEXT), dict, since=V5_3)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroups(ConfigFile):
    """``subscriptionGroup.json`` (``SubscriptionGroupManager``)."""

    data_version: DataVersion = member("dataVersion", VERSION, DataVersion)
    groups: Mapping[str, SubscriptionGroup] = member("subscriptionGroupTable", Table(Nested(SubscriptionGroup)), dict)
    forbidden: Mapping[str, Mapping[str, int]] = member(  # group → topic → bits
        "forbiddenTable", Table(Table(INT)), dict, since=V5_3
    )
