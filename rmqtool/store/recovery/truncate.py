"""Cut a log at a message that somebody names, and queues and index with it: recovery with the end given."""

from formats.endings import Ending
from formats.message.read import End
from rmqtool.errors import BadValue, CorruptFile, Refused, UnreadableStore
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import is_zero
from rmqtool.store.dispatch.batch import BatchBuilder, checked, reput_batches
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.plan import Recovery, Stage


class Truncate(Recovery):
    """One run.

    Args:
        layout: the store; it must have been stopped cleanly.
        stage: gives a path for a new staging file, outside the store.
        physical_offset: of the first message that goes.
    """

    def __init__(self, layout: StoreLayout, stage: Stage, physical_offset: int) -> None:
        super().__init__(layout, stage)
        self._cut = self.lost_from = physical_offset

    def run(self) -> None:
        """Find out what goes.

        Raises:
            Refused: the store was not stopped cleanly.
            UnreadableStore: there is no log.
            BadValue: no message begins there, and the log does not end there.
            CorruptFile: the log does not read that far.
        """
        if self.aborted:
            raise Refused(f"{self.layout.root}: was not stopped cleanly: run rmqtool recover first")
        if not self.files:
            raise UnreadableStore(f"{self.layout.root}: no commit log in it")
        super().run()

    def _recover_log(self, known: int) -> None:
        file = next((f for f in self.files if f.base <= self._cut < f.end), None)
        if file is None:
            low, high = self.files[0].base, self.files[-1].end
            raise BadValue(f"{self._cut}: not in the log, whose files reach from {low} to {high}")
        at = self._cut - file.base
        end, last = checked(file.view(), 0, at)
        if end.at != at:
            self._no_message(file, at, end)
        here, _last = checked(file.view(), at, file.size)
        number = self.files.index(file)
        before, behind = self.files[:number], self.files[number + 1 :]
        # at the very end there is nothing to cut; a run that was killed when it was through is run again so
        if here.at == at and here.ending is Ending.UNWRITTEN and not all(is_zero(f.path, 0, f.size) for f in behind):
            self._no_message(file, at, here)
        file.release()
        if last is None and before:
            last = checked(before[-1].view(), 0, before[-1].size)[1]
            before[-1].release()
        self.last_store_timestamp = last or 0
        self.start_file, self.start_reason = file, "it holds the message that was named"
        self.stop, self.stop_file, self.end = End(Ending.CLEAN, at, "cut here, as asked for"), file, self._cut
        for later in [f for f in self.files if f.base > self.end]:
            self.files.remove(later)
            self.removed.append(later)
        self._index_again()

    def _no_message(self, file: Segment, at: int, end: End) -> None:
        whole = checked(file.view(), end.at, file.size)[0]
        if whole.at > end.at:
            raise BadValue(f"{self._cut}: no message begins there; one begins at {file.base + end.at}")
        if whole.ending in (Ending.FILLER, Ending.UNWRITTEN, Ending.CLEAN):
            raise BadValue(f"{self._cut}: no message begins there; in {file.path} they end at byte {end.at}")
        raise CorruptFile(file.path, whole.at, f"{whole.reason}: run rmqtool recover first")

    def _index_again(self) -> None:
        """Index files that reach behind the cut are built anew: one that is ahead of the log takes no more entries."""
        index = self.index
        ahead = [file for file in index.files if file.end_physical_offset >= self.end]
        if not ahead:
            return
        first = index.files.index(ahead[0])
        index.files, index.removed = index.files[:first], index.removed + index.files[first:]
        low = index.files[-1].end_physical_offset if index.files else self.files[0].base
        builder = BatchBuilder(self._levels, light_queues=False)
        for file in self.files:
            limit = min(self.end - file.base, file.size)
            start = max(low - file.base, 0)
            if start < limit:
                for batch in reput_batches(file.view(), start, limit, builder):
                    index.put(batch)
                file.release()
