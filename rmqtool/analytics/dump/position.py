"""The position up to which a store's log has been dumped, from which the next dump continues."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from formats.message.read import Record
from rmqtool.analytics.ranges.splits import Split
from rmqtool.analytics.table.tally import crc_of
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import next_record, record_at

_MOST = 1 << 63
_NO_POSITION = "has no position to continue from; it was not written with --since-last"
_WINDOW = 16 << 10  # bytes before an offset that are searched first for the preceding record


class Inside(UnreadableStore):
    """A physical offset is not a boundary between records."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a log. The record before it proves, next time, that the log is still the same.

    Attributes:
        next: physical offset of the first byte that is not in the output.
        last: physical offset of the last record that was read; -1 if none.
        last_end: physical offset of its end.
        last_crc: CRC-32 of its bytes.
    """

    next: int = 0
    last: int = -1
    last_end: int = 0
    last_crc: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the fields for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Any) -> "Position":
        """Create a position from the result of :meth:`to_dict`.

        Raises:
            ValueError: the value has another form.
        """
        if not isinstance(value, dict) or set(value) != set(cls.__slots__):
            raise ValueError("no position")
        if any(not isinstance(number, int) or isinstance(number, bool) for number in value.values()):
            raise ValueError("a position has whole numbers")
        position = cls(**value)
        proved = 0 <= position.last < position.last_end <= position.next and 0 <= position.last_crc < 1 << 32
        if not 0 <= position.next < _MOST or not (
            proved or (position.last, position.last_end, position.last_crc) == (-1, 0, 0)
        ):
            raise ValueError("a position's record lies before it")
        return position

    @classmethod
    def of(
        cls, output: str, manifest: dict[str, Any] | None, kept: dict[str, Any], *, adds_columns: bool = False
    ) -> "Position":
        """Return the position at which an output ends.

        Args:
            output: name of the output.
            manifest: manifest of the output; None for a new one.
            kept: options that must be the same for the whole output.
            adds_columns: see :class:`rmqtool.analytics.dump.output.DumpOutput`.

        Raises:
            Refused: the output has no position or was written with other options.
        """
        if manifest is None:
            return cls()
        try:
            position = cls.from_dict(manifest.get("position"))
        except ValueError:
            raise Refused(f"{output}: {_NO_POSITION}") from None
        check_kept(output, manifest, kept, adds_columns=adds_columns)
        return position

    @classmethod
    def at(cls, log: CommitLog, physical_offset: int) -> "Position":
        """Return the position at a physical offset, proved by the last complete record before it.

        Raises:
            Inside: the offset is inside a record.
            UnreadableStore: the log cannot be read.
        """
        before = _record_before(log, physical_offset)
        if before is None:
            return cls(physical_offset)
        file, first, end = before
        crc = crc_of(file, first, end)
        file.release()
        return cls(physical_offset, file.base + first, file.base + end, crc)

    def check(self, log: CommitLog, output: str, store: str | None = None) -> int:
        """Check that the log continues here; return the bytes of log that were deleted before they were dumped.

        Args:
            store: the store recorded in the output; None to skip this check.

        Raises:
            Refused: this is not the log that was dumped.
        """
        changed = self.differs(log)
        if changed is None and store is not None and store != log.layout.root and 0 <= self.last < log.min_offset:
            changed = f"the record before it has expired, and the output is of another store, {store}"
        if changed is not None:
            raise Refused(
                f"{output}: ends at physical offset {self.next}, where the log of {log.layout.root} does not go on: "
                f"{changed}. To go on: dump the store to another directory"
            )
        return max(log.min_offset - self.next, 0) if self.last >= 0 else 0

    def differs(self, log: CommitLog) -> str | None:
        """Return how the log differs from the one read up to here; None if it is the same as far as it still exists."""
        files = log.segments.files
        end = files[-1].end if files else 0
        if end < self.next:
            return f"its files end at {end}: it is another store's, or was cut"
        if self.last < 0:
            # nothing had been read before it: earlier files have expired or still hold no records
            preceding = _record_before(log, self.next) if files and log.min_offset < self.next else None
            return None if preceding is None else "there was no message before it, and now there is one"
        if log.min_offset <= self.last and not self._is_there(log):
            return (
                f"the message at {self.last}, read last, is not there any more: it is another store's, or was cut and "
                "rewritten"
            )
        return None

    def _is_there(self, log: CommitLog) -> bool:
        file = log.segments.find(self.last)
        if file is None:
            return False
        matches = crc_of(file, self.last - file.base, self.last_end - file.base) == self.last_crc
        file.release()
        return matches

    def exact(self, splits: list[Split]) -> list[Split]:
        """Mark the split at the position as exact: it begins there, whatever the record there says."""
        return [replace(split, exact=split.exact or split.base + split.start == self.next) for split in splits]


def check_kept(output: str, manifest: dict[str, Any], kept: dict[str, Any], *, adds_columns: bool = False) -> None:
    """Check that a growing output was begun with the same options.

    Args:
        kept: options that must be the same for the whole output.
        adds_columns: see :class:`rmqtool.analytics.dump.output.DumpOutput`.

    Raises:
        Refused: it was not, or is none that grows.
    """
    options = manifest.get("options")
    if not isinstance(options, dict) or not isinstance(manifest.get("files"), list):
        raise Refused(f"{output}: {_NO_POSITION}")
    for name, value in kept.items():
        if options.get(name) == value:
            continue
        if name == "body_schema":  # a whole schema
            _check_schema(output, options.get(name), value, adds_columns=adds_columns)
            continue
        raise Refused(f"{output}: was begun with {name} {options.get(name)!r}, not {value!r}")


def _check_schema(output: str, before: str | None, schema: str | None, *, adds_columns: bool) -> None:
    """Check that an output can take another schema of bodies than it has."""
    from rmqtool.analytics.bodies.schema import TableSchema  # loads pyarrow, which mirror's positions need not
    from rmqtool.analytics.table.types import is_wider

    if adds_columns and schema is not None:
        wider = before is None or is_wider(TableSchema.from_text(before).type, TableSchema.from_text(schema).type)
        if wider:
            return
    way = "a schema that has all of its fields, and more" if adds_columns else "a table of Delta Lake or Iceberg"
    raise Refused(
        f"{output}: was begun {'with another' if before else 'without a'} body schema; "
        f"{'it takes' if adds_columns else 'new fields can be added to'} {way}. To go on otherwise: dump to another "
        "output"
    )


def _record_before(log: CommitLog, physical_offset: int) -> tuple[Segment, int, int] | None:
    """Return (file, start, end) of the last complete record that ends at or before an offset, or None.

    Raises:
        Inside: a record spans the offset.
    """
    for file in reversed([file for file in log.segments.files if file.base < physical_offset]):
        stop = min(physical_offset - file.base, file.size)
        window, start = _WINDOW, stop
        while start > 0:
            start, window = max(stop - window, 0), 16 * window
            if (last := _last_in(file, start, stop)) is not None:
                if file.base + last[1] > physical_offset:
                    raise Inside(f"{physical_offset} lies inside of the message at {file.base + last[0]}")
                return file, *last
        file.release()
    return None


def _last_in(file: Segment, start: int, stop: int) -> tuple[int, int] | None:
    """Return (start, end) of the last complete record that begins in [start, stop) of a file."""
    view, at, last = file.map(), start, None
    if start:
        at = next_record(view, file.base, start, stop)
    while at < stop:
        record = record_at(view, at, file.size)
        if isinstance(record, Record):
            last = at, at + record.total_size
            at += record.total_size
        else:
            at = next_record(view, file.base, at + 1, stop)
    return last
