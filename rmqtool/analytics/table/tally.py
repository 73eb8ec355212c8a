"""What reading a range of the log has shown besides its rows."""

from dataclasses import asdict, dataclass, field
from typing import Any
from zlib import crc32

from formats.endings import Ending
from rmqtool.store.disk.remote import need
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import Damage

MAX_DETAILS = 1000  # damaged ranges that are listed one by one; the rest is only counted


@dataclass(slots=True)
class SplitTally:
    """What reading a split has shown besides its rows.

    Attributes:
        first: byte of the file where reading began.
        next: byte where the next split must begin.
        last: byte where the last record begins; -1 without one.
        end: byte behind it; 0 without one.
        last_crc: CRC-32 of its bytes.
        records: all that were read, also those that were not asked for.
        bytes: of these records and of the damaged ranges.
        damaged: number of damaged ranges.
        damage: the first of them.
        not_decompressed: bodies in the rows that are given as stored.
        times_out_of_range: timestamps in the rows that became null.
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
        """Count records that were read; the last of them lies at bytes [last, end) of the file."""
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
        """For JSON."""
        return {**asdict(self), "damage": [[*item[:-2], item.ending.value, item.reason] for item in self.damage]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SplitTally":
        """What :meth:`to_dict` gave."""
        damage = [Damage._make((*item[:-2], Ending(item[-2]), item[-1])) for item in values["damage"]]
        return cls(**{**values, "damage": damage})


def crc_of(file: Segment, start: int, stop: int) -> int:
    """CRC-32 of bytes [start, stop) of a file."""
    view = file.map()
    need(view, start, stop)
    return crc32(view[start:stop])
