"""What all checks of one store share: the files, the settings, where the next start would begin, and the findings."""

import os

from formats import checkpoint
from formats.layouts.codes import MAGIC_V1
from formats.message import HEADS
from rmqtool.store.check.findings import Collector
from rmqtool.store.commit_log import CommitLog
from rmqtool.store.dispatch import DelayLevels
from rmqtool.store.layout import StoreLayout
from rmqtool.store.segments import Segment

LIGHT_PREFIX = "%LMQ%"
_SCANNED_FILES = 3
_HEAD_BYTES = 112  # of the largest record head


class Context:
    """State that checks hand to each other.

    Attributes:
        found: takes the findings.
        start_number: of the commit-log file at which the next start begins its check.
        redispatch_from: messages at or behind this physical offset get their queue entries anew at the next start,
            where a queue lacks them at its end; None while the store is as after a clean stop.
        log_absent: there is no commit log although queues have entries.
        log_end: offset after the last readable record; known once the log was read.
        last_timestamp: highest store timestamp of the log; known then too.
        queue_ends: (topic, queue id) to the offset after the queue's last message, by its files or by the log.
        first_due: delay level to the deliver time of its first entry that is still in the log, or its tag hash.
        queue_begins: (topic, queue id) to the offset of its first entry that is still in the log.
    """

    def __init__(self, layout: StoreLayout, found: Collector) -> None:
        self.layout, self.found = layout, found
        self.log = CommitLog(layout)
        self.aborted = layout.aborted
        self.checkpoint = checkpoint.parse(layout.checkpoint() or b"")
        conf = layout.conf
        self.levels = DelayLevels(conf.delay_levels)
        light = any(topic.startswith(LIGHT_PREFIX) for topic, _queue_id, _path in layout.queue_dirs())
        self.light = conf.flag("enableMultiDispatch", conf.flag("enableLmq", light))
        self.start_number = self._start_number()
        files = self.log.segments.files
        self.redispatch_from = files[self.start_number].base if self.aborted and files else None
        self.log_absent = False
        self.log_end = 0
        self.last_timestamp: int | None = None
        self.queue_ends: dict[tuple[str, int], int] = {}
        self.first_due: dict[int, int] = {}
        self.queue_begins: dict[tuple[str, int], int] = {}

    def name(self, path: str) -> str:
        """A path as findings say it."""
        relative = os.path.relpath(path, self.layout.root)
        return path if relative.startswith("..") else relative

    def _start_number(self) -> int:
        """As :class:`rmqtool.store.recover.Recovery` chooses it."""
        files = self.log.segments.files
        if not self.aborted:
            return max(0, len(files) - _SCANNED_FILES)
        conf = self.layout.conf
        with_index = conf.flag("messageIndexEnable", True) and conf.flag("messageIndexSafe", False)
        limit = self.checkpoint.min_timestamp_index if with_index else self.checkpoint.min_timestamp
        for number in range(len(files) - 1, -1, -1):
            first = _first_timestamp(files[number])
            if first is not None and first <= limit:
                return number
        return 0


def _first_timestamp(file: Segment) -> int | None:
    view = file.view()
    try:
        if len(view) < _HEAD_BYTES or int.from_bytes(view[4:8], "big", signed=True) != MAGIC_V1:
            return None
        at = HEADS[int.from_bytes(view[36:40], "big") & 0x30].offsets["store_timestamp"]
        return int.from_bytes(view[at : at + 8], "big", signed=True) or None
    finally:
        file.release()
