"""Rows of small partitions, put aside by the tasks that read the log, so that each partition becomes one file.

A log of many topics has some rows of each of them in every split. A file for each split and topic would cost far
more than its rows do. Such rows are written to spill files instead, ordered by a hash of their partition, and once all
splits are read, each task takes a range of hashes from all spill files: all rows of its partitions, and no more than
fit memory.
"""

import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtool.analytics.dump.names import SPILL
from rmqtool.analytics.dump.partitions import Key, Partitioned
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.analytics.table.views import plain

HASHES = 1 << 32
_HASH = "hash"  # a column beside the others
_SCHEMA = MESSAGE_SCHEMA.append(pa.field(_HASH, pa.uint32(), nullable=False))
_NAME = re.compile(re.escape(SPILL) + r"/_[0-9a-f]{32}\.arrow")


@dataclass(frozen=True, slots=True)
class Spill:
    """A spill file.

    Attributes:
        path: relative to the staging.
        bytes: of the file.
        first: hash of the first row of each batch in it; they never fall.
        sizes: bytes of Arrow memory of each batch.
    """

    path: str
    bytes: int
    first: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def from_dict(cls, value: Any) -> "Spill":
        """What ``asdict`` gave.

        Raises:
            ValueError: it is something else.
        """
        spill = cls(value["path"], value["bytes"], tuple(value["first"]), tuple(value["sizes"]))
        numbers = (spill.bytes, *spill.first, *spill.sizes)
        if not isinstance(spill.path, str) or not _NAME.fullmatch(spill.path):
            raise ValueError("not the name of a spill file")
        if any(type(number) is not int or number < 0 for number in numbers) or len(spill.first) != len(spill.sizes):
            raise ValueError("no spill file")
        return spill

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Merge:
    """A task: the partitions with hashes in [start, stop), from all spill files.

    Attributes:
        number: of this task.
        offset: physical offset at which the first split that has spill files begins; files are named by it.
        spills: in the order of the log.
    """

    number: int
    start: int
    stop: int
    offset: int
    spills: tuple[Spill, ...]


def hash_of(key: Key) -> int:
    """A number below :data:`HASHES`, the same in all processes."""
    return zlib.crc32("\0".join("" if value is None else value for value in key).encode("utf-8", "surrogatepass"))


def write_spill(folder: Folder, found: Partitioned, codec: str = "lz4") -> Spill:
    """Write the rows that were left in a batch, ordered by hash, those of a partition in the order that they have.

    The file outlasts a power cut once it has its name.
    """
    name = uuid.uuid4().hex
    path, temporary = f"{SPILL}/_{name}.arrow", f"{SPILL}/_{name}.part"
    first: list[int] = []
    sizes: list[int] = []
    folder.make(SPILL)
    try:
        with folder.fs.open_output_stream(folder.full(temporary)) as stream:
            options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
            with pa.ipc.new_file(stream, _SCHEMA, options=options) as writer:
                for rows, hashes in found.left_by(hash_of):
                    batch = pa.RecordBatch.from_arrays(
                        [*plain(rows).columns, pa.array(hashes.astype(np.uint32))], schema=_SCHEMA
                    )
                    writer.write_batch(batch)
                    first.append(int(hashes[0]))
                    sizes.append(int(batch.nbytes))
        folder.sync(temporary)
        folder.move(temporary, path)
    except BaseException:
        with suppress(OSError):
            folder.delete(temporary)
        raise
    return Spill(path, folder.size(path) or 0, tuple(first), tuple(sizes))


def merges(spills: Sequence[Spill], offset: int, most_bytes: int) -> list[Merge]:
    """Tasks that take about as much Arrow memory as they may.

    Args:
        spills: in the order of the log.
        offset: see :class:`Merge`.
        most_bytes: of Arrow memory for each.
    """
    batches = sorted((first, size) for spill in spills for first, size in zip(spill.first, spill.sizes, strict=True))
    bounds, waiting = [0], 0
    for first, size in batches:
        if waiting + size > most_bytes and first > bounds[-1]:
            bounds.append(first)
            waiting = 0
        waiting += size
    ends = [*bounds[1:], HASHES]
    every = tuple(spills)
    return [Merge(number, *ends_of, offset, every) for number, ends_of in enumerate(zip(bounds, ends, strict=True))]


def read_spilled(folder: Folder, merge: Merge) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in the order of the log."""
    for spill in merge.spills:
        wanted = _batches_of(spill, merge)
        if not wanted:
            continue
        with folder.fs.open_input_file(folder.full(spill.path)) as file, pa.ipc.open_file(file) as reader:
            for number in wanted:
                batch = reader.get_batch(number)
                hashes = batch.column(_HASH).to_numpy()
                # up to 2^32, which is none of the column's own type
                start, stop = np.searchsorted(hashes.astype(np.int64), [merge.start, merge.stop])
                if start < stop:
                    yield batch.slice(start, stop - start).select(MESSAGE_SCHEMA.names).cast(MESSAGE_SCHEMA)


def _batches_of(spill: Spill, merge: Merge) -> Iterable[int]:
    """Numbers of the batches in which a task's hashes may be."""
    begin = int(np.searchsorted(np.array(spill.first, np.int64), merge.start, "left")) - 1
    end = int(np.searchsorted(np.array(spill.first, np.int64), merge.stop, "left"))
    return range(max(begin, 0), end)
