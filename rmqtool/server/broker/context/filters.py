"""Filters of subscriptions: by the tags code in a queue entry, or for SQL92 by the message's properties
(store.DefaultMessageFilter, filter.FilterAPI, broker.filter.ExpressionMessageFilter)."""

import re
from collections.abc import Callable

from formats.message.properties import TAGS, parse
from formats.message.read import Record, read
from formats.primitives import java_hash
from formats.queues.consume import is_ext_address
from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import SubscriptionData
from formats.sql92.filter import BadFilter, Matches, compile_filter
from rmqtool.rules.releases import Release
from rmqtool.server.broker.context.answers import Failed
from rmqtool.services.lookup.get_message import ReadRecord
from rmqtool.store.queues.reader import QueueEntry

Accept = Callable[[QueueEntry], bool]
TAG, SQL92, ALL = "TAG", "SQL92", "*"


def read_subscription(topic: str, expression: str | None, kind: str | None) -> SubscriptionData:
    """The subscription in a pull request.

    Raises:
        Failed: the expression is invalid.
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


def compile_subscription(subscription: SubscriptionData, release: Release) -> Matches | None:
    """The filter of a subscription that is not by tags; None if the expression is invalid.

    Args:
        release: whose syntax applies.
    """
    if subscription.expression_type != SQL92:
        return None
    try:
        return compile_filter(subscription.sub_string, wide=release.knows_wide_filters)
    except BadFilter:
        return None


def build_filter(
    subscription: SubscriptionData | None, read_record: ReadRecord[memoryview], release: Release
) -> Accept | None:
    """A filter for queue entries; None if all match.

    Tags are compared by hash code; clients check again, as codes may collide. An invalid expression matches everything,
    as in a broker; clients have it checked before (request 46).

    Args:
        read_record: gives the bytes of an entry's record; None if missing, which a later read reports.
    """
    if subscription is None or subscription.class_filter_mode or subscription.sub_string == ALL:
        return None
    if subscription.expression_type == TAG:
        codes = frozenset(subscription.code_set)

        def by_tag(entry: QueueEntry) -> bool:
            code = entry.tags_code
            if is_ext_address(code):  # the code is an address in the queue's extension
                data = read_record(entry.physical_offset, entry.size)
                record = None if data is None else read(data, 0, len(data), crc=False)
                if not isinstance(record, Record):
                    return True
                code = java_hash(parse(record.properties).get(TAGS, ""))
            return code in codes

        return by_tag
    matches = compile_subscription(subscription, release)
    if matches is None:
        return None

    def accept(entry: QueueEntry) -> bool:
        data = read_record(entry.physical_offset, entry.size)
        record = None if data is None else read(data, 0, len(data), crc=False)
        return not isinstance(record, Record) or matches(parse(record.properties))

    return accept
