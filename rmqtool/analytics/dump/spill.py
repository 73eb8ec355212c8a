"""Rows of small partitions, spilled by the tasks that read the log, so that each partition ends up in one file.

In a log with many topics, every split has a few rows of each. A file per split and topic would cost far more than its
rows. Such rows are instead written to spill files, sorted by a hash of their partition. After all splits are read, each
merge task takes a range of hashes from all spill files: all rows of its partitions, and no more than fit in memory.
"""

import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtool.analytics.dump.names import SPILL
from rmqtool.analytics.dump.partitions import Key, Partitioned
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.table.views import plain

HASHES = 1 << 32
_HASH = "hash"  # name of the additional column
_FIELD = pa.field(_HASH, pa.uint32(), nullable=False)
_NAME = re.compile(re.escape(SPILL) + r"/_[0-9a-f]{32}\.arrow")


@dataclass(frozen=True, slots=True)
class Spill:
    """A spill file.

    Attributes:
        path: path relative to the staging directory.
        bytes: size of the file.
        first: hash of the first row of each batch; ascending.
        sizes: size of each batch in Arrow memory, bytes.
    """

    path: str
    bytes: int
    first: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def from_dict(cls, value: Any) -> "Spill":
        """Create a spill from the result of ``asdict``.

        Raises:
            ValueError: the value has another form.
        """
        spill = cls(value["path"], value["bytes"], tuple(value["first"]), tuple(value["sizes"]))
        numbers = (spill.bytes, *spill.first, *spill.sizes)
        if not isinstance(spill.path, str) or not _NAME.fullmatch(spill.path):
            raise ValueError("not the name of a spill file")
        if any(type(number) is not int or number < 0 for number in numbers) or len(spill.first) != len(spill.sizes):
            raise ValueError("no spill file")
        return spill

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Merge:
    """A task that merges the partitions with hashes in [start, stop) from all spill files.

    Attributes:
        number: number of this task.
        offset: physical offset of the first split with spill files; used in file names.
        spills: spill files in log order.
    """

    number: int
    start: int
    stop: int
    offset: int
    spills: tuple[Spill, ...]


def hash_of(key: Key) -> int:
    """Return a hash below :data:`HASHES` that is the same in all processes."""
    return zlib.crc32("\0".join("" if value is None else value for value in key).encode("utf-8", "surrogatepass"))


def write_spill(folder: Folder, partitioned: Partitioned, codec: str = "lz4") -> Spill:
    """Write the remaining rows of a batch, sorted by hash; rows of a partition keep their order.

    Once the file has its final name, it survives a power failure.
    """
    name = uuid.uuid4().hex
    path, temporary = f"{SPILL}/_{name}.arrow", f"{SPILL}/_{name}.part"
    first: list[int] = []
    sizes: list[int] = []
    folder.make(SPILL)
    try:
        with folder.fs.open_output_stream(folder.full(temporary)) as stream:
            options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
            with ExitStack() as opened:
                writer = None
                for rows, hashes in partitioned.drain(hash_of):
                    batch = plain(rows).append_column(_FIELD, pa.array(hashes.astype(np.uint32)))
                    if writer is None:
                        writer = opened.enter_context(pa.ipc.new_file(stream, batch.schema, options=options))
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
    """Divide the spilled rows into tasks of about ``most_bytes`` each.

    Args:
        spills: spill files in log order.
        offset: see :class:`Merge`.
        most_bytes: Arrow memory per task.
    """
    batches = sorted((first, size) for spill in spills for first, size in zip(spill.first, spill.sizes, strict=True))
    bounds, size_so_far = [0], 0
    for first, size in batches:
        if size_so_far + size > most_bytes and first > bounds[-1]:
            bounds.append(first)
            size_so_far = 0
        size_so_far += size
    ends = [*bounds[1:], HASHES]
    every = tuple(spills)
    return [Merge(number, *ends_of, offset, every) for number, ends_of in enumerate(zip(bounds, ends, strict=True))]


def read_spilled(folder: Folder, merge: Merge) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in log order."""
    for spill in merge.spills:
        wanted = _batches_of(spill, merge)
        if not wanted:
            continue
        with folder.fs.open_input_file(folder.full(spill.path)) as file, pa.ipc.open_file(file) as reader:
            for number in wanted:
                batch = reader.get_batch(number)
                hashes = batch.column(_HASH).to_numpy()
                # as int64, because the bound can be 2^32, which the column's type cannot represent
                start, stop = np.searchsorted(hashes.astype(np.int64), [merge.start, merge.stop])
                if start < stop:
                    yield batch.slice(start, stop - start).drop_columns([_HASH])


def _batches_of(spill: Spill, merge: Merge) -> Iterable[int]:
    """Return the numbers of the batches that can contain hashes of a task."""
    begin = int(np.searchsorted(np.array(spill.first, np.int64), merge.start, "left")) - 1
    end = int(np.searchsorted(np.array(spill.first, np.int64), merge.stop, "left"))
    return range(max(begin, 0), end)
