"""Reads a piece of a plan as Arrow record batches."""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace

import pyarrow as pa

from rmqtool.analytics.bodies.columns import BodyColumns
from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.ranges.beginning import exact
from rmqtool.analytics.ranges.splits import Split
from rmqtool.analytics.remote.meter import METER
from rmqtool.analytics.source.filter import Wanted
from rmqtool.analytics.source.plan import Piece, ReadRequest, pieces
from rmqtool.analytics.source.tables import SCHEMAS, rows_of
from rmqtool.analytics.table.arrays import repeat
from rmqtool.analytics.table.arrow import BATCH_BYTES, MessageChoice, SplitTally, batches
from rmqtool.analytics.table.schema import BROKER
from rmqtool.store.disk.mapping import need_all
from rmqtool.store.disk.segments import Segment

_ROWS = 1 << 16


@dataclass(slots=True)
class Counters:
    """Cost and outcome of reading.

    Attributes:
        rows: rows returned.
        bytesRead: bytes of the commit log, and of index and queues used to find messages.
        bytesFetched: all bytes fetched from remote stores.
        damaged: damaged ranges of the log.
    """

    rows: int = 0
    bytesRead: int = 0
    bytesFetched: int = 0
    damaged: int = 0
    damagedBytes: int = 0
    notDecompressed: int = 0

    def add(self, tally: SplitTally) -> None:
        """Add the tally of a split."""
        self.bytesRead += tally.bytes
        self.damaged += tally.damaged
        self.damagedBytes += tally.damaged_bytes
        self.notDecompressed += tally.not_decompressed

    def merge(self, other: "Counters") -> None:
        """Add the counters of another reader."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def save(self, folder: str) -> None:
        """Save the counters in a directory, for :func:`sum_counters`."""
        path = os.path.join(folder, uuid.uuid4().hex)
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
        os.rename(path + ".part", path + ".json")


def sum_counters(folder: str) -> Counters:
    """Return the sum of all counters in a directory. A task that ran twice counts twice."""
    total = Counters()
    for name in os.listdir(folder):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                total.merge(Counters(**json.load(file)))
    return total


def plan_pieces(request: ReadRequest, wanted: Wanted) -> tuple[list[Piece], Counters]:
    """Return :func:`rmqtool.analytics.source.plan.pieces` and the cost of planning."""
    fetched = METER.bytes
    planned, bytes_read = pieces(request, wanted)
    return planned, Counters(bytesRead=bytes_read, bytesFetched=METER.bytes - fetched)


def read_piece(
    piece: Piece, columns: Sequence[str], counters: Counters, bodies: TableSchema | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the piece's table with these columns; types are those in :data:`SCHEMAS`.

    Args:
        bodies: the schema of bodies, for the columns that it adds.

    Raises:
        UnreadableStore: a file cannot be read.
    """
    added = BodyColumns(bodies if piece.table == "messages" else None, columns)
    yield from added.add(_read_piece(piece, added.needed, counters))


def _read_piece(piece: Piece, columns: Sequence[str], counters: Counters) -> Iterator[pa.RecordBatch]:
    own = [name for name in columns if name != BROKER.name]
    schema = pa.schema([SCHEMAS[piece.table].field(name) for name in columns])
    batches = _messages(piece, own or ["queueId"], counters) if piece.table == "messages" else _others(piece, own)
    fetched = METER.bytes
    for batch in batches:
        counters.rows += batch.num_rows
        arrays = [
            repeat(piece.store.broker.encode("utf-8", "replace").decode(), batch.num_rows)
            if name == BROKER.name
            else batch.column(name)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    counters.bytesFetched += METER.bytes - fetched


def _others(piece: Piece, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in rows_of(piece.table, piece.store, piece.part):
        yield batch.select(columns) if columns else batch


def _messages(piece: Piece, columns: list[str], counters: Counters) -> Iterator[pa.RecordBatch]:
    for split, ranges in zip(piece.splits, piece.ranges, strict=True):
        tally = SplitTally()
        if ranges is None:
            start, looked = exact(split, piece.store.layout)
            counters.bytesRead += looked
            if start.start < start.stop:
                yield from batches(start, piece.choice, tally, columns=columns, compiled=True)
        else:
            file = split.segment()
            need_all(file.map(), ranges.tolist())
            parts = (replace(split, start=int(first), stop=int(last), last=False) for first, last in ranges)
            yield from _gather(parts, file, piece.choice, tally, columns)
            file.release()
        counters.add(tally)


def _gather(
    splits: Iterator[Split], file: Segment, choice: MessageChoice, tally: SplitTally, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Combine the rows of many small splits into batches of reasonable size."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for split in splits:
        for batch in batches(split, choice, tally, columns=columns, file=file):
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if size >= BATCH_BYTES or rows >= _ROWS:
            yield pa.concat_batches(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_batches(pending)
