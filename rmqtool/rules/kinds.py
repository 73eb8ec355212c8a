"""Kinds of messages that 5.4 and later send to a queue of their own: with a priority, and of a lite topic.

Source: common.attribute.TopicMessageType, common.lite.LiteUtil, common.SubscriptionGroupAttributes,
broker.processor.SendMessageProcessor of 5.5.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.message.properties import DELAY, LITE_TOPIC, PRIORITY, SHARDING_KEY
from formats.message.read import java_int
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.topics import LMQ_PREFIX
from formats.variants.timer import REQUESTS
from rmqtool.rules.releases import Release

_ALWAYS = 100  # percent


def own_priority(properties: Mapping[str, str]) -> int | None:
    """The priority of a message; None without one, negative ones included."""
    priority = java_int(properties.get(PRIORITY, ""))
    return priority if priority is not None and priority >= 0 else None


def heeds_priority(properties: Mapping[str, str]) -> bool:
    """Whether the priority of a message counts: one that is transactional, delayed or in order loses it."""
    if properties.get("TRAN_MSG", "").lower() == "true":
        return False
    return not any(name in properties for name in (DELAY, *REQUESTS, SHARDING_KEY))


def lite_queue(topic: str, properties: Mapping[str, str]) -> str | None:
    """The light queue that a message of a lite topic also gets into; None for other messages."""
    name = properties.get(LITE_TOPIC)
    return f"{LMQ_PREFIX}${topic}${name}" if name else None


def lite_names(queue: str) -> tuple[str, str] | None:
    """Parent topic and lite topic of a light queue; None if its name is not made of two such names."""
    parts = queue.removeprefix(f"{LMQ_PREFIX}$").split("$")
    return (parts[0], parts[1]) if queue.startswith(f"{LMQ_PREFIX}$") and len(parts) == 2 and all(parts) else None


def is_lite(config: TopicConfig) -> bool:
    """Whether a topic is for messages of lite topics."""
    return (config.attributes or {}).get("message.type") == "LITE"


def lite_expiration(config: TopicConfig) -> int:
    """Minutes after its last message until a lite topic of a topic is deleted; -1 for never."""
    number = java_int((config.attributes or {}).get("lite.topic.expiration", "")) if is_lite(config) else None
    return -1 if number is None else number


_OF_LITE_GROUPS = frozenset(
    {
        "lite.bind.topic",
        "lite.sub.model",
        "lite.sub.reset.offset.exclusive",
        "lite.sub.reset.offset.unsubscribe",
        "lite.sub.client.quota",
        "lite.sub.client.max.event.cnt",
        "lite.sub.wildcard",
    }
)


def group_attributes_of(release: Release) -> frozenset[str]:
    """Attributes that a consumer group may have; brokers of 5.3 refuse any (common.SubscriptionGroupAttributes)."""
    priorities = {"priority.factor"} if release.knows_priorities else set[str]()
    return _OF_LITE_GROUPS | priorities if release.knows_lite_topics else frozenset(priorities)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteGroup:
    """What the attributes of a consumer group say about lite topics.

    Attributes:
        topic: the one whose lite topics it reads; None for a group of another kind.
        exclusive: a lite topic goes to the client that has subscribed to it last.
        resets_excluded: the client that a lite topic goes to begins with its first message.
        resets_unsubscribed: so does the next client after one that has unsubscribed.
        wildcard: its clients share all lite topics, and do not name them.
        most_events: how many lite topics with new messages are noted for a client; None for the broker's limit.
    """

    topic: str | None
    exclusive: bool
    resets_excluded: bool
    resets_unsubscribed: bool
    wildcard: bool
    most_events: int | None

    @classmethod
    def of(cls, group: SubscriptionGroup) -> "LiteGroup":
        """The attributes of a group."""
        attributes = group.attributes or {}
        most = java_int(attributes.get("lite.sub.client.max.event.cnt", ""))
        return cls(
            topic=attributes.get("lite.bind.topic"),
            exclusive=attributes.get("lite.sub.model") == "Exclusive",
            resets_excluded=attributes.get("lite.sub.reset.offset.exclusive", "").lower() == "true",
            resets_unsubscribed=attributes.get("lite.sub.reset.offset.unsubscribe", "").lower() == "true",
            wildcard="lite.sub.wildcard" in attributes,
            most_events=most if most is not None and most > 0 else None,
        )


def priority_share(attributes: Mapping[str, str]) -> int:
    """The percentage of a group's pops that begin with the highest priority."""
    factor = java_int(attributes.get("priority.factor", ""), 64)
    return _ALWAYS if factor is None else factor
