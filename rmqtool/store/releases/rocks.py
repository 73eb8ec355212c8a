"""Differences in the recovery of brokers with their queues in RocksDB (storeType=defaultRocksDB).

Source: store.CommitLog.recoverAbnormally, isMappedFileMatchedRecover; store.queue.RocksDBConsumeQueueStore of 5.3.3;
releases-5.4-5.5 3 for 5.5.0.
"""

from collections.abc import Sequence

from formats.checkpoint import Checkpoint
from rmqtool.rules.releases import V5_5, Release
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import dledger_reason
from rmqtool.store.releases.first_file import first_checked_rocks, first_checked_rocks_v5_5
from rmqtool.store.releases.rules import ReleaseRulesV5, StartsInsideFiles


class RocksRules(ReleaseRulesV5):
    """The rules of 5.3.3 with RocksDB. They are not used for writing, only to predict exactly what a broker does."""

    def _why_unsupported(self) -> str | None:
        return dledger_reason(self.layout)

    def _strange_queues(self) -> list[str]:
        """None: directories next to the database are ignored, and all topics have their queues in it."""
        return []

    def batch_dirs(self) -> list[tuple[str, int, str]]:
        return []

    def first_checked(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> tuple[int, str]:
        return first_checked_rocks(files, known, aborted=aborted)


class RocksRulesV5_5(StartsInsideFiles, RocksRules):
    """The rules of 5.5.0 with RocksDB.

    Args:
        ends: how far the databases of index and half messages, if enabled, have the log.
    """

    release: Release = V5_5

    def __init__(self, layout: StoreLayout, *, ends: Sequence[int]) -> None:
        super().__init__(layout, exactly=True)
        self._ends = ends

    def first_checked(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> tuple[int, str]:
        return first_checked_rocks_v5_5(files, self.conf, point, [known, *self._ends], aborted=aborted)

    def dispatch_from(self, point: Checkpoint, known: int) -> int:
        return self._lowest(known)

    def _lowest(self, known: int) -> int:
        """DefaultMessageStore.recover: the queues' own end counts whatever it is, others only where they have one."""
        return min([max(known, 0), *(end for end in self._ends if end > 0)])

    def dispatched_from(self, known: int, unknown: int, *, aborted: bool) -> int | None:
        lowest = self._lowest(known)
        return super().dispatched_from(lowest, lowest, aborted=aborted)
