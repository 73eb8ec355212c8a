"""Explain files made of small units: queues, index, timer files, checkpoints."""

from collections.abc import Callable, Iterator
from typing import Any

from construct import Struct

from formats import index
from formats.endings import Ending
from formats.explain.spans import Note, Span, rest, time_note, utc_text, walk, zero_end
from formats.layouts import index as index_layouts
from formats.layouts import marks, queues
from formats.layouts import timer as timer_layouts
from formats.queues import batch as batch_consume_queue
from formats.queues import consume as consume_queue
from formats.queues import extension as consume_queue_ext
from formats.variants import timer


def _rows(
    layout: Struct,
    buf: bytes | memoryview,
    base: int,
    unit: str,
    notes: dict[str, Note],
    check: Callable[[int], str] = lambda _at: "",
) -> Iterator[Span]:
    """Spans of equal-sized units that fill a file; runs of zero units become one span.

    Args:
        base: position in the file of the buffer's beginning; units are numbered from the file's beginning.
        check: returns a remark about the unit at a position, shown before the first field's own note.
    """
    size, at, limit = layout.sizeof(), 0, len(buf)
    if base % size and limit:
        at = min(size - base % size, limit)
        yield Span(0, at, f"{unit}[{base // size}]", None, "the end of a unit that begins before this region")
    while at < limit:
        zeros = (zero_end(buf, at, limit) - at) // size * size
        if zeros:
            yield Span(at, at + zeros, "unwritten", None, f"zero bytes, {zeros // size} units")
            at += zeros
            continue
        fields = walk(layout, buf, at, limit, f"{unit}[{(base + at) // size}]", notes)
        remark = check(at) if limit - at >= size else ""
        for span in fields:
            yield span._replace(note=f"{remark} {span.note}".strip())
            at, remark = span.end, ""


def consume_queue_spans(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """Spans of a queue file; ``base`` is the byte offset in the queue, for numbering units by queue offset."""

    def check(at: int) -> str:
        entry = consume_queue.read(buf, at)
        if entry == consume_queue.FILLER:
            return "filler before the queue's first entry"
        return "" if consume_queue.is_valid(entry.physical_offset, entry.size) else "not valid: ends the queue"

    return _rows(queues.ENTRY, buf, base, "entry", {"tags_code": _tags_note}, check)


def batch_queue_spans(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """Spans of a batch-consume-queue or compaction-queue file."""

    def check(at: int) -> str:
        entry = batch_consume_queue.read(buf, at, len(buf))
        return entry.reason if not isinstance(entry, batch_consume_queue.BatchEntry) else ""

    return _rows(queues.BATCH_ENTRY, buf, base, "entry", {"store_timestamp": time_note}, check)


def ext_spans(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """Spans of an extension file from its beginning; ``base`` is the file's offset in the extension."""
    limit = len(buf)
    for number, (at, unit) in enumerate(consume_queue_ext.units(buf)):
        path = f"unit[{number}]"
        if isinstance(unit, consume_queue_ext.ExtensionUnit):
            address = consume_queue.ext_address(base + at)
            spans = walk(queues.EXT_UNIT, buf, at, limit, path, {"store_timestamp": time_note})
            yield from _with_remark(spans, f"address {address}")
        elif unit.ending is Ending.FILLER:
            end = at + len(consume_queue_ext.END_MARK)
            yield Span(at, end, "end_mark", -1, "the next file goes on")
            yield from rest(buf, end, limit, "after_end_mark", "not used")
        elif unit.ending is Ending.DAMAGED:
            spans = walk(queues.EXT_HEAD, buf, at, limit, path)
            behind = yield from _with_remark(spans, f"damaged: {unit.reason}")
            yield from rest(buf, behind, limit, "damaged", "after a damaged unit")
        else:
            name = "cut" if unit.ending is Ending.CUT else "damaged"
            yield from rest(buf, at, limit, name, unit.reason)


def checkpoint_spans(buf: bytes | memoryview, _base: int = 0) -> Iterator[Span]:
    """Spans of the store checkpoint."""
    times = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
    at = yield from walk(marks.CHECKPOINT_HEAD, buf, 0, len(buf), "checkpoint", dict.fromkeys(times, time_note))
    yield from rest(buf, at, len(buf), "rest", "not read by any version")


def timer_checkpoint_spans(buf: bytes | memoryview, _base: int = 0) -> Iterator[Span]:
    """Spans of ``config/timercheck``."""
    times = ("last_read_time", "version_timestamp")
    at = yield from walk(timer_layouts.CHECKPOINT, buf, 0, len(buf), "timercheck", dict.fromkeys(times, time_note))
    yield from rest(buf, at, len(buf), "rest", "not read by any version")


def timer_wheel_spans(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """Spans of the timer wheel. Times are shown for the default precision of one second."""
    notes: dict[str, Note] = {"time": lambda value, _fields: utc_text(value * 1000)}
    return _rows(timer_layouts.SLOT, buf, base, "slot", notes)


def timer_log_spans(buf: bytes | memoryview, _base: int = 0) -> Iterator[Span]:
    """Spans of a timer-log file from its beginning."""
    limit = len(buf)
    for number, (at, unit) in enumerate(timer.units(buf)):
        path = f"unit[{number}]"
        if isinstance(unit, timer.LogUnit):
            yield from walk(timer_layouts.LOG_UNIT, buf, at, limit, path, _TIMER_NOTES)
        elif unit.ending is Ending.FILLER:
            behind = yield from walk(timer_layouts.LOG_BLANK, buf, at, limit, "blank")
            yield from rest(buf, behind, limit, "after_blank", "not read by anything")
        elif unit.ending is Ending.DAMAGED:
            spans = walk(timer_layouts.LOG_UNIT, buf, at, limit, path, _TIMER_NOTES)
            behind = yield from _with_remark(spans, f"damaged: {unit.reason}")
            yield from rest(buf, behind, limit, "damaged", "after a damaged unit")
        else:
            yield from rest(buf, at, limit, "cut" if unit.ending is Ending.CUT else "damaged", unit.reason)


def index_spans(buf: bytes | memoryview, _base: int = 0, slots: int | None = None) -> Iterator[Span]:
    """Spans of a whole index file.

    Args:
        slots: number of hash slots; by default inferred from the contents.
    """
    limit = len(buf)
    at = yield from walk(index_layouts.HEADER, buf, 0, limit, "header", _HEADER_NOTES)
    if at >= limit:
        return
    if slots is None:
        geometry = index.infer_geometry(buf)
        slots = geometry[0] if geometry else None
    if slots is None or slots < 1:
        yield from rest(buf, at, limit, "slots_and_entries", "the number of slots is not known")
        return
    header = index.read_header(buf)
    slots_end = min(index.slot_at(slots), limit)
    yield from _index_slots(buf, at, slots_end, header.next_number)
    at, number = slots_end, 0
    while at < limit:
        zeros = (zero_end(buf, at, limit) - at) // index.ENTRY_SIZE
        if zeros and (number == 0 or number >= header.next_number):
            run = 1 if number == 0 else zeros
            yield Span(at, at + run * index.ENTRY_SIZE, "unwritten", None, f"entries {number} to {number + run - 1}")
            at, number = at + run * index.ENTRY_SIZE, number + run
            continue
        spans = walk(index_layouts.ENTRY, buf, at, limit, f"entry[{number}]", _entry_notes(header, slots))
        uncounted = number >= header.next_number or number == 0
        at = yield from _with_remark(spans, "not counted by the header" if uncounted else "")
        number += 1


def _index_slots(buf: bytes | memoryview, at: int, end: int, count: int) -> Iterator[Span]:
    notes: dict[str, Note] = {"newest_entry": lambda v, _fields: "" if 0 <= v <= count else "no such entry"}
    while at < end:
        slot = (at - index.HEADER_SIZE) // index.SLOT_SIZE
        empty = (zero_end(buf, at, end) - at) // index.SLOT_SIZE
        if empty:
            yield Span(at, at + empty * index.SLOT_SIZE, "empty_slots", None, f"slots {slot} to {slot + empty - 1}")
            at += empty * index.SLOT_SIZE
        else:
            at = yield from walk(index_layouts.SLOT, buf, at, end, f"slot[{slot}]", notes)


def _entry_notes(header: index.Header, slots: int) -> dict[str, Note]:
    return {
        "key_hash": lambda value, _fields: f"slot {value % slots}",
        "seconds": lambda value, _fields: utc_text(header.begin_timestamp + 1000 * value),
    }


def _with_remark(spans: Any, note: str) -> Any:
    """Prepend a remark to the first span's note; returns what the generator returns."""
    try:
        first = next(spans)
    except StopIteration as stop:
        return stop.value
    yield first._replace(note=f"{note} {first.note}".strip())
    return (yield from spans)


def _tags_note(value: int, _fields: Any) -> str:
    if consume_queue.is_ext_address(value):
        return f"extension byte {consume_queue.real_offset(value)}"
    return "" if -(2**31) <= value < 2**31 else f"deliver time {utc_text(value)}"


_TIMER_MAGICS = {timer.MAGIC_DEFAULT: "default", timer.MAGIC_ROLL: "roll", timer.MAGIC_DELETE: "delete"}


def _timer_magic_note(value: int, _fields: Any) -> str:
    return " ".join(name for bit, name in _TIMER_MAGICS.items() if value & bit)


_TIMER_NOTES: dict[str, Note] = {
    "magic": _timer_magic_note,
    "write_time": time_note,
    "delay": lambda value, fields: f"delivers {utc_text(fields.write_time + value)}",
}
_HEADER_NOTES: dict[str, Note] = {"begin_timestamp": time_note, "end_timestamp": time_note}
