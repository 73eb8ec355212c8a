"""Overwrite messages in the bytes of a record: body, values of properties, checksums."""

from collections.abc import Sequence
from typing import NamedTuple

from formats.layouts.derived import BATCH_ITEM_HEAD, DLEDGER_ENTRY_HEAD, HEAD_V4_V4
from formats.message.bodies import BatchSpan
from formats.message.build import verify_crc
from formats.message.properties import CRC32_NAME, CRC32_SIZE, NAME_END, crc_property
from formats.message.read import Record
from formats.primitives import COMPRESSED, COMPRESSION_MASK, crc31
from formats.variants.dledger import HEAD_SIZE, DLedgerEntry, read_entry
from rmqtool.errors import Refused
from rmqtool.store.log.commit_log import LocatedRecord
from rmqtool.store.log.records import is_entries

FILL = b"*"


class Patch(NamedTuple):
    """Bytes to write into a file."""

    at: int
    data: bytes


class Choice(NamedTuple):
    """A message to overwrite."""

    message: LocatedRecord
    span: BatchSpan | None  # where it is in the body of a batch


def overwrite(
    item: LocatedRecord, chosen: Sequence[Choice], properties: Sequence[str], *, copied: bool
) -> tuple[list[Patch], list[tuple[LocatedRecord, list[str]]]]:
    """What to write into a record, and the messages concerned, each with the names of properties that are overwritten;
    empty if all are overwritten already.

    Args:
        item: the record, with all messages of a batch.
        chosen: those to overwrite.
        properties: names of those whose values are overwritten.
        copied: whether the record is a copy at another position than the first one, which its own checksum is not for.

    Raises:
        Refused: the record, or the DLedger entry around it, has a form that is unknown.
    """
    record = item.record
    packed = bytearray(item.file.read(item.at, record.total_size))
    before = bytes(packed)
    body_at, properties_at = _body_at(before, record), record.total_size - len(record.properties)
    rows = []
    for message, span in chosen:
        was = bytes(packed)
        if span is None:
            packed[body_at : body_at + record.body_length] = FILL * record.body_length
            names = _fill_properties(packed, properties_at, record.properties, properties)
        else:
            _fill_inner_body(packed, body_at + span.body_at, span.body_length)
            names = _fill_properties(packed, body_at + span.properties_at, message.record.properties, properties)
            _fill_properties(packed, properties_at, record.properties, properties)
        if packed != was or record.sys_flag & COMPRESSED:
            rows.append((message, names))
    if record.sys_flag & COMPRESSED:
        _put(packed, "sys_flag", record.sys_flag & ~(COMPRESSED | COMPRESSION_MASK))
    if record.body_crc and record.body_length:
        _put(packed, "body_crc", crc31(bytes(packed[body_at : body_at + record.body_length])))
    if packed != before and (checked := verify_crc(before)) is not None and (checked or copied):
        if not packed[-CRC32_SIZE:].startswith(CRC32_NAME):
            raise Refused(f"physical offset {item.physical_offset}: its checksum is not at its end")
        packed[-CRC32_SIZE:] = crc_property(crc31(bytes(packed[:-CRC32_SIZE])))
    if packed == before:
        return [], []
    patches = [Patch(item.at, bytes(packed)), *_entry_patches(item, before, bytes(packed))]
    return patches, rows or [(choice.message, []) for choice in chosen]


def _entry_patches(item: LocatedRecord, before: bytes, after: bytes) -> list[Patch]:
    """What to write into the header of the DLedger entry around a record: releases up to 5.5 leave its checksums 0."""
    if not is_entries(item.file.map()):
        return []
    head_at = item.at - HEAD_SIZE
    entry = read_entry(item.file.map(), head_at, item.file.size)
    if not isinstance(entry, DLedgerEntry) or entry.chain_crc or entry.body_crc not in (0, crc31(before)):
        raise Refused(
            f"{item.file.path}: byte {head_at}: the checksums of this DLedger entry are not understood: it cannot be "
            "overwritten"
        )
    if not entry.body_crc:
        return []
    return [Patch(head_at + DLEDGER_ENTRY_HEAD.offsets["body_crc"], crc31(after).to_bytes(4, "big"))]


def _fill_inner_body(packed: bytearray, at: int, length: int) -> None:
    """Overwrite the body of a message of a batch, and its checksum, which clients leave 0."""
    packed[at : at + length] = FILL * length
    crc_at = at - BATCH_ITEM_HEAD.size + BATCH_ITEM_HEAD.offsets["body_crc"]
    if any(packed[crc_at : crc_at + 4]):
        packed[crc_at : crc_at + 4] = crc31(FILL * length).to_bytes(4, "big", signed=True)


def _fill_properties(packed: bytearray, at: int, content: bytes, properties: Sequence[str]) -> list[str]:
    """Overwrite the values of properties, which begin at a byte; returns the names of those that were not yet."""
    names = []
    for part in content.split(b"\x02"):
        name, _separator, value = part.partition(bytes([NAME_END]))
        if name.decode("utf-8", "replace") in properties and value.strip(FILL):
            start = at + len(name) + 1
            packed[start : start + len(value)] = FILL * len(value)
            names.append(name.decode("utf-8", "replace"))
        at += len(part) + 1
    return names


def _put(packed: bytearray, name: str, value: int) -> None:
    """Write a field of a record's head, whose offset is the same in every version."""
    at = HEAD_V4_V4.offsets[name]
    packed[at : at + 4] = value.to_bytes(4, "big", signed=True)


def _body_at(packed: bytes, record: Record) -> int:
    """Where the body is in a record: before the topic, whose length has one or two bytes."""
    for size in (1, 2):
        at = record.total_size - len(record.properties) - 2 - len(record.topic) - size - record.body_length
        length = packed[at + record.body_length : at + record.body_length + size]
        body_length = int.from_bytes(packed[at - 4 : at], "big")
        if (int.from_bytes(length, "big"), body_length) == (len(record.topic), record.body_length):
            return at
    raise Refused(f"physical offset {record.physical_offset}: a record of unknown form: it cannot be overwritten")
