"""What a group wants of topics, and which queues are whose (impl.consumer.RebalanceImpl, FilterAPI). Pure rules."""

from collections.abc import Collection

from formats.primitives import java_hash
from formats.remoting.shapes import MessageQueue, SubscriptionData
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import Strategy, sort


def tags_of(expression: str) -> list[str]:
    """The tags of an expression like ``created || paid``; none for ``*``, which is all messages.

    Raises:
        ValueError: it has ``||`` and no tag.
    """
    text = expression.strip()
    if text in ("", "*"):
        return []
    tags = [part.strip() for part in text.split("||") if part.strip()]
    if not tags:
        raise ValueError(f"{expression!r}: no tag")
    return list(dict.fromkeys(tags))


def subscription(topic: str, tags: Collection[str], version: int, sql: str | None = None) -> SubscriptionData:
    """As heartbeats carry it.

    Args:
        sql: an expression in the place of tags.
        version: when it was made, in ms; of two, brokers keep the newer one.
    """
    if sql is not None:
        return SubscriptionData(topic, sql, sub_version=version, expression_type="SQL92")
    return SubscriptionData(
        topic, " || ".join(tags) or "*", list(tags), [java_hash(tag) for tag in tags], sub_version=version
    )


def share(
    strategy: Strategy, client_id: str, queues: Collection[MessageQueue], members: Collection[str]
) -> set[MessageQueue]:
    """The queues of a topic that are this client's.

    Raises:
        BadAllocation: the strategy cannot say.
    """
    names, ids = sort([QueueName(q.topic, q.broker_name, q.queue_id) for q in queues], members)
    return {MessageQueue(*name) for name in strategy(client_id, names, ids)}
