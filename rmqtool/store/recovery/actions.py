"""Convert the result of a recovery to file actions of a change."""

import os
from collections.abc import Callable

from formats import checkpoint
from formats.endings import Ending
from formats.message.build import BLANK_SIZE
from formats.message.read import End
from rmqtool.store.builders.config_evidence import Evidence
from rmqtool.store.changes.change import Change
from rmqtool.store.config.sources import find_broken
from rmqtool.store.config.topic_entries import DELAY_TOPIC, ProvedQueues
from rmqtool.store.disk.files import open_to_change
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import is_rest_of_page
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.timers import prepare_timer
from rmqtool.store.recovery.verdict import LogVerdict
from rmqtool.store.recovery.whole_compaction import prepare_compaction
from rmqtool.store.recovery.whole_extension import prepare_extensions
from rmqtool.store.recovery.whole_log import FittedFile

Say = Callable[[str, str], None]


def end_in_file(stop: End) -> int:
    """Position in the file from which on nothing belongs to the log."""
    return stop.at + (BLANK_SIZE if stop.ending is Ending.FILLER else 0)


def tail_of(verdict: LogVerdict) -> list[tuple[str, int, int]]:
    """The non-zero range after the end in the last file of the log. An end-of-file blank there belongs to the log."""
    if verdict.stop_file is None or verdict.stop is None:
        return []
    file, at = verdict.stop_file, end_in_file(verdict.stop)
    if is_rest_of_page(file, at):
        return []
    return [(file.path, at, file.size)] if has_bytes(file.path, at, file.size) > at else []


def prepare(recovery: Recovery, change: Change) -> list[str]:
    """Add all file actions to a change, and what it assumes of the log.

    Returns:
        Descriptions of the actions; none means that the store is healthy, or that a broker would not load it.
    """
    if recovery.refusals:
        return []
    steps: list[str] = []
    inputs, root = recovery.inputs, recovery.inputs.layout.root

    def say(text: str, path: str) -> None:
        steps.append(f"{text} {os.path.relpath(path, root)}")

    _prepare_log_files(recovery, change, say)
    for path, start, stop in tail_of(recovery.verdict):
        if not isinstance(recovery.verdict.stop_file, FittedFile):
            change.zero(path, start, stop)
        say(f"zero bytes {start} to {stop} of", path)
    for file in reversed(recovery.verdict.removed):
        change.remove(file.path)
        say("remove", file.path)
    if inputs.whole:
        restore_settings(recovery, change, say)
    for _key, queue in sorted(recovery.queues.items()):
        for path in queue.foreign_removed:
            change.remove(path)
            say("remove", path)
        queue.drop_unwritten()
        for segment in queue.removed:
            if not any(queue.target(f) == segment.path for f in queue.files):
                change.remove(segment.path)
                say("remove", segment.path)
        for part in queue.files:
            if part.staged is not None:
                part.finish()
                target = queue.target(part)
                change.put(target, part.staged, part.last_store_timestamp * 1_000_000 or None)
                say("replace" if part.source is not None else "create", target)
        if (stale := queue.stale()) is not None:
            change.zero(*stale)
            say(f"zero bytes {stale[1]} to {stale[2]} of", stale[0])
    mended, keeps_abort = recovery.mended, recovery.keeps_abort
    if mended is not None and not inputs.quick:
        prepare_extensions(inputs.layout, change, say)
    prepare_timer(recovery, change, say)
    if inputs.mends_compaction:
        prepare_compaction(recovery, change, say)
    begins_again = not recovery.index.unchanged and not keeps_abort  # what a start after a crash removes is not wrong
    if steps or begins_again or (mended is not None and mended.index_files) or (inputs.aborted and not keeps_abort):
        # otherwise the last message's keys would be added to the index again, as a broker does at every start
        prepare_index(recovery.index, inputs.layout, change, say)
    if inputs.aborted and not keeps_abort:
        change.remove(inputs.layout.path("abort"))
        say("remove", inputs.layout.path("abort"))
    if steps or (inputs.whole and not _is_consistent(recovery)):
        prepare_checkpoint(recovery, change, say)
    _expect_log(recovery, change)
    return steps


def _prepare_log_files(recovery: Recovery, change: Change, say: Say) -> None:
    """Add repaired files of the log, without what is after the end of the log in them."""
    for path in recovery.log_foreign:
        change.remove(path)
        say("remove", path)
    for file in recovery.verdict.files:
        if isinstance(file, FittedFile):
            if file is recovery.verdict.stop_file and recovery.verdict.stop is not None:
                file.release()
                with open_to_change(file.where) as staged:
                    staged.cut(min(end_in_file(recovery.verdict.stop), file.size))
                    staged.cut(file.size)
            change.put(file.path, file.where, file.mtime_ns)
            say(f"{file.words}:", file.path)


def _expect_log(recovery: Recovery, change: Change) -> None:
    """Record the files of the log and its end: nothing may be written there before the change is complete."""
    verdict = recovery.verdict
    files = [(file.path, file.size) for file in recovery.inputs.log.segments]
    if verdict.stop_file is None or verdict.stop is None:
        change.expect_log(files, None, 0)
        return
    file = verdict.stop_file
    size = file.source.size if isinstance(file, FittedFile) else file.size
    change.expect_log(files, file.path, min(end_in_file(verdict.stop), size))


def restore_settings(recovery: Recovery, change: Change, say: Say) -> None:
    """Replace broken config files by an intact generation, the one that a broker's start reads, else by what is left.

    An older ``topics.json`` gets entries for topics that have been created since, if queues have their messages, an
    older ``delayOffset.json`` the levels that have been delivered since, as far as their messages are not cut off.
    """
    if not (broken := find_broken(recovery.inputs.layout)):
        return
    from rmqtool.store.builders.config_doctor import ConfigDoctor

    ranges = (recovery.after_start or recovery.after_load).ranges
    counts, _stray = ProvedQueues.of(ranges)
    levels = {queue_id + 1 for (topic, queue_id), (_low, end) in ranges.items() if topic == DELAY_TOPIC and end > 0}
    evidence = Evidence(ranges, counts, overdue=levels, log_end=recovery.verdict.end)
    doctor = ConfigDoctor(recovery.inputs.layout, evidence)
    doctor.run_on_broken(broken)
    doctor.put(change)
    for outcome in doctor.outcomes:
        path = recovery.inputs.layout.path("config", outcome.file)
        for text in outcome.actions():
            say(text, path)
        if (lost := outcome.losses()) is not None:
            recovery.warnings.append(lost)
    recovery.warnings += doctor.warnings


def _is_consistent(recovery: Recovery) -> bool:
    """Whether the checkpoint has the right length and no time after the end of the log."""
    inputs, verdict = recovery.inputs, recovery.verdict
    data, point, last = inputs.layout.checkpoint(), inputs.checkpoint, verdict.last_store_timestamp
    if not verdict.files:
        return True
    if data is None or len(data) != checkpoint.SIZE:
        return False
    if last and not (point.physic_msg_timestamp or point.logics_msg_timestamp):
        return False
    index_end = max((file.end_timestamp for file in recovery.index.files), default=last)
    times = point.physic_msg_timestamp, point.logics_msg_timestamp
    return max(times) <= last and point.index_msg_timestamp <= index_end


def prepare_index(index: IndexBuilder, layout: StoreLayout, change: Change, say: Say) -> None:
    """Add removed, changed and new index files; the names of new ones are the current time, as in the broker."""
    for index_file in index.removed:
        assert index_file.path is not None
        change.remove(index_file.path)
        say("remove", index_file.path)
    name = max((os.path.basename(f.path) for f in index.files + index.removed if f.path), default="")
    for index_file in index.files:
        if index_file.staged is None:
            continue
        target = index_file.path
        if target is None:
            name = index.new_name(name)
            target = layout.path("index", name)
        change.put(target, index_file.staged)
        say("replace" if index_file.path else "create", target)


def prepare_checkpoint(recovery: Recovery, change: Change, say: Say) -> None:
    """Write correct times to the checkpoint, so that after the next crash the check begins at the right file."""
    inputs, verdict = recovery.inputs, recovery.verdict
    layout, last, old = inputs.layout, verdict.last_store_timestamp, inputs.checkpoint
    full = [f.end_timestamp for f in recovery.index.files if f.full]
    new = old._replace(physic_msg_timestamp=last, logics_msg_timestamp=last, index_msg_timestamp=max(full, default=0))
    low = verdict.files[0].base if verdict.files else 0
    new = inputs.rules.confirm(new, low=low, end=verdict.end, last=verdict.last_record)
    data = layout.checkpoint()
    if data is not None and new == old and (len(data) == checkpoint.SIZE or not inputs.whole):
        return
    content = checkpoint.build(new)
    # a broker reads no further
    change.put_content(layout.path("checkpoint"), content[: checkpoint.SIZE] if inputs.whole else content)
    say("replace" if data is not None else "create", layout.path("checkpoint"))
