"""Shared state of the checks of one store: the store, the findings, and what one check determines for others."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from formats.checkpoint import Checkpoint
from formats.config.files import Topics
from formats.config.topic_kinds import nature_of
from formats.model.topics import TopicConfig
from rmqtool.errors import RmqError
from rmqtool.rules.releases import Release
from rmqtool.store.check.common.findings import FindingCollector
from rmqtool.store.config.files import read_config
from rmqtool.store.dispatch.light import dispatches_to_light_queues
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import light_queues_in_database, queue_database_place
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.releases.first_file import SCANNED_FILES
from rmqtool.store.releases.rules import ReleaseRules
from rmqtool.store.tier.tier import Tier

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStart:
    """Where the next start begins its check of the log; by default at the first file.

    Attributes:
        number: number of the commit-log file.
        after_next: the same for the start after that, if there is a clean stop in between.
        redispatch_from: the next start adds missing entries at the end of queues for messages at or after this physical
            offset; None in the state after a clean stop.
    """

    number: int = 0
    after_next: int = 0
    redispatch_from: int | None = None


@dataclass(slots=True)
class LogSeen:
    """Results of the check of the log; complete when it has finished.

    Attributes:
        end: physical offset after the last readable record.
        first_timestamp: lowest store timestamp, ms; None without a message.
        last_timestamp: highest store timestamp, ms; None without a message.
        absent: whether there are no messages, although queues or checkpoint refer to some.
    """

    end: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    absent: bool = False


@dataclass(slots=True)
class QueuesSeen:
    """Results of the check of the queues; complete when it has finished.

    Attributes:
        ends: queue offset after each queue's last message, by its files or by the log.
        deleted: deleted topics.
        begins: queue offset of each queue's first entry whose message is still in the log.
        first_due: by delay level, the deliver time (or tag hash) in its first entry whose message is still in the log.
        first_delayed: by delay level, the physical offset of that message.
    """

    ends: dict[QueueKey, int] = field(default_factory=dict)
    begins: dict[QueueKey, int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    first_due: dict[int, int] = field(default_factory=dict)
    first_delayed: dict[int, int] = field(default_factory=dict)


class Context:
    """One check of a store.

    Attributes:
        found: collects the findings.
        inputs: the store, with the rules of the given release or of the one that seems to have written the store.
        batch_topics: topics that have batch consume queues, by their files or by topics.json.
        light_in_database: whether light queues are only in a database beside the queue files.
        start: where the next start begins; set by :meth:`choose_start`.
        log_seen: results of the check of the log.
        queues_seen: results of the check of the queues.
    """

    def __init__(self, layout: StoreLayout, findings: FindingCollector, release: Release | None = None) -> None:
        self.found = findings
        self.inputs = StoreInputs.of(layout, release=release)
        self.light_in_database = light_queues_in_database(layout)
        if queue_database_place(layout) is not None or self.light_in_database:
            # after a kill the database may have no queues yet; the messages show it, as only such a broker numbers them
            light = dispatches_to_light_queues(layout.conf, lambda: True)
            self.inputs = replace(self.inputs, light_queues=light)
        batch = {topic for topic, _queue_id, _path in self.layout.queue_dirs("batchconsumequeue")}
        self.batch_topics = batch | self.rules.batch_topics
        self.start = NextStart()
        self.log_seen, self.queues_seen = LogSeen(), QueuesSeen()
        findings.situation.aborted = self.inputs.aborted
        findings.topic_kind = self._topic_kind

    @cached_property
    def _topics(self) -> Mapping[str, TopicConfig]:
        """The table of topics that a broker would start with; empty if it cannot be read."""
        for bak in (False, True):
            with suppress(RmqError):
                if isinstance(config := read_config(self.layout, "topics.json", bak=bak), Topics):
                    return config.topics
        return {}

    @cached_property
    def tier(self) -> Tier | None:
        """The tier; None if there is none or it cannot be read."""
        with suppress(RmqError):
            return Tier.of(self.layout)
        return None  # reported by the check of the tier

    def begin_of(self, key: QueueKey) -> int:
        """The lowest queue offset available to consumers, from the local log or the tier."""
        begin = self.queues_seen.begins.get(key, 0)
        return begin if self.tier is None else self.tier.begin(*key, begin)

    def end_of(self, key: QueueKey) -> int:
        """The queue offset after a queue's last message, in the local queue or in the tier."""
        end, tier = self.queues_seen.ends.get(key, 0), self.tier.queues.get(key) if self.tier is not None else None
        return end if tier is None else max(end, tier.max_offset)

    def _topic_kind(self, topic: str) -> str:
        return ", ".join(nature_of(topic, self._topics))

    @property
    def layout(self) -> StoreLayout:
        """Paths and directories of the store."""
        return self.inputs.layout

    @property
    def log(self) -> CommitLog:
        """The commit log."""
        return self.inputs.log

    @property
    def rules(self) -> ReleaseRules:
        """The rules of the given release, or of the one that seems to have written the store."""
        return self.inputs.rules

    @property
    def checkpoint(self) -> Checkpoint:
        """The parsed checkpoint."""
        return self.inputs.checkpoint

    def choose_start(self, known: int | None) -> None:
        """Determine where the next start begins.

        Args:
            known: end of the last message in any queue, -1 without one; None if the queues are not files, in which case
                they are assumed to be complete.
        """
        files, aborted = self.log.segments.files, self.inputs.aborted
        if not files:
            return
        known = files[-1].end if known is None else known
        if files[-1].entries:  # DLedgerMmapFileStore.recover
            number = max(0, len(files) - SCANNED_FILES)
            redispatch_from = files[number].base if aborted else None
            self.start = NextStart(number=number, after_next=number, redispatch_from=redispatch_from)
            return
        number, _reason = self.rules.first_checked(files, self.checkpoint, known, aborted=aborted)
        self.start = NextStart(
            number=number,
            after_next=self.rules.next_start(files, known),
            redispatch_from=files[number].base if aborted else None,
        )

    def is_passed(self, *parts: str) -> bool:
        """Whether a file could not be read, which is reported separately."""
        return self.layout.path(*parts) in (self.layout.passed or {})

    def name(self, path: str) -> str:
        """A path as shown in findings."""
        relative = os.path.relpath(path, self.layout.root)
        return path if relative.startswith("..") else relative
