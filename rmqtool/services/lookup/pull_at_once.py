"""Fast pulls without a filter: the result of :func:`select` by one call, in an eighth of the time."""

from formats.layouts.derived import CQ_ENTRY
from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.pull import PullKernel, puller
from rmqtool.rules.releases import Release
from rmqtool.rules.statuses import GetStatus
from rmqtool.services.lookup.get_message import Limits, PulledRecords
from rmqtool.store.disk.mapping import is_partial
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import UNIT
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import ConsumeQueue

_ROOM = 4 << 20  # bytes of the largest answer; larger ones are read by :func:`select`


class PullAtOnce:
    """Reads pulls; not thread-safe.

    Args:
        code: the implementation to use, C or Python.
    """

    def __init__(self, *, code: Implementation | None = None) -> None:
        self._code = code
        self._puller: tuple[int, PullKernel] | None = None  # and how many bytes it has room for
        self._mapped: tuple[Segment, Memory] | None = None  # the file of the log read last

    def pull(
        self, log: CommitLog, queue: ConsumeQueue, offset: int, most: int, *, log_end: int, release: Release | None
    ) -> PulledRecords | None:
        """The answer if all its messages are in one file; None if :func:`select` has to read them.

        Args:
            most, log_end, release: as ``max_msg_nums`` and these for :func:`select`.
        """
        low, high = queue.min_offset(log.min_offset, release), queue.max_offset
        entries_file = queue.segments.find(offset * UNIT)
        if not low <= offset < high or entries_file is None or is_partial(view := entries_file.map()):
            return None
        near, far, kept = Limits.of(log.layout.conf).within(most)
        start, stop = (at * UNIT - entries_file.base for at in (offset, min(high, offset + near.messages)))
        entries = bytes(view[start:stop])
        if len(entries) < UNIT:
            return None
        file = log.segments.find(CQ_ENTRY.unpack_from(entries)[0])
        if file is None or (memory := self._memory(file)) is None:
            return None
        room = min(max(near.bytes, far.bytes), _ROOM)
        if self._puller is None or self._puller[0] != room:
            self._puller = room, puller(room, code=self._code)
        records = self._puller[1].pull(entries, memory, file.base, log_end - kept, near, far)
        return None if records is None else PulledRecords(GetStatus.FOUND, offset + records[0], low, high, *records)

    def _memory(self, file: Segment) -> Memory | None:
        """The mapped bytes of a file of the log; None if not available."""
        if self._mapped is None or self._mapped[0] is not file:
            view = file.map()
            if is_partial(view):
                return None
            self._mapped = file, Memory(view)
        return self._mapped[1]

    def forget(self) -> None:
        """Release the file read last."""
        self._mapped = None
