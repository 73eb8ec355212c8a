"""One of several copies of a store: its role, the ends of its log, and the part that its group has confirmed.

Source: io.openmessaging.storage.dledger (MemberState, DLedgerMmapFileStore), store.ha.autoswitch.EpochFileCache,
store.ha.DefaultHAClient.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from formats.checkpoint import parse as parse_checkpoint
from formats.errors import FormatError
from formats.message.read import Record, read
from formats.variants.dledger import DLedgerEntry
from rmqtool.errors import RmqError
from rmqtool.store.config.release import first_version, version_of
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.layout.paths import EPOCHS, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.log.epochs import read_epochs
from rmqtool.store.log.scan import scan_file
from rmqtool.store.recovery.dledger.member import MemberRefused, judge_member
from rmqtool.store.roles.table import Role, RoleFact, roles_of
from rmqtool.store.salvage.records import torn_properties
from rmqtool.store.tier.only_tiered import find_only_tiered

Warn = Callable[[str], None]


class Period(NamedTuple):
    """A term of DLedger, or a master's epoch: all that was written from a physical offset on, until the next one.

    Attributes:
        first_index: index of the first entry in it; None for an epoch.
    """

    number: int
    start: int
    first_index: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaEnd:
    """The end of a log.

    Attributes:
        whole: physical offset after the last intact record.
        torn: number of written bytes after it.
        reason: what is there; empty without such bytes.
        last_time: store timestamp of that record; None without one.
        torn_properties: why the properties of the last record are incomplete; None if they are complete.
    """

    whole: int
    torn: int = 0
    reason: str = ""
    last_time: int | None = None
    torn_properties: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a copy itself knows of its place in its group; -1 for what is not known.

    Attributes:
        periods: its terms or epochs, oldest first.
        last_index: index of the last DLedger entry.
        current_term: the term in which it voted last.
        committed_index: index of the last DLedger entry known to be on a majority.
        confirmed: physical offset up to which the group is known to have everything.
    """

    periods: list[Period] = field(default_factory=list)
    last_index: int = -1
    current_term: int = -1
    committed_index: int = -1
    confirmed: int = -1

    @property
    def last_period(self) -> int:
        """Its last term or epoch."""
        return self.periods[-1].number if self.periods else -1


class AckRule(NamedTuple):
    """How many of ``members`` replicas must have a message before it is acknowledged; 0 where nothing says so."""

    members: int
    needed: int


class Replica:
    """One copy, read-only.

    Args:
        warn: called with what cannot be read of its standing.
    """

    def __init__(self, layout: StoreLayout, warn: Warn) -> None:
        self.layout, self.log, self._warn = layout, CommitLog(layout), warn
        self.roles = roles_of(layout)

    @property
    def path(self) -> str:
        """Its directory."""
        return self.layout.root

    @property
    def role(self) -> RoleFact:
        """The broker's own role."""
        return self.roles[0]

    @property
    def is_dledger(self) -> bool:
        """Whether it is a member of a DLedger group."""
        return self.role.role is Role.DLEDGER

    @property
    def is_controlled(self) -> bool:
        """Whether a controller elects the master of its group."""
        return self.role.role is Role.CONTROLLER

    @cached_property
    def release(self) -> tuple[str, str]:
        """("4.x" or "5.x", the sign of it)."""
        return version_of(self.layout, first_version(self.layout))

    @cached_property
    def end(self) -> ReplicaEnd:
        """The end of its log."""
        end = _find_end(self.log)
        if self.stale_tail is None or self.stale_tail >= end.whole:
            return end
        return ReplicaEnd(self.stale_tail, last_time=end.last_time)

    @cached_property
    def stale_tail(self) -> int | None:
        """Physical offset from which on a DLedger log has entries that its group has replaced; None without."""
        logs = DLedgerLog.of(self.layout) if self.is_dledger else []
        return logs[0].find_stale_tail() if logs else None

    @cached_property
    def refusal(self) -> str | None:
        """Why the broker of a DLedger member does not start; None if it does."""
        try:
            for log in DLedgerLog.of(self.layout) if self.is_dledger else ():
                judge_member(log, self.layout.commit_log_size(log.data))
        except MemberRefused as refusal:
            return str(refusal)
        except RmqError:  # is reported where the log is read
            pass
        return None

    @cached_property
    def standing(self) -> Standing:
        """Its place in its group."""
        if self.is_dledger:
            return self._member_standing()
        confirmed = parse_checkpoint(self._content("checkpoint")).confirm_phy_offset if self.is_controlled else 0
        return Standing(periods=self._epochs(), confirmed=confirmed or -1)

    @cached_property
    def in_tier(self) -> int:
        """Number of its messages that are in its tier alone."""
        return sum(queue.messages for queue in find_only_tiered(self.layout))

    def ack_rule(self) -> AckRule:
        """When its group acknowledges a message, as far as its settings say."""
        conf = self.layout.conf
        if self.is_dledger:
            peers = self.peers()
            return AckRule(peers, peers // 2 + 1) if peers is not None else AckRule(0, 0)
        if not self.is_controlled and (conf.text("brokerRole") or "").upper() != "SYNC_MASTER":
            return AckRule(0, 0)
        in_sync = conf.number("inSyncReplicas", 1 if self.release[0].startswith("5") else 2)
        if conf.flag("enableAutoInSyncReplicas", default=False):
            in_sync = min(in_sync, conf.number("minInSyncReplicas", 1))
        return AckRule(conf.number("totalReplicas", 0), in_sync if in_sync > 1 else 0)

    def peers(self) -> int | None:
        """Number of members of its DLedger group; None if its settings do not say."""
        peers = [peer for peer in (self.layout.conf.text("dLegerPeers") or "").split(";") if peer.strip()]
        return len(peers) or None

    def _epochs(self) -> list[Period]:
        try:
            return [Period(*entry) for entry in read_epochs(self.layout)]
        except FormatError as err:
            self._warn(f"{self.layout.path(EPOCHS)}: {err}")
        except RmqError as err:
            self._warn(str(err))
        return []

    def _content(self, name: str) -> bytes:
        try:
            return read_small(self.layout.path(name)) or b""
        except RmqError as err:
            self._warn(str(err))
            return b""

    def _member_standing(self) -> Standing:
        logs = DLedgerLog.of(self.layout)
        if not logs:
            return Standing()
        log, committed, confirmed, term = logs[0], -1, -1, -1
        try:
            committed, term = log.marks()[1], log.term()[0]
            unit = log.unit(committed)
            if unit is not None and log.entry(unit) is not None:
                confirmed = unit.position + unit.size
            elif committed >= 0 and (last := log.last()) is not None and committed > last.index:
                confirmed = last.position + last.size  # all that it has
        except (FormatError, RmqError) as err:
            self._warn(f"{log.folder}: {err}")
        periods, last_index = _terms(log, self.stale_tail)
        return Standing(
            periods=periods, last_index=last_index, current_term=term, committed_index=committed, confirmed=confirmed
        )


def _terms(log: DLedgerLog, stale_tail: int | None) -> tuple[list[Period], int]:
    """(terms of a DLedger log, index of its last entry); terms never fall, so the index is searched by halves."""
    try:
        last = log.last()
    except (FormatError, RmqError):
        last = None
    first = next((entry for _file, _at, entry in log.entries() if isinstance(entry, DLedgerEntry)), None)
    if last is None or first is None or stale_tail is not None:
        return _terms_by_entries(log, stale_tail)
    periods: list[Period] = []
    index = first.index
    try:
        while index <= last.index:
            entry = _entry_of(log, index)
            periods.append(Period(entry.term, entry.position, index))
            index = bisect_right(range(last.index + 1), entry.term, index, key=lambda at: _entry_of(log, at).term)
    except LookupError:
        return _terms_by_entries(log, None)
    return periods, last.index


def _entry_of(log: DLedgerLog, index: int) -> DLedgerEntry:
    """The entry of an index.

    Raises:
        LookupError: its unit does not lead to it.
    """
    unit = log.unit(index)
    entry = log.entry(unit) if unit is not None else None
    if entry is None:
        raise LookupError(index)
    return entry


def _terms_by_entries(log: DLedgerLog, stale_tail: int | None) -> tuple[list[Period], int]:
    periods: list[Period] = []
    last = -1
    for _file, position, entry in log.entries():
        if isinstance(entry, DLedgerEntry) and (stale_tail is None or position < stale_tail):
            last = entry.index
            if not periods or entry.term > periods[-1].number:
                periods.append(Period(entry.term, position, entry.index))
    return periods, last


def _find_end(log: CommitLog) -> ReplicaEnd:
    """The end of the last file that has a record, and what is written after it."""
    for file in reversed(log.segments.files):
        at, size, reason = -1, 0, ""
        if has_bytes(file.path, 0, file.size):
            for item in scan_file(file, last=True):
                if isinstance(item, Damage):
                    reason = reason or item.reason
                else:
                    at, size, reason = int(item.rows.at[-1]), int(item.rows.total_size[-1]), ""
        record = read(file.map(), at, file.size, crc=False) if size else None
        file.release()
        if isinstance(record, Record):
            whole = at + size
            torn = has_bytes(file.path, whole, file.size) - whole if reason else 0
            return ReplicaEnd(file.base + whole, max(torn, 0), reason, record.store_timestamp, torn_properties(record))
    return ReplicaEnd(max(log.min_offset, 0))
