"""Follow a log that a broker is writing: whole records only, across the files of the log. Nothing is locked or changed.

A broker writes through mappings, so a record is visible at once, but possibly in part. The last one is therefore held
back until it has been the same in two successive looks, or another record follows it.

A position alone proves nothing: a broker that was killed may have cut the log at its start, or the directory may have
been replaced, and other records may now lie before the position. The record before it proves that the log is the same.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from formats.endings import Ending
from rmqtool.errors import Refused
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

PAUSE = 200
"""ms between two looks."""


def follow(
    layout: StoreLayout,
    start: int,
    wait: Callable[[int], bool],
    warn: Callable[[str], None],
    *,
    last: LocatedRecord | None = None,
) -> Iterator[LocatedRecord | None]:
    """Records from a physical offset on, as they are stored; None after each look.

    Args:
        start: where a record begins, or the log ends.
        wait: pauses for some ms; returns False when following is to end.
        warn: called if records were removed before they could be read.
        last: the record that ends at the start, if known.

    Raises:
        Refused: the record read last is not there any more.
    """
    at, held = start, (-1, b"")
    proof = None if last is None else _proof_of(last)
    while True:
        log = CommitLog(layout)
        if proof is not None and log.min_offset <= proof.physical_offset and _proof_at(log, proof) != proof:
            raise Refused(
                f"{layout.root}: the message at {proof.physical_offset}, read last, is not there any more: the log was "
                "cut there, or it is another store's. Messages after it may have been shown that no longer exist, and "
                "others not: begin again with --offset"
            )
        if at < log.min_offset:
            warn(f"physical offsets {at} to {log.min_offset} were removed before they could be read")
            at = log.min_offset
        while True:
            file = log.segments.find(at)
            place = log.look(at) if file is not None else None
            if file is None or place is None:
                break
            if not isinstance(place, LocatedRecord):
                if place.ending is not Ending.FILLER or log.segments.find(file.end) is None:
                    break
                at = file.end
                continue
            content = bytes(place.file.read(place.at, place.record.total_size))
            if held != (at, content) and not isinstance(log.look(place.end), LocatedRecord):
                held = at, content  # the last one, seen for the first time
                break
            yield place
            at, proof = place.end, _proof_of(place)
        yield None
        if not wait(PAUSE):
            return


class _Proof(NamedTuple):
    """What makes a record this one. Its properties are left out: a broker may still be writing them."""

    physical_offset: int
    size: int
    body_crc: int
    queue_id: int
    queue_offset: int
    born_timestamp: int
    store_timestamp: int


def _proof_of(place: LocatedRecord) -> _Proof:
    record = place.record
    return _Proof(
        place.physical_offset, record.total_size, record.body_crc, record.queue_id, record.queue_offset,
        record.born_timestamp, record.store_timestamp,
    )  # fmt: skip


def _proof_at(log: CommitLog, proof: _Proof) -> _Proof | None:
    record = log.read(proof.physical_offset)
    return None if record is None else _proof_of(record)
