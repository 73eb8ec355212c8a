"""Options and report of a dump."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from formats.fastjson.declare import to_camel_case
from rmqtool.analytics.dump.parquet import CODECS, PartFile
from rmqtool.analytics.dump.partitions import PARTITIONS
from rmqtool.analytics.table.tally import MAX_DETAILS, SplitTally
from rmqtool.errors import BadValue
from rmqtool.store.log.commit_log import Damage

RUNNERS = ("spark", "local")
MAX_ROW_GROUP = 1 << 30  # bytes; a column must stay below 2 GiB, the range of 32-bit offsets


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What to dump and how.

    Attributes:
        partition_by: partition directories by ``topic``, ``bucket`` (of topics), ``day`` and ``hour`` (of the store
            time, UTC), nested in this order.
        topics: exact names, or patterns with ``*``, ``?`` and ``[...]``; empty for all topics.
        since: earliest store time in ms; None for no limit.
        until: latest store time in ms, exclusive.
        start_offset: physical offset to start from; only whole messages are read.
        stop_offset: physical offset, exclusive.
        codec: ``zstd``, ``snappy``, ``gzip`` or ``none``.
        where: a Spark SQL condition over the columns; only matching rows are written. Requires Spark.
        body_schema: what bodies hold, for the columns ``decoded`` and ``decodeError``: a file with a schema, or
            ``json`` (see :func:`rmqtool.read_arrow`).
        row_group_bytes: Arrow memory per row group, which is also the memory that each task uses.
        file_bytes: approximate maximum size of a file; None for one file per task and partition.
        split_bytes: bytes of log per task.
        overwrite: replace an older output.
        since_last: add only messages that the output does not have yet, and record how far it got.
        runner: ``spark``, or ``local`` to work in this process only, without Java.
        master: Spark master URL; None for all cores of this machine. The workers of a cluster must have rmqtool
            installed and see store and output under the same paths.
    """

    partition_by: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    start_offset: int | None = None
    stop_offset: int | None = None
    codec: str = "zstd"
    where: str | None = None
    body_schema: str | None = None
    row_group_bytes: int = 128 << 20
    file_bytes: int | None = None
    split_bytes: int = 128 << 20
    overwrite: bool = False
    since_last: bool = False
    runner: str = "spark"
    master: str | None = None

    def check(self) -> None:
        """Check the values of all options.

        Raises:
            BadValue: names the option and its valid values.
        """
        for what, value, known in (("codec", self.codec, CODECS), ("runner", self.runner, RUNNERS)):
            if value not in known:
                raise BadValue(f"{what} {value!r} is none of {', '.join(known)}")
        for by in self.partition_by:
            if by not in PARTITIONS:
                raise BadValue(f"cannot partition by {by!r}, only by {', '.join(PARTITIONS)}")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise BadValue("a partition is named twice")
        sizes = {"split": self.split_bytes, "row group": self.row_group_bytes, "file": self.file_bytes}
        for what, size in sizes.items():
            if size is not None and size < 1:
                raise BadValue(f"{what} size {size} is not positive")
        if self.row_group_bytes > MAX_ROW_GROUP:
            raise BadValue(f"a row group of {self.row_group_bytes} bytes is more than {MAX_ROW_GROUP}")
        ranges = (self.since, self.until, self.start_offset, self.stop_offset)
        if self.since_last and (self.overwrite or any(end is not None for end in ranges)):
            raise BadValue("--since-last cannot be given with a range or with --overwrite")
        if self.where is not None and self.runner == "local":
            raise BadValue("a SQL condition needs the runner spark")


@dataclass(frozen=True, slots=True)
class DumpReport:
    """Result of a dump. Times are in seconds, sizes in bytes.

    Attributes:
        out: the output directory.
        rows: messages written.
        records: messages read, including those excluded by the options.
        bytes_read: size of these messages and of damaged ranges; blanks and unwritten space are not counted.
        files: Parquet files written.
        partitions: directories with files; 1 if not partitioned.
        splits: byte ranges that were read separately.
        damaged: damaged ranges of the log.
        damaged_bytes: total length of the damaged ranges.
        damage: the first thousand damaged ranges.
        not_decompressed: rows with the body as stored and the reason in ``bodyError``.
        times_out_of_range: timestamps written as null because no reader could represent them.
        resumed: splits that an earlier, interrupted run had already read.
        expired_bytes: bytes of log that were deleted before they were dumped.
        lost: messages of a live cluster that were gone before they could be written, and queues that were away.
        position: physical offset at which the next incremental dump starts.
        spark: description of the Spark that was used; None if it was not needed.
        startup_seconds: time until the first range was read or, with a condition, until Spark was ready to evaluate it.
        seconds: time until the output was ready to be published.
    """

    out: str
    rows: int = 0
    records: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    files: int = 0
    partitions: int = 0
    splits: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    damage: tuple[Damage, ...] = ()
    not_decompressed: int = 0
    times_out_of_range: int = 0
    resumed: int = 0
    expired_bytes: int = 0
    lost: tuple[str, ...] = ()
    position: int | None = None
    spark: str | None = None
    startup_seconds: float = 0.0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, in camel case."""
        values = {camel: getattr(self, name) for name, camel in _CAMEL.items()}
        row = {camel: round(value, 3) if isinstance(value, float) else value for camel, value in values.items()}
        row["lost"] = list(self.lost)
        row["damage"] = [
            {
                "file": item.path,
                "fileOffset": item.at,
                "physicalOffset": item.physical_offset,
                "length": item.length,
                "ending": item.ending.value,
                "reason": item.reason,
            }
            for item in self.damage
        ]
        return row


_CAMEL = {field.name: to_camel_case(field.name) for field in fields(DumpReport) if field.name != "damage"}


def sum_up(tallies: list[SplitTally], files: list[PartFile], unusable: Sequence[Damage] = ()) -> dict[str, Any]:
    """Return fields of a report: sums over all tasks and files.

    Args:
        unusable: files that cannot be read, which count as damage.
    """
    whole = SplitTally()
    for item in unusable:
        whole.add_damage(item)
    whole.bytes = 0
    every = [whole, *tallies]
    details = (item for tally in every for item in tally.damage)
    return {
        "rows": sum(tally.rows for tally in every),
        "records": sum(tally.records for tally in every),
        "bytes_read": sum(tally.bytes for tally in every),
        "bytes_written": sum(file.bytes for file in files),
        "files": len(files),
        "partitions": len({os.path.dirname(file.path) for file in files}),
        "damaged": sum(tally.damaged for tally in every),
        "damaged_bytes": sum(tally.damaged_bytes for tally in every),
        "damage": tuple(islice(details, MAX_DETAILS)),
        "not_decompressed": sum(tally.not_decompressed for tally in every),
        "times_out_of_range": sum(tally.times_out_of_range for tally in every),
    }


def jsonable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value after a round trip through JSON."""
    copy: dict[str, Any] = json.loads(json.dumps(value))
    return copy
