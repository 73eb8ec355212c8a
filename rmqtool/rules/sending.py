"""Rules for sending: checks by client and broker, batches, automatic topic creation, compression.

Sources: client.Validators, DefaultMQProducerImpl.tryToCompressMessage, common.topic.TopicValidator,
broker.processor.AbstractSendMessageProcessor.msgCheck, broker.topic.TopicConfigManager, store.DefaultMessageStore
(4.9.8), common.message.MessageBatch; message-services 4, 5, 7.2, 10.1.
"""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from formats.message.build import MAX_MESSAGE_SIZE
from formats.message.properties import DELAY, UNIQ_KEY, WAIT
from formats.message.read import java_int
from formats.model.topics import TopicConfig
from formats.primitives import COMPRESSED, COMPRESSION_MASK
from formats.topics import AUTO_CREATE, NOT_SENT_TO, RETRY_PREFIX, Perm
from rmqtool.rules.releases import V4_9, Release

MAX_TOPIC, MAX_GROUP = 127, 255  # characters
COMPRESS_FROM = 4096  # minimum body size for compression, bytes
COMPRESS_LEVEL = 5
COMPRESSIONS = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
CLIENT_ERROR, SYSTEM_ERROR, MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST = -1, 1, 13, 16, 17
INVALID_PARAMETER = 29  # of 5.x
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_PATTERN = "^[%|a-zA-Z0-9_-]+$"
# what StringUtils.isBlank treats as blank (Character.isWhitespace): no-break spaces excluded, U+001C-1F included
_BLANK = re.compile("[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*")


class Rejected(ValueError):
    """A message, topic or group was rejected.

    Attributes:
        code: code of the client's exception or of the broker's response.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def is_blank(text: str) -> bool:
    """Return whether a text is empty or consists of what Java considers white space."""
    return _BLANK.fullmatch(text) is not None


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 units, which is the length in Java."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def check_group(group: str) -> None:
    """Check a group name like the client.

    Raises:
        Rejected: blank, too long, or with characters other than letters, digits and ``%|-_``.
    """
    _check_name("the", "group", group, MAX_GROUP)


@lru_cache(maxsize=1024)  # called for every message, with few distinct topics
def check_topic(topic: str, *, sending: bool = True) -> None:
    """Check a topic name like the client.

    Args:
        sending: also reject topics that only the broker itself writes to.

    Raises:
        Rejected: blank, too long, with invalid characters, or not allowed as a destination.
    """
    _check_name("The", "topic", topic, MAX_TOPIC)
    if sending and topic in NOT_SENT_TO:
        raise Rejected(CLIENT_ERROR, f"Sending message to topic[{topic}] is forbidden.")


def _check_name(the: str, kind: str, name: str, most: int) -> None:
    if is_blank(name):
        raise Rejected(CLIENT_ERROR, f"{the} specified {kind} is blank")
    if utf16_length(name) > most:
        raise Rejected(CLIENT_ERROR, f"{the} specified {kind} is longer than {kind} max length {most}.")
    if not _NAME.fullmatch(name):
        reason = f"contains illegal characters, allowing only {_PATTERN}"
        raise Rejected(CLIENT_ERROR, f"{the} specified {kind}[{name}] {reason}")


def check_message(topic: str, body: bytes | None, max_message_size: int = MAX_MESSAGE_SIZE) -> None:
    """Check a message like the client.

    Raises:
        Rejected: the topic or the body is invalid.
    """
    check_topic(topic)
    if body is None:
        raise Rejected(MESSAGE_ILLEGAL, "the message body is null")
    if not body:
        raise Rejected(MESSAGE_ILLEGAL, "the message body length is zero")
    if len(body) > max_message_size:
        raise Rejected(MESSAGE_ILLEGAL, f"the message body size over max value, MAX: {max_message_size}")


def check_batch(messages: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    """Check the messages of a batch like the client.

    Args:
        messages: topic and properties of each message.

    Raises:
        Rejected: the batch is empty, a message is delayed or for a retry topic, or topics or WAIT values differ.
    """
    if not messages:
        raise Rejected(CLIENT_ERROR, "a batch needs messages")
    first_topic, first = messages[0]
    for topic, properties in messages:
        if DELAY in properties and _delay_level(properties[DELAY]) > 0:
            raise Rejected(CLIENT_ERROR, "TimeDelayLevel is not supported for batching")
        if topic.startswith(RETRY_PREFIX):
            raise Rejected(CLIENT_ERROR, "Retry Group is not supported for batching")
        if topic != first_topic:
            raise Rejected(CLIENT_ERROR, "The topic of the messages in one batch should be the same")
        if properties.get(WAIT) != first.get(WAIT) and waits_for_store(properties) != waits_for_store(first):
            raise Rejected(CLIENT_ERROR, "The waitStoreMsgOK of the messages in one batch should the same")


def _delay_level(text: str) -> int:
    level = java_int(text)
    if level is None:
        raise Rejected(CLIENT_ERROR, f"delay level {text!r} is not a number")
    return level


def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Return whether a producer waits until the broker has flushed and replicated the message."""
    text = properties.get(WAIT, "true")
    return text == "true" or text.lower() == "true"


def batch_properties(first: Mapping[str, str], unique_id: str | None = None) -> dict[str, str]:
    """Return the properties of a batch request.

    Args:
        first: properties of the first message.
        unique_id: id that a 5.x client assigns to the batch. Brokers store it with each message, after its own.
    """
    batch_map = {WAIT: "true" if waits_for_store(first) else "false"}
    return batch_map if unique_id is None else {**batch_map, UNIQ_KEY: unique_id}


def check_at_broker(
    topic: str,
    queue_id: int,
    config: TopicConfig | None,
    *,
    broker_perm: int = Perm.READ | Perm.WRITE,
    release: Release = V4_9,
) -> None:
    """Check a send request like the broker.

    Args:
        queue_id: -1 lets the broker choose.
        config: configuration of the topic, after any automatic creation; None if the topic does not exist.
        release: determines the code for an invalid name or queue id.

    Raises:
        Rejected: the broker would refuse the request with this code.
    """
    invalid = release.invalid_code
    if config is not None and config.order and not broker_perm & Perm.WRITE:
        raise Rejected(NO_PERMISSION, "the broker sending message is forbidden")
    if len(topic) > MAX_TOPIC or not _is_topic(topic):  # do not cache overlong names
        raise Rejected(invalid, f"the topic {topic!r} is not valid")
    if topic in NOT_SENT_TO:
        raise Rejected(NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    if config is None:
        raise Rejected(TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
    if queue_id >= max(config.write_queue_nums, config.read_queue_nums):
        raise Rejected(invalid, f"request queueId[{queue_id}] is illegal")


@lru_cache(maxsize=1024)
def _is_topic(topic: str) -> bool:
    return not is_blank(topic) and _NAME.fullmatch(topic) is not None and utf16_length(topic) <= MAX_TOPIC


def auto_create(
    topic: str, template: str, config: TopicConfig | None, queue_nums: int, *, enabled: bool = True
) -> TopicConfig | None:
    """Return the topic that a broker creates when a message for an unknown topic arrives; None if it creates none.

    Args:
        template: the topic named by the client as a template, ``TBW102`` by default.
        config: configuration of the template.
        queue_nums: number of queues requested by the client.
        enabled: ``autoCreateTopicEnable``; if off, ``TBW102`` cannot be used as a template.
    """
    if config is not None and config.perm & Perm.INHERIT and (enabled or template != AUTO_CREATE):
        queues = max(0, min(queue_nums, config.write_queue_nums))
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=config.perm & ~Perm.INHERIT,
            topic_filter_type=config.topic_filter_type,
        )
    if topic.startswith(RETRY_PREFIX):
        return TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
    return None


def compress(
    body: bytes, sys_flag: int = 0, *, kind: str = "zlib", level: int = COMPRESS_LEVEL, over: int = COMPRESS_FROM
) -> tuple[bytes, int]:
    """Return (body, system flag) as a producer sends them. Bodies of ``over`` bytes or more are compressed.

    Producers do not compress batches.

    Args:
        kind: ``zlib``, ``lz4`` or ``zstd``.
        level: 0 to 9.
    """
    if len(body) < over:
        return body, sys_flag
    return _COMPRESS[kind](body, level), sys_flag & ~COMPRESSION_MASK | COMPRESSED | COMPRESSIONS[kind]


def _lz4(body: bytes, level: int) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(body, compression_level=level)
    return compressed


def _zstd(body: bytes, level: int) -> bytes:
    import zstandard

    compressed: bytes = zstandard.ZstdCompressor(level=level).compress(body)
    return compressed


_COMPRESS: dict[str, Callable[[bytes, int], bytes]] = {"zlib": zlib.compress, "lz4": _lz4, "zstd": _zstd}
