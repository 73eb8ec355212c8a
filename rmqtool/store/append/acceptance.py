"""Checks before a message is written that no later start of a broker fails to read it.

Recovery ends the log at the first record that its reader does not take, and everything behind it is cut. Lengths, CRC
and topic are right by construction. What is left are properties that the reader of one release or the other takes for
numbers (CommitLog.checkMessageAndReturnSize and setBatchSizeIfNeeded), and those that dispatch in recovery does
(ConsumeQueue.multiDispatchLmqQueue). A message is stored only where neither release stumbles, whichever the store is
of: the next start may be that of the other one.

Source: store-engine 2.5, 4.2.
"""

from formats.message.properties import BATCH_NUMBERS, INNER, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, parse_raw
from formats.message.read import SCHEDULE_TOPIC, delay_property, is_java_int
from rmqtool.store.layout.paths import is_path_name

_INNER = INNER.encode()
_DISPATCH, _OFFSETS = MULTI_DISPATCH.encode(), MULTI_QUEUE_OFFSET.encode()
_MOST_OFFSET = (2**63 - 1) // 20  # an entry behind it has no place in a queue


def needs_a_look(topic: bytes, properties: bytes) -> bool:
    """Whether there may be an :func:`objection`; a quick test that most messages pass."""
    return _INNER in properties or topic == SCHEDULE_TOPIC


def objection(topic: bytes, properties: bytes) -> str | None:
    """Why a start of 4.9 or 5.3 would stumble over a message; None where both read it.

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
    """Whether a broker can make a queue directory of this name: it takes one with a comma for several."""
    return is_path_name(name) and "," not in name


def _text(value: bytes) -> str:
    return repr(value[:80].decode("utf-8", "replace"))
