"""The purpose of a topic, by its name and its entry in the table of topics.

Source: common.topic.TopicValidator, common.TopicAttributes, common.attribute.TopicMessageType; message-services 1.1.
"""

from collections.abc import Container, Mapping

from formats.model.topics import TopicConfig
from formats.topics import DLQ_PREFIX, LMQ_PREFIX, REPLY_SUFFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS, Perm


def nature(
    topic: str, kind: str, message_type: str | None, queue_type: str | None, cleanup_policy: str | None
) -> list[str]:
    """Words for what distinguishes a topic from a plain one: its kind and its attributes."""
    kinds = [kind]
    kinds += ["light queue"] if topic.startswith(LMQ_PREFIX) else []
    kinds += [message_type.lower()] if message_type not in (None, "NORMAL") else []
    kinds += ["batch queue"] if queue_type == "BatchCQ" else []
    return kinds + (["compaction"] if cleanup_policy == "COMPACTION" else [])


def nature_of(topic: str, configs: Mapping[str, TopicConfig]) -> list[str]:
    """:func:`nature` for a table of topics."""
    config = configs.get(topic)
    attributes = config.attributes if config is not None else {}
    names = ("message.type", "queue.type", "cleanup.policy")
    return nature(topic, kind_of(topic, config, configs), *(attributes.get(name) for name in names))


def kind_of(topic: str, config: TopicConfig | None, topics: Container[str]) -> str:
    """normal, retry, dlq or system.

    Topics named after the cluster or the broker are recognized by their permission (others inherit from them), or by
    the cluster's reply topic.
    """
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dlq"
    reply = topic.endswith(REPLY_SUFFIX) and topic.removesuffix(REPLY_SUFFIX) in topics
    inherited = config is not None and config.perm & Perm.INHERIT
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX) or reply or inherited:
        return "system"
    return "normal"
