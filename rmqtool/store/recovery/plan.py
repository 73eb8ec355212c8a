"""Plan a broker's recovery: the state of a store after its next start (store-engine 1.3, 1.4, 4).

:func:`run_recovery` simulates load and start, and only reads the store; changed queues and index files are built in
staging files. :mod:`rmqtool.store.releases.rules` has the differences between releases, and
:mod:`rmqtool.store.recovery.actions` converts the result to file actions.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from formats.message.read import Record, read
from formats.topics import SCHEDULE
from rmqtool.errors import Refused
from rmqtool.progress import stage
from rmqtool.store.dispatch.reading import reput_batches
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.layout.mending import cut_short, remedy_command, remedy_for_only_file
from rmqtool.store.log.returning import Returning
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.dispatcher import Dispatcher, QueueKey
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import Loaded, Stage, StagedQueues, load
from rmqtool.store.recovery.report import QueueRange, StoreState
from rmqtool.store.recovery.verdict import Judge, LogVerdict, judge_log, refuse_start
from rmqtool.store.recovery.warnings import warnings_of
from rmqtool.store.recovery.whole import Mended, make_whole
from rmqtool.store.recovery.whole_log import warnings_of_lengths
from rmqtool.store.roles.elsewhere import missing_log
from rmqtool.words import counted


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The result of a recovery.

    Attributes:
        inputs: the store before it.
        verdict: where the log ends.
        dispatcher: has added what queues and index lacked.
        found_ends: end of each queue before, as a queue offset, by topic and queue id.
        refusals: why the broker would not load the store.
        after_load: what it would report after loading.
        after_start: what it would report when it accepts messages; None if it does not get that far.
        unloaded: why the broker would not load the store, where that has been repaired.
        log_foreign: paths to be removed from the log, because of which the broker would not load it.
        mended: what was done beyond a broker's start; None if that was not asked for.
        keeps_abort: whether the next start has to be one after a crash: only such a start adds everything that a
            database of queues lacks.
    """

    inputs: StoreInputs
    verdict: LogVerdict
    dispatcher: Dispatcher
    found_ends: dict[QueueKey, int] = field(default_factory=dict)
    refusals: list[str]
    warnings: list[str]
    after_load: StoreState
    after_start: StoreState | None = None
    unloaded: list[str] = field(default_factory=list)
    log_foreign: list[str] = field(default_factory=list)
    mended: Mended | None = None
    keeps_abort: bool = False

    @property
    def queues(self) -> dict[QueueKey, QueueBuilder]:
        """All queues by topic and queue id, including new ones."""
        return self.dispatcher.queues

    @property
    def index(self) -> IndexBuilder:
        """The index files, even if the settings disable the index."""
        return self.dispatcher.index


def refused_recovery(inputs: StoreInputs, loaded: Loaded, dispatcher: Dispatcher, refusals: list[str]) -> Recovery:
    """Of a store that the broker would not load."""
    end = loaded.files[-1].end if loaded.files else 0
    verdict = LogVerdict(files=loaded.files, removed=loaded.removed, end=end)
    return Recovery(
        inputs=inputs,
        verdict=verdict,
        dispatcher=dispatcher,
        refusals=refusals,
        warnings=list(inputs.warnings),
        after_load=StoreState(minPhyOffset=verdict.min_offset, maxPhyOffset=end, queues=[]),
    )


def run_recovery(inputs: StoreInputs, stage: Stage, judge: Judge = judge_log) -> Recovery:
    """Simulate the broker's load and start, up to the moment at which it would accept messages.

    Args:
        stage: returns a path for a new staging file, outside the store.
        judge: determines the end of the log.

    Raises:
        Refused: these rules would damage this form of store.
        UnreadableStore: a file cannot be read.
    """
    staged = StagedQueues(inputs, stage)
    loaded = load(inputs, staged)
    index = IndexBuilder([] if loaded.refusals else inputs.layout.index_paths(), inputs.geometry, stage)
    dispatcher = Dispatcher(
        loaded.queues, index, staged.open, indexed=inputs.indexed, batch_topics=inputs.rules.batch_topics
    )
    if loaded.refusals:
        return refused_recovery(inputs, loaded, dispatcher, loaded.refusals)
    running = _Run(inputs, loaded, dispatcher)
    with ThreadPoolExecutor(1, "rmqtool-index") as beside:
        recovery = running.run(judge, beside)
    if inputs.whole and not recovery.refusals:
        recovery.unloaded, recovery.log_foreign = loaded.unloaded, loaded.log_foreign
        recovery.warnings += warnings_of_lengths(loaded.files)
        recovery.mended = make_whole(inputs, staged, dispatcher, recovery.verdict, loaded.mended)
        recovery.after_start = running.state_when_whole(recovery)
        recovery.keeps_abort = inputs.aborted and inputs.rules.lacks_in_database(recovery.verdict.end)
    return recovery


class _Run:
    """Recovery of a store that can be loaded."""

    def __init__(self, inputs: StoreInputs, loaded: Loaded, dispatcher: Dispatcher) -> None:
        self._inputs, self._loaded, self._dispatcher = inputs, loaded, dispatcher
        self._queues, self._index = dispatcher.queues, dispatcher.index
        self._refusals: list[str] = []
        self._warnings = list(inputs.warnings)

    def run(self, judge: Judge, beside: ThreadPoolExecutor) -> Recovery:
        """Run it.

        Args:
            beside: writes the index in parallel to the queues.
        """
        inputs, queues = self._inputs, self._queues
        if inputs.aborted:
            self._index.prune(inputs.checkpoint.index_msg_timestamp)
        for queue in queues.values():
            queue.recover()
        found_ends = {key: queue.max_offset for key, queue in queues.items()}
        known = self._max_dispatched()
        self._need_log()
        self._check_single_file(known)
        if refusals := refuse_start(inputs, self._loaded, known):
            return refused_recovery(inputs, self._loaded, self._dispatcher, refusals)
        verdict = self._judge_log(judge, known)
        early = self._without_deliver_time()
        redispatches = inputs.rules.redispatches(cut=known >= verdict.end)
        finished = None
        if not redispatches or self._reput_from(verdict) >= verdict.end:  # nothing more will be added
            # write the buffers of queues and the slots of the index in parallel
            finished = beside.submit(self._index.finish)
        self._correct_min(verdict)
        recovery = Recovery(
            inputs=inputs,
            verdict=verdict,
            dispatcher=self._dispatcher,
            found_ends=found_ends,
            refusals=self._refusals,
            warnings=self._warnings,
            after_load=state_of({} if self._refusals else queues, verdict),
        )
        if self._refusals:
            return recovery
        if redispatches:
            recovery.verdict = self._reput(verdict)
        recovery.after_start = state_of(queues, verdict)
        (finished or beside.submit(self._index.finish)).result()
        recovery.warnings += warnings_of(inputs, recovery.verdict, self._dispatcher, early)
        return recovery

    def state_when_whole(self, recovery: Recovery) -> StoreState | None:
        """State that the broker would report after its start, with the repaired queues."""
        if recovery.mended is None or not recovery.mended.queues:
            return recovery.after_start
        for mended in recovery.mended.queues:
            queue = self._queues[mended.topic, mended.queueId]
            if queue.files:
                queue.min_logic_offset = queue.files[0].base
                self._inputs.rules.correct_min(queue, recovery.verdict.min_offset)
        return state_of(self._queues, recovery.verdict)

    def _max_dispatched(self) -> int:
        """End of the last message in any queue."""
        return max((queue.max_physical_offset for queue in self._queues.values()), default=-1)

    def _need_log(self) -> None:
        """Do not take a store whose log is not there for one without messages, as a broker does.

        Raises:
            Refused: queues or the checkpoint know of messages.
        """
        inputs = self._inputs
        if self._loaded.files or not inputs.whole:
            return
        entries = sum(sum(file.wrote for file in queue.files) // queue.form.size for queue in self._queues.values())
        if not entries and inputs.checkpoint.physic_msg_timestamp <= 0:
            return
        if not entries:
            raise missing_log(inputs.layout)
        known = counted(entries, "queue entry points", "queue entries point")
        exactly = inputs.layout.command("recover", "--exactly")
        way = f"{exactly} does what a broker's start does, and deletes all queues and the index"
        raise missing_log(inputs.layout, known, way)

    def _check_single_file(self, known: int) -> None:
        """Assume that a single file has its full length, unless queues have messages after its end.

        Raises:
            Refused: they do. A broker knows the real length and would not load such a file.
        """
        files, layout = self._loaded.files, self._inputs.layout
        if not cut_short(files, layout.conf, known):
            return
        (file,) = files
        way = remedy_for_only_file(file, known)
        advice = f"{remedy_command(way, layout)} {way.does}" if way.command else f"{way.does[:1].upper()}{way.does[1:]}"
        why = f"but queues point at messages up to {known}" if known > file.end else "to which its name does not fit"
        salvage = layout.command("salvage", "NEWSTORE")
        raise Refused(
            f"{file.path}: ends at {file.end}, {why}: it seems to have been cut short. {advice}. Meanwhile {salvage} "
            "keeps every intact message"
        )

    def _judge_log(self, judge: Judge, known: int) -> LogVerdict:
        """Determine the end of the log; truncate queues there, or delete all of them if there is no log."""
        loaded = self._loaded
        if not loaded.files:
            for queue in self._queues.values():
                queue.destroy()
            last_record = self._inputs.checkpoint.confirm_phy_offset
            return LogVerdict(files=[], removed=loaded.removed, end=0, last_record=last_record)
        verdict = judge(self._inputs, loaded, known, self._dispatcher)
        if self._inputs.rules.counts_dispatched:
            known = self._max_dispatched()
        if known >= verdict.end:
            for queue in self._queues.values():
                queue.truncate(verdict.end)
        return verdict

    def _without_deliver_time(self) -> int:
        """Number of entries of delayed messages that were added during the check, without their deliver time."""
        if self._inputs.knows_delays:
            return 0
        delayed = (queue for (topic, _id), queue in self._queues.items() if topic == SCHEDULE)
        return sum(queue.added for queue in delayed)

    def _reput_from(self, verdict: LogVerdict) -> int:
        """Physical offset at which dispatch begins after the check of the log; the log's end if there are no files."""
        if not verdict.files:
            return verdict.end
        known = self._max_dispatched()
        unknown = max((queue.unknown_from for queue in self._queues.values()), default=known)
        if unknown > known and not self._inputs.rules.exactly:
            known = self._after_record(verdict, known)  # a broker adds that record's keys to the index again
        return max(verdict.min_offset, known, 0)

    def _after_record(self, verdict: LogVerdict, physical_offset: int) -> int:
        """Physical offset after the record at an offset; the next byte if there is no record."""
        record = None
        file = next((f for f in verdict.files if f.base <= physical_offset < f.end), None)
        if file is not None:
            record = read(file.view(), physical_offset - file.base, file.size, crc=False)
            file.release()
        return physical_offset + (record.total_size if isinstance(record, Record) else 1)

    def _reput(self, verdict: LogVerdict) -> LogVerdict:
        """Dispatch what is missing in the queues, as the broker does before it accepts messages."""
        inputs, before = self._inputs, self._dispatcher.messages
        at = self._reput_from(verdict)
        if at == verdict.known:
            verdict = replace(verdict, passed_over=None)  # dispatched after all
        if at < verdict.end and verdict.dispatched_from is None:
            verdict = replace(verdict, dispatched_from=at)
        builder = inputs.batch_builder()
        with stage("filling queues and index", max(verdict.end - at, 0)) as filling:
            while at < verdict.end:
                file = next((f for f in verdict.files if f.base <= at < f.base + inputs.log.file_size), None)
                if file is None:
                    effect = "no message after that is dispatched"
                    if inputs.rules.waits:
                        effect = f"a {inputs.rules.release} broker hangs here at its start"
                    self._warnings.append(f"no commit-log file holds offset {at}: {effect}")
                    break
                view = file.view()
                limit = min(verdict.end - file.base, file.size)
                readable = min(limit, inputs.rules.readable(file))
                batches = Returning(reput_batches(view, at - file.base, readable, builder))
                expected = at
                for batch in batches:
                    self._dispatcher.displaced |= not batch.lies_at(expected)
                    self._dispatcher.put(batch)
                    size = int(batch.size.sum())
                    expected += size
                    filling.done += size
                at = max(file.base + batches.value, at + 1)
                if readable < limit:
                    at = file.end
                file.release()
        if self._dispatcher.messages > before:
            self._correct_min(verdict)
        return verdict

    def _correct_min(self, verdict: LogVerdict) -> None:
        """Set the lowest offset of each queue; remove, or refuse, an empty last file on which the broker fails."""
        rules = self._inputs.rules
        for queue in self._queues.values():
            if rules.is_blocked(queue):
                file = queue.files[-1]
                fault = (
                    f"{queue.target(file)}: the last file of its queue is empty: a 5.3 broker does not load the queue"
                )
                follows = len(queue.files) > 1 and queue.files[-2].base + queue.file_size == file.base
                if self._inputs.whole and not follows:
                    self._loaded.mended.setdefault((queue.topic, queue.queue_id), []).append(fault)
                    continue
                if rules.exactly or not follows:
                    self._refusals.append(fault)
                    continue
                self._warnings.append(f"{fault}; it is removed")
                queue.drop_unwritten()
            rules.correct_min(queue, verdict.min_offset)


def state_of(queues: Mapping[QueueKey, QueueBuilder], verdict: LogVerdict) -> StoreState:
    """Return the state of queues and log as reported by the broker."""
    ranges = [
        QueueRange(topic=topic, queueId=queue_id, minOffset=queue.min_offset, maxOffset=queue.max_offset)
        for (topic, queue_id), queue in sorted(queues.items())
    ]
    return StoreState(minPhyOffset=verdict.min_offset, maxPhyOffset=verdict.end, queues=ranges)
