"""Compare master epochs with the log: which broker stored each part of it.

Every record has the address of the broker that stored it. In controller mode an epoch has one master, which stores all
its records, so the address changes only where an epoch begins.

5.x truncates a replica's log in memory alone: the old bytes stay in the file until they are overwritten. If the broker
is killed before that, and a record of the new master ends where an old one begins, its next start reads on: the old
records, which its group has replaced, become part of the log again.

Source: store.ha.autoswitch (AutoSwitchHAClient.doTruncate, EpochFileCache), store.MappedFileQueue.truncateDirtyFiles.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from formats.message.properties import REAL_TOPIC
from formats.message.read import HEADS, HOSTS_V6, Record, read
from formats.primitives import STORE_V6, TRANSACTION_MASK, host_text
from formats.variants import epoch
from formats.variants.epoch import Epoch
from rmqtool.kernels.scan import Rows
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import EPOCHS, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.log.scan import FileRows, scan_file

_ADDRESS = {0: 4 + 4, STORE_V6: 16 + 4}  # bytes of an address and its port, by the flag of a record
_WIDEST = max(_ADDRESS.values())
_MOVED = (f"{REAL_TOPIC}\x01".encode(), b"TIMER_")  # properties of messages that keep the address they had elsewhere
Host = tuple[bytes, int]


class Handover(NamedTuple):
    """A place where another broker begins to store records.

    Attributes:
        after: physical offset after the last record of the broker before.
        at: physical offset of the first record of this one; in between are only messages that were moved to their
            topic, which keep the address they had before.
        host, before: addresses of this broker and of the one before.
        time, time_before: store timestamps of these two records, ms.
    """

    after: int
    at: int
    host: Host
    before: Host
    time: int
    time_before: int


class Unlisted(NamedTuple):
    """A handover at which no epoch begins, in the epoch ``number``."""

    number: int
    handover: Handover

    def __str__(self) -> str:
        before, host = (host_text(*host) for host in (self.handover.before, self.handover.host))
        return f"epoch {self.number}: {before} stored up to {self.handover.after}, {host} from {self.handover.at} on"


@dataclass(slots=True)
class EpochAudit:
    """Epochs and log compared.

    Attributes:
        stale: where records begin that were truncated in memory alone, and the epoch in which they lie; None without.
        unlisted: other handovers at which no epoch begins.
    """

    stale: Unlisted | None = None
    unlisted: list[Unlisted] = field(default_factory=list)

    @property
    def stale_from(self) -> int | None:
        """Physical offset of the first of those records."""
        return self.stale.handover.at if self.stale is not None else None


def read_epochs(layout: StoreLayout) -> list[Epoch]:
    """The epochs of a replica, from the ``.bak`` if the file itself is missing; empty for other stores.

    Raises:
        FormatError, RmqError: the file cannot be read.
    """
    data = read_small(layout.path(EPOCHS)) or read_small(layout.path(EPOCHS + ".bak"))
    return epoch.parse(data) if data else []


def audit_epochs(log: CommitLog, epochs: Sequence[Epoch]) -> EpochAudit:
    """Compare epochs, in increasing order, with the log; the whole log is read once.

    Raises:
        UnreadableStore: a file of the log cannot be read.
    """
    audit = EpochAudit()
    hosts: list[Host] = []  # of all records before the current epoch
    number = 0
    for handover in find_handovers(log):
        while number + 1 < len(epochs) and epochs[number + 1].start_offset <= handover.at:
            number += 1
        if not epochs or handover.at < epochs[0].start_offset:
            continue
        start = epochs[number].start_offset
        hosts.append(handover.before)
        if handover.after <= start:
            continue
        unlisted = Unlisted(epochs[number].epoch, handover)
        returns = handover.host in hosts[:-1] and handover.time < handover.time_before
        if returns and number == len(epochs) - 1:
            audit.stale = unlisted
            break
        audit.unlisted.append(unlisted)
    return audit


def find_handovers(log: CommitLog) -> Iterator[Handover]:
    """The places where another broker begins to store records.

    Raises:
        UnreadableStore: a file of the log cannot be read.
    """
    last: tuple[bytes, int, int] | None = None  # key, end and store timestamp of the last record that was not moved
    for file in log.segments:
        for item in scan_file(file, last=file is log.segments.files[-1], crc=False):
            if isinstance(item, Damage):
                continue
            keys, rows = _keys_of(item), item.rows
            edges = [0, *(np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1).tolist(), len(keys)]
            for start, stop in pairwise(edges):
                key = keys[start].tobytes()
                if last is not None and key != last[0]:
                    first = _first_stored(file, item.rows, start, stop)
                    if first is None:  # moved messages of another broker
                        continue
                    row, record = first
                    yield Handover(
                        after=last[1], at=file.base + int(rows.at[row]),
                        host=(record.store_address, record.store_port), before=_host_of(last[0]),
                        time=record.store_timestamp, time_before=last[2],
                    )  # fmt: skip
                end = file.base + int(rows.at[stop - 1]) + int(rows.total_size[stop - 1])
                last = key, end, int(rows.store_timestamp[stop - 1])
        file.release()


def _keys_of(item: FileRows) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Address and port of each record, in rows of equal width; the first byte is the number of bytes that count."""
    data, rows = np.frombuffer(item.view, np.uint8), item.rows
    keys = np.zeros((len(rows.at), 1 + _WIDEST), np.uint8)
    for flags, head in HEADS.items():
        width = _ADDRESS[flags & STORE_V6]
        chosen = np.flatnonzero(rows.sys_flag & HOSTS_V6 == flags)
        if len(chosen):
            places = rows.at[chosen, np.newaxis] + head.offsets["store_address"] + np.arange(width)
            keys[chosen, 0] = width
            keys[chosen, 1 : 1 + width] = data[places]
    return keys


def _host_of(key: bytes) -> Host:
    width = key[0]
    return key[1 : width - 3], int.from_bytes(key[width - 3 : width + 1], "big", signed=True)


def _first_stored(file: Segment, rows: Rows, start: int, stop: int) -> tuple[int, Record] | None:
    """(row, record) of the first record that is no moved message; moved ones keep the address they had before."""
    view = file.map()
    for row in range(start, stop):
        record = read(view, int(rows.at[row]), file.size, crc=False)
        if isinstance(record, Record) and not _is_moved(record):
            return row, record
    return None


def _is_moved(record: Record) -> bool:
    """Whether a record is a message that became due, or whose transaction ended."""
    return bool(record.sys_flag & TRANSACTION_MASK) or any(name in record.properties for name in _MOVED)
