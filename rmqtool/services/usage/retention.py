"""When a running broker removes log files, which messages are then lost unread, and how long the disk will last.

A broker removes commit-log files, oldest first and never the last one, up to the first that is younger than
``fileReservedTime`` (by its modification time): in the hours of ``deleteWhen``, and at any hour once disk usage exceeds
``diskMaxUsedSpaceRatio``. Above ``diskSpaceCleanForciblyRatio`` it removes files of any age, and above
``diskSpaceWarningLevelRatio`` it accepts no messages.

Source: store.DefaultMessageStore.CleanCommitLogService, UtilAll.getDiskPartitionSpaceUsedPercent; store-engine 6.
"""

import os
from bisect import bisect_left
from collections import deque
from dataclasses import asdict, dataclass, field
from datetime import datetime, tzinfo
from typing import Any

import numpy as np

from formats.message.read import Record
from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.rules.retention import DEFAULT_RESERVED_HOURS, HOUR
from rmqtool.services.consumers.unread import unread_below
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.usage.parts import COMMIT_LOG, PartUsage, measure_parts
from rmqtool.store.disk.directories import is_dir
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import record_at, record_start
from rmqtool.store.log.scan import FileRows, scan_file

DAY = 24 * HOUR
_FORESIGHT = 366 * 24  # hours
_GROWING = (COMMIT_LOG, "consumequeue", "index")  # parts that grow with the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A broker's settings for removing files.

    Attributes:
        hours: hours of the day, in the broker's zone.
        used: usage of the partition, as a fraction, above which expired files are removed at any hour.
        forced: usage above which files of any age are removed; None if the broker must not do that.
        full: usage above which no message is accepted.
    """

    reserved_ms: int
    hours: frozenset[int]
    used: float
    forced: float | None
    full: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One file of the log.

    Attributes:
        expireTimestamp: ms; when it becomes old enough. None for the last file, which is kept.
        deleteTimestamp: ms; when a running broker removes it.
    """

    file: str
    minPhyOffset: int
    bytes: int
    modifiedTimestamp: int
    expireTimestamp: int | None
    deleteTimestamp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadLoss:
    """Messages that will be lost unread unless they are consumed before.

    Attributes:
        group: None for waiting delayed messages.
        messages: number in all files but the last.
        deleteTimestamp: ms; when the first of them is removed.
    """

    group: str | None
    topic: str
    messages: int
    deleteTimestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A level of disk usage, and when it will be reached at the rate of the last day or week.

    Attributes:
        ratio: used fraction of the partition.
        dayTimestamp: ms, at the rate of the last day; None if not within a year.
        weekTimestamp: ms, at the rate of the last week; None if not within a year.
    """

    ratio: float
    means: str
    dayTimestamp: int | None
    weekTimestamp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The forecast for a store.

    Attributes:
        diskBytes: size of the log's partition; of several, the fullest.
        usedRatio: used fraction as a broker computes it, rounded up to hundredths.
        dayBytes: bytes added to the log in the last 24 hours; ``weekBytes`` in the last seven days.
        covered: ms that the log goes back, if less than a week; the weekly rate then refers to this time.
    """

    store: str
    reservedHours: float
    deleteWhen: list[int]
    diskBytes: int
    freeBytes: int
    usedRatio: float
    dayBytes: int
    weekBytes: int
    covered: int | None
    files: list[LogFile] = field(default_factory=list)
    unread: list[UnreadLoss] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


def policy_of(conf: BrokerConf) -> Policy:
    """The policy of these settings; defaults for missing ones.

    Raises:
        CorruptFile: ``deleteWhen`` is not a list of hours.
    """
    text = conf.text("deleteWhen") or "04"
    hours = text.split(";")
    if not all(hour.isascii() and hour.isdigit() and len(hour) < 10 for hour in hours):
        raise CorruptFile(conf.path, None, f"deleteWhen={text} is not a list of hours, like 04;16")
    forced = min(max(conf.number("diskSpaceCleanForciblyRatio", 85), 30), 85) / 100
    return Policy(
        reserved_ms=conf.number("fileReservedTime", DEFAULT_RESERVED_HOURS) * HOUR,
        hours=frozenset(map(int, hours)),
        used=min(max(conf.number("diskMaxUsedSpaceRatio", 75), 10), 95) / 100,
        forced=forced if conf.flag("cleanFileForciblyEnable", True) else None,
        full=min(max(conf.number("diskSpaceWarningLevelRatio", 90), 35), 90) / 100,
    )


def foresee(log: CommitLog, at: int, zone: tzinfo | None, warn: Warn) -> Retention:
    """Forecast what a broker, running from now on, will do with the files of a log.

    Args:
        at: the current time, ms.
        zone: the broker's time zone; None for that of this machine.
        warn: called with reasons why the answer is incomplete.

    Raises:
        UnreadableStore: a file cannot be read.
    """
    layout, policy = log.layout, policy_of(log.layout.conf)
    folders = [path for path in layout.commit_log_paths if is_dir(path)] or [layout.root]
    disk = max(map(Disk.of, folders), key=lambda disk: disk.ratio)
    files = _files(log, policy, at, zone, early=disk.ratio >= policy.used)
    parts = measure_parts(layout)
    first = _first_time(log.segments.files)
    later = _bytes_since(log, at + 1)  # stored while the clock was ahead
    week = _bytes_since(log, at - 7 * DAY) - later
    day = _bytes_since(log, at - DAY) - later
    covered = max(at - first, 0) if first is not None and at - first < 7 * DAY else None
    rates = [day / DAY, week / max(7 * DAY if covered is None else covered, HOUR)]
    reached = [_reach(policy, disk, files, parts, rate, at, zone) for rate in rates]
    meanings = {policy.used: "expired files go at any hour", policy.full: "no message is taken"}
    if policy.forced is not None:
        meanings[policy.forced] = "files go whatever their age"
    return Retention(
        store=layout.root,
        reservedHours=policy.reserved_ms / HOUR,
        deleteWhen=sorted(policy.hours),
        diskBytes=disk.size,
        freeBytes=disk.free,
        usedRatio=disk.ratio,
        dayBytes=day,
        weekBytes=week,
        covered=covered,
        files=files,
        unread=_losses(log, files, warn),
        levels=[
            Level(
                ratio=ratio, means=meanings[ratio],
                dayTimestamp=reached[0].get(ratio), weekTimestamp=reached[1].get(ratio),
            )
            for ratio in sorted(meanings)
        ],
    )  # fmt: skip


# -- files ------------------------------------------------------------------------------------------------------------


def _files(log: CommitLog, policy: Policy, at: int, zone: tzinfo | None, *, early: bool) -> list[LogFile]:
    rows, gone = [], at
    for file in log.segments:
        modified = file.mtime_ns // 1_000_000
        expires = deletes = None
        if file is not log.segments.files[-1]:
            expires = modified + policy.reserved_ms
            gone = deletes = _next_deletion(max(expires, gone), policy.hours, zone, early=early)
        rows.append(
            LogFile(
                file=os.path.relpath(file.path, log.layout.root),
                minPhyOffset=file.base,
                bytes=file.size,
                modifiedTimestamp=modified,
                expireTimestamp=expires,
                deleteTimestamp=deletes,
            )
        )
    return rows


def _next_deletion(time: int, hours: frozenset[int], zone: tzinfo | None, *, early: bool) -> int:
    """The first moment at or after a time at which a broker removes expired files."""
    if early or _hour_of(time, zone) in hours:
        return time
    quarter = HOUR // 4  # hours of some zones begin within one of UTC
    time += quarter - time % quarter
    for _ in range(4 * 48):
        if _hour_of(time, zone) in hours:
            break
        time += quarter
    return time


def _hour_of(time: int, zone: tzinfo | None) -> int:
    return datetime.fromtimestamp(time / 1000, zone).hour if 0 <= time < 1 << 45 else -1


def _losses(log: CommitLog, files: list[LogFile], warn: Warn) -> list[UnreadLoss]:
    """Messages that will be lost unread with the removed files; none, after a warning, if that cannot be known."""
    try:
        return _count_losses(log, files, warn)
    except (CorruptFile, UnreadableStore) as err:
        if isinstance(err.__cause__, PermissionError):
            raise
        warn(f"{err}: which messages are lost unread is not known")
        return []


def _count_losses(log: CommitLog, files: list[LogFile], warn: Warn) -> list[UnreadLoss]:
    """Messages that will be lost unread with the removed files, and when the first is removed."""
    going = [file for file in files if file.deleteTimestamp is not None]
    below: dict[int, dict[tuple[str | None, str], int]] = {}

    def unread(removed: int) -> dict[tuple[str | None, str], int]:
        if removed not in below:
            losses = unread_below(log.layout, files[removed].minPhyOffset, warn)
            below[removed] = {(loss.group, loss.topic): loss.messages for loss in losses}
        return below[removed]

    losses = []
    for (group, topic), messages in (unread(len(going)) if going else {}).items():
        first = bisect_left(
            range(len(going) + 1), 1, key=lambda removed: min(unread(removed).get((group, topic), 0), 1)
        )
        when = going[first - 1].deleteTimestamp
        assert when is not None, "only those that go"
        losses.append(UnreadLoss(group=group, topic=topic, messages=messages, deleteTimestamp=when))
    return sorted(losses, key=lambda loss: (loss.deleteTimestamp, loss.group or "", loss.topic))


# -- rates and the disk -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """Size of a partition, space used, and space available to the broker's user, in bytes."""

    size: int
    used: int
    free: int

    @classmethod
    def of(cls, path: str) -> "Disk":
        """The partition that a path is on."""
        status = os.statvfs(path)
        unit = status.f_frsize
        return cls(unit * status.f_blocks, unit * (status.f_blocks - status.f_bfree), unit * status.f_bavail)

    @property
    def ratio(self) -> float:
        """Used fraction, rounded up to hundredths as a broker does."""
        return _ratio(self.used, self.used + self.free)


def _ratio(used: float, whole: int) -> float:
    return -(-int(used) * 100 // whole) / 100 if whole else 0.0


def _first_time(files: list[Segment]) -> int | None:
    """The store timestamp of the first message."""
    for file in files:
        record = record_at(file.map(), record_start(file.map(), 0), file.size, crc=False)
        if isinstance(record, Record):
            return record.store_timestamp
    return None


def _bytes_since(log: CommitLog, time: int) -> int:
    """Bytes of log stored at or after a time, by store timestamps, which ascend unless a clock was set."""
    files = log.segments.files
    end, _last = log.end()
    starts = [_first_time([file]) for file in files]
    after = next((number for number, start in enumerate(starts) if start is not None and start >= time), len(files))
    if not after:
        return end - max(log.min_offset, 0)
    file = files[after - 1]
    for item in scan_file(file, last=file is files[-1], crc=False):
        if isinstance(item, FileRows) and len(late := np.flatnonzero(item.rows.store_timestamp >= time)):
            return max(end - file.base - int(item.rows.at[late[0]]), 0)
    return max(end - file.end, 0)


def _reach(
    policy: Policy, disk: Disk, files: list[LogFile], parts: list[PartUsage], rate: float, at: int, zone: tzinfo | None
) -> dict[float, int]:
    """When the partition reaches each level, simulated hour by hour, if ``rate`` bytes of log are added per ms.

    Queues and index grow with the log in their current proportion; nothing else on the partition grows.
    """
    sizes = {part.part: part.allocated for part in parts}
    log_bytes = sum(file.bytes for file in files)
    disk_bytes = sum(sizes.get(name, 0) for name in _GROWING) / log_bytes if log_bytes else 1.0  # per byte of log
    grown = rate * HOUR * (disk_bytes if rate and sizes.get(COMMIT_LOG) else 1.0)
    old = deque((file.deleteTimestamp, file.expireTimestamp, file.bytes * disk_bytes) for file in files[:-1])
    new: deque[tuple[int, float]] = deque()  # future files: when they expire, and their bytes
    levels = {policy.used, policy.full, *([policy.forced] if policy.forced is not None else [])}
    reached: dict[float, int] = {}
    used, whole = float(disk.used), disk.used + disk.free
    for hour in range(_FORESIGHT):
        time = at + hour * HOUR
        ratio = _ratio(used, whole)
        reached |= {level: time for level in levels - reached.keys() if ratio >= level}
        if len(reached) == len(levels):
            break
        early = ratio >= policy.used
        while old and (old[0][1] if early else old[0][0]) <= time:  # type: ignore[operator]  # none is the last file
            used -= old.popleft()[2]
        if early or _hour_of(time, zone) in policy.hours:
            while new and new[0][0] <= time:
                used -= new.popleft()[1]
        while policy.forced is not None and _ratio(used, whole) >= policy.forced and (old or new):
            used -= old.popleft()[2] if old else new.popleft()[1]
        used += grown
        new.append((time + policy.reserved_ms, grown))
    return reached
