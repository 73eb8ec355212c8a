"""The inputs of every assessment of a store: settings, directories, release, log, and marks of the last stop."""

from dataclasses import dataclass
from functools import cached_property

from formats import checkpoint
from formats.checkpoint import Checkpoint
from formats.topics import LMQ_PREFIX
from rmqtool.rules.releases import Release
from rmqtool.store.dispatch.batch import BatchBuilder, DelayLevels
from rmqtool.store.dispatch.light import dispatches_to_light_queues
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.index.tags import has_tag_entries
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import light_queues_in_database
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.releases.rules import ReleaseRules, rules_for


@dataclass(frozen=True, kw_only=True)
class StoreInputs:
    """A snapshot of a store, unchanged while it is judged.

    Attributes:
        layout: its paths; each directory is listed once (:meth:`StoreLayout.listed_once`).
        rules: of the release that is followed, with a ``reason`` and ``warnings``.
        aborted: whether the last broker did not stop cleanly.
        levels: delay levels of a running broker.
        light_queues: whether messages are dispatched to the additional queues in their properties, in files.
        fix_delay_times: whether delayed messages dispatched again after a crash get their deliver time, although a 4.9
            broker would deliver them at once.
        whole: whether to go beyond a broker's start: dispatch what it leaves out, and repair what it would not load.
        quick: with ``whole``, repair only what is known to be damaged without comparing queues and index with the log.
    """

    layout: StoreLayout
    rules: ReleaseRules
    reason: str
    warnings: list[str]
    log: CommitLog
    aborted: bool
    checkpoint: Checkpoint
    levels: DelayLevels
    light_queues: bool
    fix_delay_times: bool = False
    whole: bool = False
    quick: bool = False

    @classmethod
    def of(
        cls,
        layout: StoreLayout,
        *,
        release: Release | None = None,
        exactly: bool = False,
        fix_delay_times: bool = False,
        whole: bool = False,
        quick: bool = False,
    ) -> "StoreInputs":
        """Take a snapshot of a store.

        Args:
            release: whose rules to follow; None for the release that seems to have written the store.
            exactly: do what a 5.3 broker does even if it skips a message that is missing in the queues.
            fix_delay_times, whole, quick: see above; ``exactly`` disables ``whole``.

        Raises:
            UnreadableStore: a directory, or a file needed to determine the release, cannot be read.
            CorruptFile: a setting is invalid.
        """
        layout = layout.listed_once()
        rules, reason, warning = rules_for(layout, release, exactly=exactly)
        return cls(
            layout=layout,
            rules=rules,
            reason=reason,
            warnings=[] if warning is None else [warning],
            log=CommitLog(layout),
            aborted=layout.aborted,
            checkpoint=checkpoint.parse(layout.checkpoint() or b""),
            levels=DelayLevels(layout.conf.delay_levels),
            light_queues=not light_queues_in_database(layout)
            and dispatches_to_light_queues(layout.conf, lambda: layout.has_queues(LMQ_PREFIX)),
            fix_delay_times=fix_delay_times,
            whole=whole and not exactly,
            quick=quick,
        )

    @property
    def mends_compaction(self) -> bool:
        """Whether damaged logs of compacted topics are rebuilt."""
        return self.whole and not self.quick

    @property
    def knows_delays(self) -> bool:
        """Whether delayed messages get their deliver time while the log is checked."""
        return self.fix_delay_times or self.rules.knows_delays

    def batch_builder(
        self, *, delays: bool = True, light_queues: bool = True, keeps_tags: bool = False
    ) -> BatchBuilder:
        """A builder that collects records as this store's broker dispatches them.

        Args:
            delays: whether delayed messages get their deliver time.
            light_queues: whether messages go to additional queues, if the settings allow it.
            keeps_tags: whether tags are also indexed if these rules do not, but the index has some.
        """
        return BatchBuilder(
            self.levels if delays else DelayLevels([]),
            light_queues=self.rules.release if light_queues and self.light_queues else None,
            index_tags=self.rules.release.indexes_tags or (keeps_tags and self._has_tag_entries),
        )

    @cached_property
    def _has_tag_entries(self) -> bool:
        """Whether a broker of 5.4 or later has added to the index; nothing else may show it."""
        return self.indexed and has_tag_entries(self.layout, self.log)

    @property
    def indexed(self) -> bool:
        """Whether the settings enable the index."""
        return self.layout.conf.writes_index_files

    @property
    def checks_crc(self) -> bool:
        """Whether recovery verifies body checksums."""
        return self.layout.conf.flag("checkCRCOnRecover", True)

    @cached_property
    def queue_size(self) -> int:
        """Bytes per queue file. Computed once, since it may look at every queue."""
        return self.layout.queue_size()

    @cached_property
    def batch_queue_size(self) -> int:
        """Bytes per batch queue file; like :attr:`queue_size`."""
        return self.layout.batch_queue_size()

    @cached_property
    def geometry(self) -> tuple[int, int]:
        """(hash slots, entries) of new index files."""
        return geometry_of(self.layout)
