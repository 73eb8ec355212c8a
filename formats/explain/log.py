"""Explain files made of records: commit log, compaction log, DLedger data.

Damage does not stop an explanation: it continues at the next intact record.
"""

import re
from collections.abc import Iterator
from typing import Any

from formats.endings import Ending
from formats.explain.spans import Note, Span, rest, time_note, walk, zero_end
from formats.layouts import dledger as dledger_layouts
from formats.layouts import message as layouts
from formats.layouts.codes import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from formats.message import bodies, properties
from formats.message.read import End, Record, read
from formats.primitives import address_text, crc31, flag_names
from formats.variants import dledger

_MAGICS = re.compile(b"|".join(re.escape(m.to_bytes(4, "big", signed=True)) for m in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)))
_RECORD_MAGICS = (MAGIC_V1, MAGIC_V2)
_SYS_FLAG_END = 40  # bytes of a record up to and including its sys_flag, which determines the rest of the layout


def explain(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """Spans of a commit-log or compaction-log region at physical offset ``base``."""
    at, limit, number = 0, len(buf), 0
    while at < limit:
        item = read(buf, at, limit)
        if isinstance(item, Record):
            at = yield from _record(buf, at, at + item.total_size, base, f"record[{number}]")
            number += 1
        elif item.ending is Ending.FILLER:
            at = yield from walk(layouts.BLANK, buf, at, limit, "blank", _BLANK_NOTES)
            yield from rest(buf, at, limit, "after_blank", "not read by anything: may be stale")
            return
        elif item.ending is Ending.UNWRITTEN:
            # the size of a record also begins with zero bytes
            end = min(zero_end(buf, at, limit), next_start(buf, at + 1, limit))
            yield Span(at, end, "unwritten", None, "zero bytes")
            at = end
        else:
            at = yield from _damage(buf, at, limit, base, f"record[{number}]", item)
            number += 1


def next_start(buf: bytes | memoryview, at: int, limit: int) -> int:
    """Start of the next record with consistent lengths at or after ``at``, or of the file's blank; else ``limit``."""
    for magic in _MAGICS.finditer(buf, at + 4, limit):
        start = magic.start() - 4
        item = read(buf, start, limit, crc=False)
        if isinstance(item, Record):
            return start
        room = int.from_bytes(buf[start : start + 4], "big")
        if item.ending is Ending.FILLER and room == limit - start:
            return start
    return limit


def explain_dledger(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """Spans of a DLedger data region at position ``base``: entries, each with a record."""
    at, limit, number = 0, len(buf), 0
    while at < limit:
        if dledger.kind_at(buf, at, limit) in ("record", "record-blank"):
            yield from _shift(explain(memoryview(buf)[at:], base + at), at)
            return
        entry = dledger.read_entry(buf, at, limit)
        unit = f"entry[{number}]"
        if isinstance(entry, dledger.DLedgerEntry):
            notes: dict[str, Note] = {"position": _position_note(base + at)}
            body_at = yield from walk(dledger_layouts.ENTRY_HEAD, buf, at, limit, unit, notes)
            end = at + entry.size
            if isinstance(read(buf, body_at, end), Record):
                body_at = yield from _record(buf, body_at, end, base, f"{unit}.record")
            if body_at < end:
                yield Span(body_at, end, f"{unit}.body", None, "no record")
            at, number = end, number + 1
        elif entry.ending is Ending.FILLER:
            at = yield from walk(dledger_layouts.BLANK, buf, at, limit, "blank")
            yield from rest(buf, at, limit, "after_blank", "not read by anything")
            return
        else:
            name = "cut" if entry.ending is Ending.CUT else "damaged"
            yield from rest(buf, at, limit, name, entry.reason)
            return


def _shift(spans: Iterator[Span], by: int) -> Iterator[Span]:
    return (span._replace(start=span.start + by, end=span.end + by) for span in spans)


def _record(buf: bytes | memoryview, at: int, limit: int, base: int, unit: str) -> Any:
    """Spans of the record at ``at``, which ends at ``limit``; returns the position after it."""
    if limit - at < _SYS_FLAG_END:
        layout = layouts.HEADS[0]
    else:
        magic = int.from_bytes(buf[at + 4 : at + 8], "big", signed=True)
        layout = layouts.record(int.from_bytes(buf[at + 36 : at + 40], "big"), magic)
    notes = _RECORD_NOTES | {"physical_offset": _position_note(base + at)}
    end = yield from walk(layout, buf, at, limit, unit, notes, {"properties": _properties})
    return end


def _damage(buf: bytes | memoryview, at: int, limit: int, base: int, unit: str, end: End) -> Any:
    """Spans of damage up to the next intact record; returns where that begins."""
    whole = read(buf, at, limit, crc=False)
    if isinstance(whole, Record):  # lengths agree, the body's checksum does not
        following = yield from _record(buf, at, at + whole.total_size, base, unit)
        return following
    following = next_start(buf, at + 1, limit)
    size, magic = int.from_bytes(buf[at : at + 4], "big"), int.from_bytes(buf[at + 4 : at + 8], "big", signed=True)
    first = True
    if following - at >= 8 and (magic in _RECORD_MAGICS or size == following - at):
        for span in _record(buf, at, following, base, unit):
            yield span._replace(note=f"damaged: {end.reason}") if first else span
            at, first = span.end, False
    name = "cut" if end.ending is Ending.CUT else "damaged"
    yield from rest(buf, at, following, name, end.reason if first else "after the fields of a damaged record")
    return following


def _position_note(expected: int) -> Note:
    return lambda value, _fields: "" if value == expected else f"it lies at {expected}"


def _magic_note(value: int, _fields: Any) -> str:
    names = {MAGIC_V1: "version 1", MAGIC_V2: "version 2", MAGIC_BLANK: "end-of-file blank"}
    return f"0x{value & 0xFFFFFFFF:08X} {names.get(value, 'unknown')}"


def _flag_note(value: int, _fields: Any) -> str:
    return " ".join([f"0x{value & 0xFFFFFFFF:X}", *flag_names(value)])


def _address_note(value: bytes, _fields: Any) -> str:
    return address_text(value)


def _body_note(value: bytes, fields: Any) -> str:
    actual, kind = crc31(value), bodies.compression(fields.sys_flag)
    agrees = "CRC agrees" if actual == fields.body_crc else f"its CRC is 0x{actual:08X}"
    return ", ".join([f"{len(value)} bytes", *([kind] if kind else []), agrees])


def _text_note(value: bytes, _fields: Any) -> str:
    return value.decode("utf-8", "replace")


def _properties(raw: bytes, at: int, path: str) -> Iterator[Span]:
    """Spans of single properties, each with the separator after it."""
    last = properties.parse_raw(raw)
    seen = 0
    while seen < len(raw):
        end = raw.find(b"\x02", seen)
        following = len(raw) if end < 0 else end + 1
        item = raw[seen : len(raw) if end < 0 else end]
        name, _, value = item.partition(b"\x01")
        if not name or not value:
            note = "ignored: no name or no value"
        elif last[name] != value:
            note = f"{value.decode('utf-8', 'replace')} (a later one of this name counts)"
        else:
            note = value.decode("utf-8", "replace")
        yield Span(at + seen, at + following, f"{path}.{name.decode('utf-8', 'replace')}", item, note)
        seen = following


_RECORD_NOTES: dict[str, Note] = {
    "magic": _magic_note,
    "body_crc": lambda value, _fields: f"0x{value & 0xFFFFFFFF:08X}",
    "sys_flag": _flag_note,
    "born_timestamp": time_note,
    "born_address": _address_note,
    "store_timestamp": time_note,
    "store_address": _address_note,
    "body": _body_note,
    "topic": _text_note,
}
_BLANK_NOTES: dict[str, Note] = {"magic": _magic_note}
