"""The broker's properties file: sizes, paths and recovery settings.

Source: store.config.MessageStoreConfig and its defaults at 4.9.8; the format is java.util.Properties.
"""

import re
from collections.abc import Collection

from formats.config.properties import parse_properties
from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.store.disk.directories import read_small

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_DELAYS = "messageDelayLevel"
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ROLL_WINDOW, _NARROWEST, _WIDEST = 172_800, 2, 7 * 24 * 3600 - 60  # slots
_PRECISIONS = 100, 200, 500, 1000
_INT = re.compile(r"[+-]?\d{1,24}")  # digits of any script, as Java takes them
_SIZES = (
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "mappedFileSizeTimerLog",
    "timerPrecisionMs",
    "compactionMappedFileSize",
    "compactionCqMappedFileSize",
)


class BrokerConf:
    """Settings by their own names; a missing one is None, or the broker's default where that is safe.

    A broker ignores a text that is no number, and uses its default (common.MixAll.properties2Object); so does this.

    Args:
        values: property names and texts.
        path: the file that they were read from.

    Attributes:
        sizes: those that a broker takes from the file, without impossible ones.
        impossible: sizes that a broker takes although no file can have them: 0 and less.
        ignored: texts of sizes that a broker ignores.
        options: command-line options that give other commands the same settings; empty without a file.
    """

    def __init__(self, values: dict[str, str] | None = None, path: str | None = None) -> None:
        self.values = values or {}
        self.path = path or "broker conf"
        self.options: tuple[str, ...] = () if path is None else ("--broker-conf", path)
        taken = {name: parse_int(self.values[name]) for name in _SIZES if name in self.values}
        self.sizes = {name: size for name, size in taken.items() if size is not None and size > 0}
        self.impossible = {name: size for name, size in taken.items() if size is not None and size <= 0}
        self.ignored = {name: self.values[name] for name, size in taken.items() if size is None}

    def text(self, name: str) -> str | None:
        """A property, trimmed; None when absent or empty."""
        return self.values.get(name, "").strip() or None

    def flag(self, name: str, default: bool) -> bool:
        """A boolean, parsed like Java's ``Boolean.parseBoolean``."""
        text = self.text(name)
        return default if text is None else text.lower() == "true"

    def number(self, name: str, default: int) -> int:
        """An integer, 0 for a negative one; the default for a text that is no number."""
        value = parse_int(self.values.get(name, ""), bits=64)
        return default if value is None else max(value, 0)

    def paths(self, name: str) -> list[str]:
        """A comma-separated list of directories, without duplicates."""
        text = self.text(name) or ""
        return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))

    def with_value(self, name: str, text: str) -> "BrokerConf":
        """A copy with another value of a setting."""
        conf = BrokerConf({**self.values, name: text}, self.path)
        conf.options = self.options
        return conf

    def without(self, names: Collection[str]) -> "BrokerConf":
        """A copy without some of the settings."""
        conf = BrokerConf({name: text for name, text in self.values.items() if name not in names}, self.path)
        conf.options = self.options
        return conf

    @property
    def writes_index_files(self) -> bool:
        """Whether messages are put into index files; since 5.4 a broker may keep its index in RocksDB only."""
        return self.flag("messageIndexEnable", True) and self.flag("indexFileWriteEnable", True)

    @property
    def timer_precision(self) -> int:
        """Milliseconds per slot of the timer wheel: the configured value, rounded down to one that a broker accepts."""
        wanted = self.sizes.get("timerPrecisionMs", _PRECISIONS[-1])
        return max((precision for precision in _PRECISIONS if precision <= wanted), default=_PRECISIONS[0])

    @property
    def timer_window(self) -> int:
        """The number of slots that a timer message may be ahead without rolling (``timerRollWindowSlot``)."""
        slots = self.number("timerRollWindowSlot", _ROLL_WINDOW)
        return slots if _NARROWEST <= slots <= _WIDEST else _WIDEST

    @property
    def refused(self) -> dict[str, str]:
        """Settings with which no broker starts, and their texts."""
        try:
            self.delay_levels  # noqa: B018 - it raises
        except CorruptFile:
            return {_DELAYS: self.values[_DELAYS]}
        return {}

    @property
    def delay_levels(self) -> list[int]:
        """Milliseconds of level 1, 2, ... (``messageDelayLevel``).

        Raises:
            CorruptFile: a broker could not parse the setting.
        """
        text = self.text(_DELAYS) or DEFAULT_DELAY_LEVELS
        levels = []
        for token in text.split():
            if token[-1:] not in _UNITS or not re.fullmatch(r"[0-9]{1,15}", token[:-1]):
                raise CorruptFile(self.path, None, f"{_DELAYS}: {token!r} is not a number with s, m, h or d")
            levels.append(int(token[:-1]) * _UNITS[token[-1]])
        return levels


def parse_int(text: str, bits: int = 32) -> int | None:
    """The value of a text as ``Integer.parseInt`` reads it, or ``Long.parseLong``; None for what these reject.

    Blanks around a number are rejected, too.
    """
    value = int(text) if _INT.fullmatch(text) else None
    return value if value is not None and -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def load(path: str) -> BrokerConf:
    """Read a broker's properties file.

    Raises:
        UnreadableStore: it cannot be read.
    """
    data = read_small(path, 1 << 20)
    if data is None:
        raise UnreadableStore(f"{path}: No such file or directory")
    return BrokerConf(parse_properties(data), path)
