"""What a topic is for: by its name, and by what the table of topics says of it.

Source: common.topic.TopicValidator, common.TopicAttributes, common.attribute.TopicMessageType; message-services 1.1.
"""

from collections.abc import Container, Mapping

from formats.model.topics import TopicConfig
from formats.topics import DLQ_PREFIX, LMQ_PREFIX, REPLY_SUFFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS, Perm


def nature(
    topic: str, kind: str, message_type: str | None, queue_type: str | None, cleanup_policy: str | None
) -> list[str]:
    """What sets a topic apart from a plain one, in words: its kind, and what its attributes say."""
    kinds = [kind]
    kinds += ["light queue"] if topic.startswith(LMQ_PREFIX) else []
    kinds += [message_type.lower()] if message_type not in (None, "NORMAL") else []
    kinds += ["batch queue"] if queue_type == "BatchCQ" else []
    return kinds + (["compaction"] if cleanup_policy == "COMPACTION" else [])


def nature_of(topic: str, configs: Mapping[str, TopicConfig]) -> list[str]:
    """:func:`nature` by the table of topics."""
    config = configs.get(topic)
    attributes = config.attributes if config is not None else {}
    names = ("message.type", "queue.type", "cleanup.policy")
    return nature(topic, kind_of(topic, config, configs), *(attributes.get(name) for name in names))


def kind_of(topic: str, config: TopicConfig | None, topics: Container[str]) -> str:
    """normal, retry, dlq or system.

    That a topic names the cluster or the broker itself shows in its permission (others inherit from it), or in the
    reply topic of the cluster.
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
