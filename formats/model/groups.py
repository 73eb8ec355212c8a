"""Configuration of consumer groups."""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.fastjson.declare import Bean, Int, Long, member
from formats.versions import V5_3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialRetry(Bean):
    """``ExponentialRetryPolicy``; milliseconds."""

    initial: Long = 5_000
    max: Long = 7_200_000
    multiplier: Long = 2


_MINUTE = 60_000
_RETRY_AFTER = (1_000, 5_000, 10_000, 30_000, *(n * _MINUTE for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomizedRetry(Bean):
    """``CustomizedRetryPolicy``: the delay before each attempt, ms."""

    next: tuple[Long, ...] = member(default=_RETRY_AFTER, inline=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRetryPolicy(Bean):
    """``GroupRetryPolicy``: ``type`` selects one of the two policies."""

    type: str = "CUSTOMIZED"  # or EXPONENTIAL
    exponential: ExponentialRetry | None = member("exponentialRetryPolicy", None)
    customized: CustomizedRetry | None = member("customizedRetryPolicy", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleSubscription(Bean):
    """``SimpleSubscriptionData``: what a group subscribes to, if the broker knows it."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Long = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroup(Bean):
    """One consumer group (``SubscriptionGroupConfig``)."""

    group_name: str | None = None
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = member(default=False, since=V5_3)
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: GroupRetryPolicy = member(default=GroupRetryPolicy, since=V5_3)
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = member(default=0, since=V5_3)
    consume_timeout_minute: Int = member(default=15, since=V5_3)
    subscriptions: tuple[SimpleSubscription, ...] | None = member("subscriptionDataSet", None, since=V5_3, inline=True)
    attributes: Mapping[str, str] = member(default=dict, since=V5_3)
