"""Truncate a log at a given message, and queues and index with it: a recovery with a given end."""

from dataclasses import replace

from formats.endings import Ending
from formats.message.read import End
from rmqtool.errors import BadValue, CorruptFile, Refused, UnreadableStore
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import is_zero
from rmqtool.store.dispatch.reading import check_records, reput_batches
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.dispatcher import Dispatcher
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import Loaded, Stage
from rmqtool.store.recovery.plan import Recovery, run_recovery, state_of
from rmqtool.store.recovery.verdict import LogVerdict, split_at
from rmqtool.store.recovery.whole_queue import keep_end


def run_truncate(inputs: StoreInputs, stage: Stage, physical_offset: int) -> Recovery:
    """Plan the truncation.

    Args:
        inputs: the store; it must have been stopped cleanly.
        stage: returns a path for a new staging file, outside the store.
        physical_offset: of the first message to remove.

    Raises:
        Refused: the store was not stopped cleanly.
        UnreadableStore: there is no log.
        BadValue: no message begins there, and the log does not end there.
        CorruptFile: the log is not readable up to there.
    """
    if inputs.aborted:
        raise Refused(f"{inputs.layout.root}: was not stopped cleanly: run {inputs.layout.command('recover')} first")
    if not inputs.log.segments.files:
        raise UnreadableStore(f"{inputs.layout.root}: no commit log in it")

    def judge(inputs: StoreInputs, loaded: Loaded, _known: int, dispatcher: Dispatcher) -> LogVerdict:
        return _cut_log(inputs, loaded, dispatcher, physical_offset)

    recovery = run_recovery(inputs, stage, judge)
    recovery.verdict = replace(recovery.verdict, lost_from=physical_offset)
    if not recovery.refusals:
        _keep_ends(recovery, stage)
    return recovery


def _keep_ends(recovery: Recovery, stage: Stage) -> None:
    """Let queues without remaining messages end at the truncation, so that no queue offset is assigned twice.

    Otherwise such a queue has no entries left, or only fillers, after which a broker takes every message below 2 GiB
    for a repeated one.
    """
    low, rules = recovery.verdict.min_offset, recovery.inputs.rules
    for (topic, queue_id), queue in sorted(recovery.queues.items()):
        end = _end_without_messages(queue) if queue.cut else 0
        if not end:
            continue
        keep_end(queue, low, stage, end if low > 0 else 0)
        if queue.files:
            queue.min_logic_offset = queue.files[0].base
            rules.correct_min(queue, low)
        else:
            recovery.warnings.append(
                f"topic {topic!r} queue {queue_id}: none of its messages is left, and its queue offsets begin at 0 "
                "again"
            )
    recovery.after_load = recovery.after_start = state_of(recovery.queues, recovery.verdict)


def _end_without_messages(queue: QueueBuilder) -> int:
    """Queue offset of the end of a queue that was truncated before its first message; 0 if it began at 0."""
    if queue.files:
        return queue.max_offset if queue.ends_in_filler else 0
    return queue.first_of(queue.removed[0]) if queue.removed else 0


def _cut_log(inputs: StoreInputs, loaded: Loaded, dispatcher: Dispatcher, cut: int) -> LogVerdict:
    """The verdict on the log truncated at an offset; index files that extend beyond are rebuilt."""
    files = loaded.files
    file = next((f for f in files if f.base <= cut < f.end), None)
    if file is None:
        low, high = files[0].base, files[-1].end
        raise BadValue(f"{cut}: not in the log, which reaches from {low} to {high}")
    at = cut - file.base
    end, last = check_records(file.view(), 0, at)
    if end.at != at:
        raise _no_message(cut, file, end, inputs.layout)
    here, _last = check_records(file.view(), at, file.size)
    number = files.index(file)
    before, behind = files[:number], files[number + 1 :]
    # at the very end there is nothing to remove; this happens when a completed run is repeated after a kill
    if here.at == at and here.ending is Ending.UNWRITTEN and not all(is_zero(f.path, 0, f.size) for f in behind):
        raise _no_message(cut, file, here, inputs.layout)
    file.release()
    if last is None and before:
        last = check_records(before[-1].view(), 0, before[-1].size)[1]
        before[-1].release()
    stay, removed = split_at(loaded, cut)
    verdict = LogVerdict(
        files=stay,
        removed=removed,
        end=cut,
        stop=End(Ending.CLEAN, at, "cut here, as asked for"),
        stop_file=file,
        first_file=file,
        start_reason="this file holds the message that was named",
        last_store_timestamp=last or 0,
        last_record=inputs.checkpoint.confirm_phy_offset,
    )
    _index_again(inputs, verdict, dispatcher)
    return verdict


def _no_message(cut: int, file: Segment, end: End, layout: StoreLayout) -> BadValue | CorruptFile:
    """The error for an offset at which the log cannot be truncated.

    Args:
        end: where the records before the offset end, or what is there instead.
    """
    whole = check_records(file.view(), end.at, file.size)[0]
    if whole.at > end.at:
        return BadValue(f"{cut}: no message begins there; the nearest before it begins at {file.base + end.at}")
    if whole.ending in (Ending.FILLER, Ending.UNWRITTEN, Ending.CLEAN):
        return BadValue(f"{cut}: no message begins there; in {file.path} they end at byte {end.at}")
    return CorruptFile(file.path, whole.at, f"{whole.reason}: run {layout.command('recover')} first")


def _index_again(inputs: StoreInputs, verdict: LogVerdict, dispatcher: Dispatcher) -> None:
    """Rebuild index files that extend beyond the truncation, as they would not take new entries before their end."""
    index = dispatcher.index
    ahead = [file for file in index.files if file.end_physical_offset >= verdict.end]
    if not ahead:
        return
    first = index.files.index(ahead[0])
    index.files, index.removed = index.files[:first], index.removed + index.files[first:]
    low = index.files[-1].end_physical_offset if index.files else verdict.min_offset
    builder = inputs.batch_builder(light_queues=False)
    for file in verdict.files:
        limit = min(verdict.end - file.base, file.size)
        start = max(low - file.base, 0)
        if start < limit:
            for batch in reput_batches(file.view(), start, limit, builder):
                index.put(batch)
            file.release()
