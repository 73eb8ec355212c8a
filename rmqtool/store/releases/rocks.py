"""What a broker of 5.3 does differently in recovery where its queues are in RocksDB (storeType=defaultRocksDB).

Source: store.CommitLog.recoverAbnormally, isMappedFileMatchedRecover; store.queue.RocksDBConsumeQueueStore of 5.3.3.
"""

from formats.checkpoint import Checkpoint
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.version import dledger_reason
from rmqtool.store.releases.first_file import first_checked_rocks
from rmqtool.store.releases.rules import ReleaseRulesV5


class RocksRules(ReleaseRulesV5):
    """Those of 5.3.3 with RocksDB. Nothing is written by them: they say what the broker does, to the letter."""

    def _why_unsupported(self) -> str | None:
        return dledger_reason(self.layout)

    def _strange_queues(self) -> list[str]:
        """Directories beside the database are passed over, and all topics have their queues in it."""
        return []

    def batch_dirs(self) -> list[tuple[str, int, str]]:
        return []

    def first_checked(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> tuple[int, str]:
        return first_checked_rocks(files, known, aborted=aborted)
