"""Which messages a subscription wants, by what a queue entry tells (store.DefaultMessageFilter, filter.FilterAPI)."""

import re
from collections.abc import Callable

from formats.primitives import java_hash
from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import SubscriptionData
from rmqtool.server.broker.known.answers import Failed
from rmqtool.store.queues.reader import QueueEntry

Accept = Callable[[QueueEntry], bool]
TAG, ALL = "TAG", "*"


def subscription_of(topic: str, expression: str | None, kind: str | None) -> SubscriptionData:
    """The subscription that a pull names itself.

    Raises:
        Failed: the expression cannot be read.
    """
    kind = kind or TAG
    if kind != TAG:
        return SubscriptionData(topic, expression or "", expression_type=kind)
    if expression in (None, "", ALL):
        return SubscriptionData(topic, ALL)
    tags = [tag.strip() for tag in re.split(r"\|\|", expression or "") if tag.strip()]
    if not tags:
        raise Failed(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    return SubscriptionData(topic, expression or "", tags, [java_hash(tag) for tag in tags])


def accept_of(subscription: SubscriptionData | None) -> Accept | None:
    """Whether an entry's tags code fits; None where all do. Other tags may have the same code: clients look again."""
    if subscription is None or subscription.class_filter_mode or subscription.sub_string == ALL:
        return None
    if subscription.expression_type != TAG:
        return None
    codes = frozenset(subscription.code_set)
    return lambda entry: entry.tags_code in codes
