"""Statistics about a range of the log that was read."""

from dataclasses import asdict, dataclass, field
from typing import Any
from zlib import crc32

from formats.endings import Ending
from rmqtool.store.disk.mapping import need
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import Damage

MAX_DETAILS = 1000  # maximum number of damaged ranges listed individually; others are only counted


@dataclass(slots=True)
class SplitTally:
    """Statistics about a split that was read.

    Attributes:
        first: byte offset in the file at which reading began.
        next: byte offset at which the next split must begin.
        last: start of the last record; -1 if none.
        end: end of the last record; 0 if none.
        last_crc: CRC-32 of the bytes of the last record.
        records: all records read, including those not selected.
        bytes: size of these records and of the damaged ranges.
        damaged: number of damaged ranges.
        damage: the first damaged ranges.
        not_decompressed: rows with the body as stored.
        times_out_of_range: timestamps replaced by null.
    """

    first: int = 0
    next: int = 0
    last: int = -1
    end: int = 0
    last_crc: int = 0
    records: int = 0
    rows: int = 0
    bytes: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    not_decompressed: int = 0
    times_out_of_range: int = 0
    damage: list[Damage] = field(default_factory=list)

    def add_records(self, count: int, size: int, last: int, end: int) -> None:
        """Count records; the last one is at bytes [last, end) of the file."""
        self.records += count
        self.bytes += size
        self.last, self.end = last, end

    def add_damage(self, item: Damage) -> None:
        """Count a damaged range."""
        self.bytes += item.length
        self.damaged += 1
        self.damaged_bytes += item.length
        if len(self.damage) < MAX_DETAILS:
            self.damage.append(item)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**asdict(self), "damage": [[*item[:-2], item.ending.value, item.reason] for item in self.damage]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SplitTally":
        """Create a tally from the result of :meth:`to_dict`."""
        damage = [Damage._make((*item[:-2], Ending(item[-2]), item[-1])) for item in values["damage"]]
        return cls(**{**values, "damage": damage})


def crc_of(file: Segment, start: int, stop: int) -> int:
    """Return the CRC-32 of bytes [start, stop) of a file."""
    view = file.map()
    need(view, start, stop)
    return crc32(view[start:stop])
