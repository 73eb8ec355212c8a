"""Follow a log that a broker is writing: whole records only, across the files of the log. Nothing is locked or changed.

A broker writes through mappings, so a record is visible at once, but possibly in part. The last one is therefore held
back until it has been the same in two successive looks, or another record follows it.
"""

from collections.abc import Callable, Iterator

from formats.endings import Ending
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

PAUSE = 200
"""ms between two looks."""


def follow(
    layout: StoreLayout, start: int, wait: Callable[[int], bool], warn: Callable[[str], None]
) -> Iterator[LocatedRecord | None]:
    """Records from a physical offset on, as they are stored; None after each look.

    Args:
        start: where a record begins, or the log ends.
        wait: pauses for some ms; returns False when following is to end.
        warn: called if records were removed before they could be read.
    """
    at, held = start, (-1, b"")
    while True:
        log = CommitLog(layout)
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
            at = place.end
        yield None
        if not wait(PAUSE):
            return
