"""What all checks of one store share: the files, the settings, where the next start would begin, and the findings."""

import os

from formats import checkpoint
from rmqtool.store.check.common.findings import Collector
from rmqtool.store.dispatch.batch import DelayLevels
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.releases.rules import rules_for

LIGHT_PREFIX = "%LMQ%"


class Context:
    """State that checks hand to each other.

    Attributes:
        found: takes the findings.
        rules: of the release that seems to have written the store.
        start_number: of the commit-log file at which the next start begins its check.
        start_after_next: of that at which the one after it does, if it comes after a clean stop.
        redispatch_from: messages at or behind this physical offset get their queue entries anew at the next start,
            where a queue lacks them at its end; None while the store is as after a clean stop.
        log_absent: there are no messages although queues or checkpoint know of some.
        unread_topics: whose queues have a form that is not read: batch consume queues of 5.x.
        log_end: offset after the last readable record; known once the log was read.
        last_timestamp: highest store timestamp of the log; known then too.
        queue_ends: (topic, queue id) to the offset after the queue's last message, by its files or by the log.
        first_due: delay level to the deliver time of its first entry that is still in the log, or its tag hash.
        first_delayed: delay level to the physical offset of that entry's message.
        queue_begins: (topic, queue id) to the offset of its first entry that is still in the log.
    """

    def __init__(self, layout: StoreLayout, found: Collector) -> None:
        self.layout, self.found = layout, found
        self.log = CommitLog(layout)
        self.aborted = layout.aborted
        found.situation.aborted = self.aborted
        self.checkpoint = checkpoint.parse(layout.checkpoint() or b"")
        conf = layout.conf
        self.levels = DelayLevels(conf.delay_levels)
        self.light = conf.flag("enableMultiDispatch", conf.flag("enableLmq", layout.has_queues(LIGHT_PREFIX)))
        self.rules = rules_for(layout).rules
        self.start_number = self.start_after_next = 0
        self.redispatch_from: int | None = None
        self.log_absent = False
        batch = {topic for topic, _queue_id, _path in layout.queue_dirs("batchconsumequeue")}
        self.unread_topics = batch | self.rules.batch_topics
        found.situation.unread = bool(self.unread_topics)
        self.log_end = 0
        self.last_timestamp: int | None = None
        self.queue_ends: dict[tuple[str, int], int] = {}
        self.first_due: dict[int, int] = {}
        self.first_delayed: dict[int, int] = {}
        self.queue_begins: dict[tuple[str, int], int] = {}

    def choose_start(self, known: int | None) -> None:
        """Find out where the next start begins.

        Args:
            known: end of the last message that any queue knows, -1 without one; None where queues are no files, and so
                are taken to know all.
        """
        files = self.log.segments.files
        if not files:
            return
        known = files[-1].end if known is None else known
        self.start_after_next = self.rules.next_start(files, known)
        self.start_number, _reason = self.rules.start_number(files, self.checkpoint, known, aborted=self.aborted)
        self.redispatch_from = files[self.start_number].base if self.aborted else None

    def name(self, path: str) -> str:
        """A path as findings say it."""
        relative = os.path.relpath(path, self.layout.root)
        return path if relative.startswith("..") else relative
