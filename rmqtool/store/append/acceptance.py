"""Check before a message is written that every later start of a broker will be able to read it.

Recovery truncates the log at the first record that its reader rejects. Lengths, CRC and topic are right by
construction. What remains are properties that the reader of some release parses as numbers
(CommitLog.checkMessageAndReturnSize and setBatchSizeIfNeeded), and those that dispatch in recovery parses
(ConsumeQueue.multiDispatchLmqQueue). A message is stored only if no release rejects it, whichever release the store
belongs to: the next start may be that of another one.

Source: store-engine 2.5, 4.2.
"""

from formats.message.properties import BATCH_NUMBERS, INNER, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, parse_raw
from formats.message.read import SCHEDULE_TOPIC, delay_property, is_java_int
from rmqtool.store.layout.paths import is_path_name

_INNER = INNER.encode()
_DISPATCH, _OFFSETS = MULTI_DISPATCH.encode(), MULTI_QUEUE_OFFSET.encode()
_MOST_OFFSET = (2**63 - 1) // 20  # the last entry that a queue has room for


def may_be_rejected(topic: bytes, properties: bytes) -> bool:
    """Whether :func:`find_objection` might find one; a quick test that rules out most messages."""
    return _INNER in properties or topic == SCHEDULE_TOPIC


def find_objection(topic: bytes, properties: bytes) -> str | None:
    """Why a start of 4.9 or 5.3 would fail to read a message; None if both can read it.

    Args:
        properties: in stored form.
    """
    if topic == SCHEDULE_TOPIC and (level := delay_property(properties)) is not None and not is_java_int(level):
        return f"delay level {_text(level)} is not a number: the next start would cut the log here"
    if _INNER not in properties:
        return None
    items = parse_raw(properties)
    for name, bits in BATCH_NUMBERS:
        if name in items and not is_java_int(items[name], bits):
            return f"{name.decode()} {_text(items[name])} is not a number: the next start of 5.3 would cut the log here"
    if _DISPATCH in items and _OFFSETS in items:
        for offset in items[_OFFSETS].split(b","):
            if not is_java_int(offset, 64) or not 0 <= int(offset) <= _MOST_OFFSET:
                return f"{MULTI_QUEUE_OFFSET} {_text(items[_OFFSETS])} holds no queue offsets: no start would pass it"
        for queue in items[_DISPATCH].decode("utf-8", "replace").split(","):
            if not names_a_directory(queue):
                return f"{MULTI_DISPATCH}: queue name {queue!r} cannot be a directory's name"
    return None


def names_a_directory(name: str) -> bool:
    """Whether a broker can create a queue directory of this name; it splits names at commas."""
    return is_path_name(name) and "," not in name


def _text(value: bytes) -> str:
    return repr(value[:80].decode("utf-8", "replace"))
