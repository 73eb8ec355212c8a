"""What a dump is asked to do, and what it tells when it is done."""

from dataclasses import dataclass, fields
from typing import Any

from rmqtool.errors import BadValue
from rmqtool.store.log.commit_log import Damage

RUNNERS = ("spark", "local")
MAX_ROW_GROUP = 1 << 30  # bytes; a column of one must stay below the 2 GiB that 32-bit offsets reach


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What to dump, and how.

    Attributes:
        partition_by: directories by ``topic``, ``bucket`` (of topics), ``day`` and ``hour`` (of the store time, UTC),
            in this order.
        topics: exact names, or patterns with ``*``, ``?`` and ``[...]``; empty for all.
        since: store time in ms from which on; None for all.
        until: store time in ms, exclusive.
        start_offset: physical offset from which on, in whole messages.
        stop_offset: physical offset, exclusive.
        codec: ``zstd``, ``snappy``, ``gzip`` or ``none``.
        where: a Spark SQL condition over the columns; only rows for which it is true. Needs Spark.
        row_group_bytes: of Arrow memory in a row group; each task holds as much.
        file_bytes: about as large a file gets; one for each task and partition when None.
        split_bytes: bytes of log for each task.
        overwrite: replace an older output.
        since_last: add what the output does not have yet to it, and remember up to where that is.
        runner: ``spark``, or ``local`` to read in this process alone, without Java.
        master: Spark master URL; all cores of this machine when None. A cluster's workers must have rmqtool installed,
            and see store and output under the paths given here.
    """

    partition_by: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    start_offset: int | None = None
    stop_offset: int | None = None
    codec: str = "zstd"
    where: str | None = None
    row_group_bytes: int = 128 << 20
    file_bytes: int | None = None
    split_bytes: int = 128 << 20
    overwrite: bool = False
    since_last: bool = False
    runner: str = "spark"
    master: str | None = None

    def check(self) -> None:
        """Refuse values that an option cannot have.

        Raises:
            BadValue: names the option and what it may be.
        """
        from rmqtool.analytics.dump.parquet import CODECS
        from rmqtool.analytics.dump.partitions import PARTITIONS

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
    """What became of a dump. Times in seconds, sizes in bytes.

    Attributes:
        out: the output directory.
        rows: messages written.
        records: messages read, also those that the options exclude.
        bytes_read: of these messages and the damaged ranges; blanks and unwritten space do not count.
        files: Parquet files written.
        partitions: directories with files in them; 1 when not partitioned.
        splits: byte ranges that were read apart.
        damaged: damaged ranges of the log.
        damaged_bytes: their length.
        damage: the first thousand of them.
        not_decompressed: rows whose body is as stored, with the reason in ``bodyError``.
        times_out_of_range: timestamps that are null because no reader could show them.
        resumed: splits that an earlier run, which was ended, had read already.
        expired_bytes: of log that was deleted before it was dumped.
        position: physical offset from which on the next dump since the last begins.
        spark: what Spark ran as; None when it was not needed.
        startup_seconds: until the first range was read; with a condition, until Spark was there to evaluate it.
        seconds: until all was ready to be published.
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
    position: int | None = None
    spark: str | None = None
    startup_seconds: float = 0.0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON, in camel case."""
        row: dict[str, Any] = {}
        for name in (f.name for f in fields(self) if f.name != "damage"):
            value = getattr(self, name)
            row[camel(name)] = round(value, 3) if isinstance(value, float) else value
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


def camel(name: str) -> str:
    """``bytes_read`` as ``bytesRead``."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
