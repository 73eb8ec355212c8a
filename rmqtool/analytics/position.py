"""Up to where a store's log is in an output, so that the next dump begins there."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from rmqtool.analytics.splits import Split
from rmqtool.analytics.tally import Tally, crc_of
from rmqtool.errors import Refused
from rmqtool.store.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log. The record before it proves, the next time, that the log is still the same.

    Attributes:
        next: physical offset of the first byte that is not in the output.
        last: physical offset of the last record that was read; -1 without one.
        last_end: physical offset behind it.
        last_crc: CRC-32 of its bytes.
    """

    next: int = 0
    last: int = -1
    last_end: int = 0
    last_crc: int = 0

    def to_dict(self) -> dict[str, int]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, output: str, manifest: dict[str, Any] | None, kept: dict[str, Any]) -> "Position":
        """Where an output ends.

        Args:
            output: its name.
            manifest: what it says of itself; None for a new one.
            kept: options that all of an output has in common.

        Raises:
            Refused: it has no position, or was made with other options.
        """
        if manifest is None:
            return cls()
        try:
            position = cls(**manifest["position"])
            options: dict[str, Any] = manifest["options"]
        except (KeyError, TypeError):
            raise Refused(f"{output}: has no position to go on from; it was dumped otherwise") from None
        for name, value in kept.items():
            if options.get(name) != value:
                raise Refused(f"{output}: was begun with {name} {options.get(name)!r}, not {value!r}")
        return position

    def check(self, log: CommitLog, output: str) -> int:
        """Bytes of log that were deleted before they were dumped.

        Raises:
            Refused: the log is not the one that was dumped.
        """
        files = log.segments.files
        known = bool(files) and 0 <= log.min_offset <= self.last
        if (files[-1].end if files else 0) < self.next or (known and not self._is_there(log)):
            raise Refused(
                f"{output}: ends at physical offset {self.next}, where the log of {log.layout.root} does not go on: "
                "it is another store's, or was cut and written anew"
            )
        return max(log.min_offset - self.next, 0) if self.last >= 0 else 0

    def _is_there(self, log: CommitLog) -> bool:
        file = log.segments.find(self.last)
        if file is None:
            return False
        return crc_of(file, self.last - file.base, self.last_end - file.base) == self.last_crc

    def exact(self, splits: list[Split]) -> list[Split]:
        """Splits, of which the one at the position begins just there, whatever the record there says of itself."""
        return [replace(split, exact=split.exact or split.base + split.start == self.next) for split in splits]

    def after(self, stop: int, splits: list[Split], tallies: list[Tally]) -> "Position":
        """The position when these splits, which end at a physical offset, are in the output too."""
        for split, tally in reversed(list(zip(splits, tallies, strict=True))):
            if tally.last >= 0:
                return Position(stop, split.base + tally.last, split.base + tally.end, tally.last_crc)
        return replace(self, next=stop)


def has_changed(log: CommitLog, split: Split, tally: Tally) -> bool:
    """Whether a broker has written where a split was read: a record was half there, or seemed to be missing."""
    if not split.last:
        return False
    if tally.last >= 0 and crc_of(split.segment(), tally.last, tally.end) != tally.last_crc:
        return True
    return any(log.read(item.physical_offset) is not None for item in tally.damage)
