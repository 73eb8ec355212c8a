"""What a command that judges a store learns of it once: settings, directories, release, log, marks of the last stop."""

from dataclasses import dataclass
from functools import cached_property

from formats import checkpoint
from formats.checkpoint import Checkpoint
from formats.topics import LMQ_PREFIX
from rmqtool.rules.releases import Release
from rmqtool.store.dispatch.batch import BatchBuilder, DelayLevels
from rmqtool.store.dispatch.light import dispatches_to_light_queues
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.releases.rules import ReleaseRules, rules_for


@dataclass(frozen=True, kw_only=True)
class StoreInputs:
    """A store as it was found. Nothing here changes while it is judged.

    Attributes:
        layout: its paths; each directory is listed once (:meth:`StoreLayout.listed_once`).
        rules: of the release that is followed; ``reason`` says why that one, ``warnings`` what speaks against it.
        aborted: the last broker did not stop cleanly.
        levels: of delayed messages, as a running broker has them.
        light_queues: whether messages are dispatched to the further queues that they name.
        fix_delay_times: give delayed messages that are dispatched again after a crash their true deliver time, where a
            4.9 broker would have them delivered at once.
        whole: what a broker's start leaves undone is done too, and what it would not load is mended; false to do what
            the broker does.
        quick: of that, only what is known to be damaged without comparing queues and index with the log.
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
        """Look at a store.

        Args:
            release: whose rules to follow; None for the release that seems to have written the store.
            exactly: do what a 5.3 broker does even where it leaves out a message that no queue has.
            fix_delay_times, whole, quick: see above; ``exactly`` leaves nothing to be made whole.

        Raises:
            UnreadableStore: a directory or a file that tells the release cannot be read.
            CorruptFile: a setting is not what it should be.
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
            light_queues=dispatches_to_light_queues(layout.conf, lambda: layout.has_queues(LMQ_PREFIX)),
            fix_delay_times=fix_delay_times,
            whole=whole and not exactly,
            quick=quick,
        )

    @property
    def mends_compaction(self) -> bool:
        """Whether logs of compacted topics are made again where something is wrong with them."""
        return self.whole and not self.quick

    @property
    def knows_delays(self) -> bool:
        """Whether delayed messages get their deliver time already while the log is checked."""
        return self.fix_delay_times or self.rules.knows_delays

    def batch_builder(self, *, delays: bool = True, light_queues: bool = True) -> BatchBuilder:
        """Collects records as this store's broker dispatches them.

        Args:
            delays: delayed messages get their deliver time.
            light_queues: messages go to the further queues that they name, where the settings have it.
        """
        return BatchBuilder(
            self.levels if delays else DelayLevels([]),
            light_queues=light_queues and self.light_queues,
            index_tags=self.rules.release.indexes_tags,
        )

    @property
    def indexed(self) -> bool:
        """Whether the settings have messages put into the index."""
        return self.layout.conf.writes_index_files

    @property
    def checks_crc(self) -> bool:
        """Whether recovery compares checksums of bodies."""
        return self.layout.conf.flag("checkCRCOnRecover", True)

    @cached_property
    def queue_size(self) -> int:
        """Bytes of each queue file. Asked for once, because it may take a look at every queue."""
        return self.layout.queue_size()

    @cached_property
    def batch_queue_size(self) -> int:
        """Bytes of each file of batch queues; as :attr:`queue_size`."""
        return self.layout.batch_queue_size()

    @cached_property
    def geometry(self) -> tuple[int, int]:
        """(hash slots, entries) of new index files."""
        return geometry_of(self.layout)
