"""Generator for the layouts that must be usable without importing construct.

``python -m formats.layouts.derive`` writes the module ``formats/layouts/derived.py`` to stdout; a test checks that the
committed module is up to date.
"""

import sys
import textwrap

from construct import Bytes, FormatField, Struct

from formats.layouts import dledger, index, marks, message, queues, remoting, rocksdb, tiered, timer
from formats.layouts.codes import BORN_V6, STORE_V6
from formats.layouts.docs import leaf_of

LAYOUTS: dict[str, tuple[str, Struct]] = {
    "HEAD_V4_V4": ("record head, both hosts IPv4", message.HEADS[0]),
    "HEAD_V6_V4": ("record head, born host IPv6", message.HEADS[BORN_V6]),
    "HEAD_V4_V6": ("record head, store host IPv6", message.HEADS[STORE_V6]),
    "HEAD_V6_V6": ("record head, both hosts IPv6", message.HEADS[BORN_V6 | STORE_V6]),
    "BLANK": ("end-of-file blank", message.BLANK),
    "BATCH_ITEM_HEAD": ("batch item head", message.BATCH_ITEM_HEAD),
    "CQ_ENTRY": ("consume-queue entry", queues.ENTRY),
    "CQ_EXT_HEAD": ("consume-queue extension unit head", queues.EXT_HEAD),
    "BATCH_CQ_ENTRY": ("batch-consume-queue entry", queues.BATCH_ENTRY),
    "ROCKS_TOPIC_HEAD": ("head of a key in RocksDB", rocksdb.TOPIC_HEAD),
    "ROCKS_UNIT_KEY_TAIL": ("key of a queue unit in RocksDB, after the topic", rocksdb.UNIT_KEY_TAIL),
    "ROCKS_UNIT": ("queue unit in RocksDB", rocksdb.UNIT),
    "ROCKS_OFFSET_KEY_TAIL": ("key of a queue's end in RocksDB, after the topic", rocksdb.OFFSET_KEY_TAIL),
    "ROCKS_OFFSET": ("queue's end in RocksDB", rocksdb.OFFSET),
    "ROCKS_BUILT": ("how far queues in RocksDB were built", rocksdb.BUILT),
    "POP_KEY_HEAD": ("head of a POP record's key in RocksDB", rocksdb.POP_KEY_HEAD),
    "POP_KEY_TAIL": ("key of a POP record in RocksDB, behind group and topic", rocksdb.POP_KEY_TAIL),
    "TIMELINE_KEY_HEAD": ("head of a timer message's key in RocksDB", rocksdb.TIMELINE_KEY_HEAD),
    "TIMELINE_VALUE": ("timer message in RocksDB", rocksdb.TIMELINE_VALUE),
    "HALF_KEY_HEAD": ("head of a half message's key in RocksDB", rocksdb.HALF_KEY_HEAD),
    "HALF_VALUE": ("half message in RocksDB", rocksdb.HALF_VALUE),
    "KEY_HOUR": ("head of an index key in RocksDB", rocksdb.KEY_HOUR),
    "KEY_TAIL": ("tail of an index key in RocksDB", rocksdb.KEY_TAIL),
    "POSITION": ("how far a database has come", rocksdb.POSITION),
    "CONFIG_HEAD": ("head of a configuration key in RocksDB", rocksdb.CONFIG_HEAD),
    "CONFIG_NAME": ("length of a name in a configuration key", rocksdb.CONFIG_NAME),
    "CONFIG_QUEUE": ("queue at the end of a configuration key", rocksdb.CONFIG_QUEUE),
    "CONFIG_OFFSET": ("consumer offset in RocksDB", rocksdb.CONFIG_OFFSET),
    "CONFIG_VERSION": ("data version in RocksDB", rocksdb.CONFIG_VERSION),
    "INDEX_HEADER": ("index header", index.HEADER),
    "INDEX_SLOT": ("index hash slot", index.SLOT),
    "INDEX_ENTRY": ("index entry", index.ENTRY),
    "CHECKPOINT_HEAD": ("checkpoint", marks.CHECKPOINT_HEAD),
    "TIMER_SLOT": ("timer-wheel slot", timer.SLOT),
    "TIMER_LOG_UNIT": ("timer-log unit", timer.LOG_UNIT),
    "TIMER_LOG_BLANK": ("timer-log blank", timer.LOG_BLANK),
    "TIMER_CHECKPOINT": ("timer checkpoint", timer.CHECKPOINT),
    "DLEDGER_ENTRY_HEAD": ("DLedger entry header", dledger.ENTRY_HEAD),
    "DLEDGER_BLANK": ("DLedger end-of-file blank", dledger.BLANK),
    "DLEDGER_INDEX_UNIT": ("DLedger index unit", dledger.INDEX_UNIT),
    "TIERED_INDEX_HEAD": ("header of an uploaded index segment", tiered.INDEX_HEAD),
    "TIERED_INDEX_SLOT": ("hash slot of an uploaded index segment", tiered.INDEX_SLOT),
    "TIERED_INDEX_ITEM": ("item of an uploaded index segment", tiered.INDEX_ITEM),
    "TIERED_LOCAL_INDEX_ITEM": ("item of a local index file of the tier", tiered.LOCAL_INDEX_ITEM),
    "FRAME_HEAD": ("remoting frame head", remoting.FRAME_HEAD),
    "REMOTING_HEAD": ("binary remoting header", remoting.BINARY_HEAD),
}

_WIDTH = 120
_HEADER = '''"""Fixed-size layouts ready to scan. Written by ``python -m formats.layouts.derive``; do not edit."""

from formats.layouts.flat import Flat
'''


def flat_fields(layout: Struct) -> tuple[tuple[str, str], ...]:
    """Return (name, struct code) of each field of a flat, fixed-size, big-endian construct layout.

    Raises:
        TypeError: a field has no fixed-width counterpart.
    """
    fields = []
    for named in layout.subcons:
        leaf = leaf_of(named)
        if named.name and isinstance(leaf, FormatField) and leaf.fmtstr in (">b", ">h", ">l", ">q"):
            # by width, not by letter: construct's ">l" is 4 bytes
            fields.append((named.name, {8: "q", 4: "i", 2: "h", 1: "b"}[leaf.length]))
        elif named.name and isinstance(leaf, Bytes) and isinstance(leaf.length, int):
            fields.append((named.name, f"{leaf.length}s"))
        else:
            raise TypeError(f"{named!r} has no fixed-width counterpart")
    return tuple(fields)


def source() -> str:
    """Return the source of ``formats/layouts/derived.py``."""
    parts = [_HEADER]
    for variable, (name, layout) in LAYOUTS.items():
        fields = " ".join(f"{field}:{code}" for field, code in flat_fields(layout))
        line = f'\n{variable} = Flat("{name}", "{fields}")'
        if len(line) > _WIDTH:  # as ruff formats it
            lines = textwrap.wrap(fields, _WIDTH - len('    " "'))
            body = "".join(f'\n    "{part} "' for part in lines[:-1]) + f'\n    "{lines[-1]}"'
            line = f'\n{variable} = Flat(\n    "{name}",{body},\n)'
        parts.append(line)
    return "".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(source())
