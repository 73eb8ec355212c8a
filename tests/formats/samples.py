"""One healthy sample of every file format, and a reader for each.

A reader accepts any bytes and calls everything that the codec offers for them. It may raise FormatError.
"""

from collections.abc import Callable
from typing import Any

from formats import checkpoint, index, marks
from formats.endings import UnitEnd
from formats.layouts.codes import STORE_V6
from formats.message import bodies, ids, properties
from formats.message import build as message_build
from formats.message import read as message
from formats.queues import batch as batch_consume_queue
from formats.queues import consume as consume_queue
from formats.queues import extension as consume_queue_ext
from formats.variants import compaction, dledger, epoch, timer
from tests.formats.building import dledger_entry, extension_file
from tests.formats.strategies import a_record


def _records(raw: bytes, *, crc: bool = True) -> list[message.Record]:
    collected, at = [], 0
    while isinstance(record := message.read(raw, at, len(raw), crc=crc), message.Record):
        collected.append(record)
        at += record.total_size
    assert record.reason
    assert at <= record.at <= len(raw)
    return collected


def _read_log(raw: bytes) -> Any:
    for record in _records(raw):
        message_build.pack(record)
        properties.parse(record.properties)
        bodies.decompress(record.body, record.sys_flag)
    return _records(raw, crc=False)


def _read_queue(raw: bytes) -> Any:
    array = consume_queue.as_array(raw)
    prefix = consume_queue.valid_prefix(array)
    entries = list(consume_queue.entries(raw))
    assert len(entries) == len(array)
    assert all(consume_queue.is_valid(*entry[:2]) for entry in entries[:prefix])
    for entry in entries:
        if consume_queue.is_ext_address(entry.tags_code):
            assert consume_queue.ext_address(consume_queue.real_offset(entry.tags_code)) == entry.tags_code
    return entries, prefix


def _read_ext(raw: bytes) -> Any:
    *units, (_, end) = consume_queue_ext.units(raw)
    assert isinstance(end, UnitEnd)
    return [unit.bit_map for _, unit in units]  # type: ignore[union-attr]


def _read_batch(raw: bytes) -> Any:
    *entries, (_, end) = batch_consume_queue.entries(raw)
    assert isinstance(end, UnitEnd)
    prefix = batch_consume_queue.valid_prefix(batch_consume_queue.as_array(raw))
    assert prefix == len(entries)
    return entries


def _read_index(raw: bytes) -> Any:
    header = index.read_header(raw)
    geometry = index.infer_geometry(raw)
    slots = geometry[0] if geometry else 3
    return header, [list(index.chain(raw, slots, slot)) for slot in range(slots)], index.entries_array(raw, slots)


def _read_timer_log(raw: bytes) -> Any:
    *units, (_, end) = timer.units(raw)
    assert isinstance(end, UnitEnd)
    return [unit.deliver_time for _, unit in units]  # type: ignore[union-attr]


def _read_wheel(raw: bytes) -> Any:
    return list(timer.slots(raw)), timer.read_slot(raw, timer.slot_index(1000))


def _read_dledger(raw: bytes) -> Any:
    at, collected = 0, []
    while isinstance(entry := dledger.read_entry(raw, at, len(raw)), dledger.DLedgerEntry):
        collected.append((entry, message.read(raw, at + dledger.HEAD_SIZE, at + entry.size)))
        at += entry.size
    return collected, dledger.kind_at(raw, at, len(raw))


def _read_text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda raw: parse(raw.decode("latin-1"))


_PLAIN = message_build.pack(a_record(physical_offset=0))
_WIDE = message_build.pack(a_record(physical_offset=176, born_address=bytes(16), store_address=bytes(16), version=2))
_SUMMED = message_build.append_crc(message_build.pack(a_record(sys_flag=STORE_V6, store_address=bytes(range(16)))))
_LOG = _PLAIN + _WIDE + _SUMMED + message_build.build_blank(40) + bytes(32)
_ENTRIES = [consume_queue.FILLER, (7, 176, -9), (183, 200, consume_queue.ext_address(22)), (383, 9, 1700000000000)]
_BATCHES = [batch_consume_queue.BatchEntry(0, 176, 7, 1700000000000, 41, 3), batch_consume_queue.END_UNIT]
_INDEX = index.build(
    index.Header(1700000000000, 1700000009000, 7, 183, 2, 4),
    [3, 0, 2],
    [index.IndexEntry(3, 7, 0, 0), index.IndexEntry(5, 7, 0, 0), index.IndexEntry(6, 183, 9, 1)],
    6,
)
_TIMER = b"".join(
    timer.build_unit(timer.LogUnit(52, previous, magic, 1700000000000, 30000, 7, 176, 99))
    for previous, magic in ((-1, timer.MAGIC_DEFAULT), (0, timer.MAGIC_ROLL))
)
_DLEDGER = dledger_entry(
    message_build.pack(a_record(physical_offset=48)), index=0, term=1, position=0
) + dledger.build_blank(20)

FILES: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "commitlog": (_LOG, _read_log),
    "consumequeue": (consume_queue.build(_ENTRIES) + bytes(40), _read_queue),
    "consumequeue_ext": (
        extension_file(
            [consume_queue_ext.build_unit(1, 2, b""), consume_queue_ext.build_unit(-3, 1700000000000, b"\x01\x02\x04")],
            80,
            ended=True,
        ),
        _read_ext,
    ),
    "batchconsumequeue": (batch_consume_queue.build([_BATCHES[0]]) * 2 + bytes(46), _read_batch),
    "index": (_INDEX, _read_index),
    "checkpoint": (checkpoint.build(checkpoint.Checkpoint(1, 2, 3, 4, 5))[:90], checkpoint.parse),
    "timerwheel": (timer.build_slot(timer.Slot(0, 52, 104, 2)) + bytes(32) + b"\x07" * 32, _read_wheel),
    "timerlog": (_TIMER + timer.build_blank(20) + bytes(4), _read_timer_log),
    "timercheck": (timer.build_checkpoint(timer.TimerCheckpoint(1, 2, 3))[:100], timer.parse_checkpoint),
    "dledger": (_DLEDGER + bytes(12), _read_dledger),
    "compactionlog": (compaction.move_record(_PLAIN, 5) + bytes(30), _read_log),
    "compactionqueue": (batch_consume_queue.build(_BATCHES) + bytes(20), _read_batch),
    "abort": (b"12345", marks.parse_abort),
    "lock": (b"lock", marks.is_lock),
    "epochFileCheckpoint": (epoch.build([epoch.Epoch(1, 0), epoch.Epoch(2, 4096)]), epoch.parse),
}
"""Every kind that can be explained too."""

OTHERS: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "dledger checkpoint": (b"endIndex=12\ncommittedIndex=11\n", dledger.parse_checkpoint),
    "dledger term": (b"currTerm=5\nvoteLeader=n0\n", dledger.parse_current_term),
    "record sum": (_SUMMED, message_build.verify_crc),
    "record to be summed": (_PLAIN, message_build.append_crc),
    "batch": (
        bodies.build_batch([bodies.BatchItem(1, b"hi", b"K\x01v"), bodies.BatchItem(2, b"", b"")]),
        lambda raw: list(bodies.batch_items(raw)),
    ),
    "properties": (b"KEYS\x01a b\x02UNIQ_KEY\x01x\x02", properties.parse),
    "offset id": (b"C633640700002A9F0000000040001000", _read_text(ids.parse_offset_id)),
    "unique id": (b"C000020A1A2B18B4AAC247B760000001", _read_text(lambda text: ids.parse_unique_id(text, 2**62))),
}
