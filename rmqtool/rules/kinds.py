"""Kinds of messages that 5.4 and later send to a queue of their own: with a priority, and of a lite topic.

Source: common.attribute.TopicMessageType, common.lite.LiteUtil, broker.processor.SendMessageProcessor of 5.5.0.
"""

from collections.abc import Mapping

from formats.message.properties import DELAY, LITE_TOPIC, PRIORITY, SHARDING_KEY
from formats.message.read import java_int
from formats.topics import LMQ_PREFIX
from formats.variants.timer import REQUESTS

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


def priority_share(attributes: Mapping[str, str]) -> int:
    """The percentage of a group's pops that begin with the highest priority."""
    factor = java_int(attributes.get("priority.factor", ""), 64)
    return _ALWAYS if factor is None else factor
