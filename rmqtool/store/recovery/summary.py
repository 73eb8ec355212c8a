"""The report of a recovery: what it does, what it loses, what it did not check, and what to do about a refusal."""

import os
from collections import Counter

from formats.message.properties import KEYS, UNIQ_KEY, parse
from rmqtool.store.disk.directories import exists
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.layout.mending import Remedy, can_go, remedy_command, remedy_for
from rmqtool.store.layout.paths import BATCH_QUEUES, QUEUE_KINDS, StoreLayout
from rmqtool.store.layout.version import second_queues
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.compaction import FOLDER
from rmqtool.store.recovery.actions import tail_of
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.report import LogStop, Loss, RecoveryReport
from rmqtool.store.recovery.verdict import LogVerdict
from rmqtool.store.recovery.warnings import of_other_names
from rmqtool.store.recovery.whole_log import holds_message
from rmqtool.words import command_line, counted

_NAMED = 3  # queues that a note names
_MUCH = 1 << 30  # bytes
_LOOKED_AT = 100  # number of first messages checked for keys


def summarize(
    recovery: Recovery, actions: list[str], *, applied: bool = False, backup: str | None = None
) -> RecoveryReport:
    """The report of a recovery, planned or carried out.

    Args:
        actions: descriptions of its changes to files.
        backup: directory with what they replace.
    """
    inputs, verdict = recovery.inputs, recovery.verdict
    root = inputs.layout.root
    losses, cut = find_lost(inputs.log, verdict)
    kept = kept_by_salvage(recovery) if losses and verdict.lost_from is None else 0
    stop = None
    if verdict.stop is not None and verdict.stop_file is not None:
        stop = LogStop(
            file=os.path.relpath(verdict.stop_file.path, root),
            at=verdict.stop.at,
            physicalOffset=verdict.end,
            ending=verdict.stop.ending.value,
            reason=verdict.stop.reason,
        )
    return RecoveryReport(
        store=root,
        engine=inputs.rules.release.name,
        engineReason=inputs.reason,
        loadOk=not recovery.refusals,
        refusals=recovery.refusals,
        abort=inputs.aborted,
        startFile=os.path.relpath(verdict.first_file.path, root) if verdict.first_file else None,
        startReason=verdict.start_reason,
        stop=stop,
        lost=losses,
        bytesCut=cut,
        messagesRedispatched=recovery.dispatcher.messages,
        queues=recovery.dispatcher.changes,
        indexFilesRemoved=len(recovery.index.removed) if actions else 0,
        indexEntriesAdded=recovery.index.added if actions else 0,
        warnings=recovery.warnings,
        actions=actions,
        afterLoad=recovery.after_load,
        afterStart=recovery.after_start,
        applied=applied,
        backup=backup,
        salvageKeeps=kept,
        destroys=destroys(recovery, losses, kept) if actions else [],
        unloaded=recovery.unloaded,
        mended=mended.queues if (mended := recovery.mended) is not None else [],
        indexFilesMended=mended.index_files if mended is not None else 0,
        notes=_notes(recovery),
        nextSteps=ways_on(recovery),
    )


# -- losses -----------------------------------------------------------------------------------------------------------


def find_lost(log: CommitLog, verdict: LogVerdict) -> tuple[list[Loss], int]:
    """(messages, bytes) after the end of the log: intact records that can no longer be reached."""
    counts: Counter[tuple[str, int]] = Counter()
    cut = sum(has_bytes(path, start, stop) - start for path, start, stop in tail_of(verdict))
    cut += sum(has_bytes(file.path, 0, file.size) for file in verdict.removed)
    start = verdict.end + 1 if verdict.lost_from is None else verdict.lost_from
    for item in log.walk(start) if cut else ():
        if isinstance(item, LocatedRecord):
            record = item.record
            counts[record.topic.decode("utf-8", "replace"), record.queue_id] += 1
    return [Loss(topic=t, queueId=i, messages=n) for (t, i), n in sorted(counts.items())], cut


def kept_by_salvage(recovery: Recovery) -> int:
    """Number of intact messages after the log's end that a salvage keeps: all but old ones with a repeated offset."""
    ends = recovery.dispatcher.ends
    last: dict[tuple[str, int], int] = {}  # store timestamp of the last one kept, by queue
    kept = 0
    for item in recovery.inputs.log.walk(recovery.verdict.end + 1):
        if not isinstance(item, LocatedRecord) or recovery.inputs.rules.stumbles_over(item.record):
            continue
        key = item.record.topic.decode("utf-8", "replace"), item.record.queue_id
        stored = item.record.store_timestamp
        follows = item.record.queue_offset >= ends.get(key, 0)
        if follows or stored >= last.get(key, recovery.verdict.last_store_timestamp):
            last[key] = stored
            kept += 1
    return kept


def destroys(recovery: Recovery, losses: list[Loss], kept: int) -> list[str]:
    """Return which messages, or references to them, are lost. Empty if the user has specified the truncation."""
    if recovery.verdict.lost_from is not None or recovery.refusals:
        return []
    inputs, verdict = recovery.inputs, recovery.verdict
    texts = of_other_names(inputs)
    if losses:
        messages = sum(loss.messages for loss in losses)
        texts.append(
            f"{counted(messages, 'intact message')}"
            f" after the end of the log {'is' if messages == 1 else 'are'} cut off; "
            f"{command_line('salvage', 'STORE', 'NEWSTORE')} keeps "
            f"{kept} of them"
        )
    empty = not verdict.files or verdict.end <= verdict.files[0].base
    changes = recovery.dispatcher.changes
    entries = sum(queue.entriesCut for queue in changes)
    point = inputs.checkpoint
    # a checkpoint alone proves nothing against a file that was just begun, when all before it had expired
    known = entries or (not verdict.files and (point.physic_msg_timestamp or point.logics_msg_timestamp))
    if empty and not losses and known:
        queues = sum(bool(queue.entriesCut) for queue in changes)
        paths = ((path, os.path.relpath(path, inputs.layout.root)) for path in inputs.layout.commit_log_paths)
        folders = ", ".join(path if name.startswith("..") else name for path, name in paths)
        texts.append(
            f"there are no messages in {folders}, although "
            + (
                f"{counted(queues, 'queue knows', 'queues know')} of {entries}"
                if entries
                else "the checkpoint knows of some"
            )
            + f": is its disk mounted? Is this its path (--broker-conf)? {counted(queues, 'queue')} with "
            + f"{counted(entries, 'entry', 'entries')} and "
            f"{len(recovery.index.removed)} index files are removed, as by a broker"
        )
    return texts


def _notes(recovery: Recovery) -> list[str]:
    notes = not_looked_at(recovery)
    if not recovery.refusals and recovery.keeps_abort:
        notes.append(
            f"abort stays: {second_queues(recovery.inputs.layout)} lacks the newest messages, which a broker puts into "
            "it at a start after a crash; after a clean stop it leaves the first of them out"
        )
    return notes


# -- what was not checked ---------------------------------------------------------------------------------------------


def not_looked_at(recovery: Recovery) -> list[str]:
    """Return what recovery does not check, like a broker's start. Empty if the user has specified the truncation."""
    if recovery.verdict.lost_from is not None or recovery.refusals or not recovery.verdict.files:
        return []
    inputs, verdict = recovery.inputs, recovery.verdict
    texts = []
    first = inputs.log.segments.files[0]
    if verdict.first_file is not None and verdict.first_file.base > first.base:
        files = sum(file.base < verdict.first_file.base for file in inputs.log.segments)
        name = os.path.relpath(verdict.first_file.path, inputs.layout.root)
        before = "1 file before it was" if files == 1 else f"{files} files before it were"
        read = "not read" if recovery.mended is None or not recovery.mended.compared else "not checked for damage"
        texts.append(f"the log was checked from {name} on; {before} {read}")
    if not inputs.mends_compaction and inputs.rules.compacted_topics and exists(inputs.layout.path("compaction")):
        texts.append(
            "compaction logs are left to the broker, which at its start truncates each after the last unit of its queue"
        )
    if inputs.whole and not inputs.quick:
        return texts + of_made_whole(recovery)
    lacks = _lacks_index(recovery)
    if lacks:
        texts.append(
            f"there is no index, although messages have keys: {command_line('rebuild', 'STORE', 'index')} builds it"
        )
    if not lacks or texts[1:]:
        texts.append("queues and index were not compared with the log")
    return [*texts[:-1], f"{texts[-1]} ({command_line('check', 'STORE')} checks everything)"]


def of_made_whole(recovery: Recovery) -> list[str]:
    """Return what could not be made consistent, and the consequences."""
    mended, verdict = recovery.mended, recovery.verdict
    if mended is None:
        return []
    texts = [
        f"topic {topic!r} has neither settings nor queues, so it was deleted: no queue has its "
        f"{counted(messages, 'message')}"
        for topic, messages in sorted(mended.deleted.items())
    ]
    texts += [
        f"topic {topic!r} was deleted and created again: its {counted(messages, 'earlier message')} "
        f"{'is' if messages == 1 else 'are'} in no queue"
        for topic, messages in sorted(mended.remade.items())
    ]
    texts += [
        f"{queue} was renumbered from 0: its {counted(messages, 'earlier message')} "
        f"{'is' if messages == 1 else 'are'} not in it ({command_line('salvage', 'STORE', 'NEWSTORE')} renumbers "
        f"everything)"
        for queue, messages in sorted(mended.again.items())
    ]
    if mended.irregular:
        more = f" and {len(mended.irregular) - _NAMED} more" if mended.irregular[_NAMED:] else ""
        texts.append(
            f"{', '.join(mended.irregular[:_NAMED])}{more}: the log has several messages for one queue offset, so "
            f"these queues stay as a broker would build them ({command_line('check', 'STORE')} lists the messages)"
        )
    if mended.gaps:
        texts.append(
            f"{counted(mended.gaps, 'message is', 'messages are')} missing in the middle of the log, and cannot be "
            f"replaced ({command_line('check', 'STORE')} shows where)"
        )
    if mended.fillers:
        texts.append(
            f"{counted(mended.fillers, 'filler')} had to take the place of such messages before others in the log's "
            "first file: a broker that reads on from there skips the rest of that file. "
            f"{command_line('salvage', 'STORE', 'NEWSTORE')} creates a store without such gaps"
        )
    checked = verdict.end - (verdict.first_file.base if verdict.first_file is not None else 0)
    if mended.compared > max(2 * checked, _MUCH):
        texts.append(
            f"to compare queues and index, {mended.compared >> 20} MiB of the log were read, where a broker's start "
            f"reads {checked >> 20} MiB: --quick skips that, and repairs only what a broker would not load"
        )
    return texts


def _lacks_index(recovery: Recovery) -> bool:
    if recovery.index.files or not recovery.inputs.indexed:
        return False
    for number, item in enumerate(recovery.inputs.log.walk(None, recovery.verdict.end, crc=False)):
        if isinstance(item, LocatedRecord) and {KEYS, UNIQ_KEY} & parse(item.record.properties).keys():
            return True
        if number >= _LOOKED_AT:
            break
    return False


# -- the way on after a refusal ---------------------------------------------------------------------------------------


def ways_on(recovery: Recovery) -> list[str]:
    """Return what to do before recovery is possible, in order; empty if nothing was refused."""
    if not recovery.refusals:
        return []
    log, layout = recovery.inputs.log, recovery.inputs.layout
    refused = {path for path in _paths(recovery) if any(why.startswith(f"{path}: ") for why in recovery.refusals)}
    files = {file.path: file for file in log.segments.files}
    last = max(files, key=os.path.basename, default=None)
    by_file = [_remedy_for(path, files.get(path), log.file_size, last=path == last) for path in sorted(refused)]
    # one command repairs several files
    ways = list(
        dict.fromkeys(f"{remedy_command(way, layout)}: {way.does}" if way.command else way.does for way in by_file)
    )
    compacted = [why for why in recovery.refusals if why.startswith(layout.path(FOLDER) + os.sep)]
    if compacted:
        ways.append(
            f"{layout.command('rebuild', 'compaction')}: makes the logs of compacted topics again, from every intact "
            "message"
        )
    queues = [why.rpartition(": ")[0] for why in recovery.refusals if _is_of_queue(why, layout)]
    ways += [
        remedy_for(path, None, log.file_size, last=False).does
        for path in (*queues, *recovery.inputs.rules.index_directories())
        if os.path.lexists(path) and not can_go(path)
        if not (path in queues and os.path.relpath(path, layout.root).count(os.sep) == 2)  # the queue's own directory
    ]
    kinds = [why for why in recovery.refusals if "topics.json" in why]
    if kinds and _can_name_kinds(kinds, layout):
        ways.append(f"{layout.command('rebuild', 'config')}: sets what kind of queues a topic has in topics.json")
    elif kinds:
        ways.append(
            f"put config/topics.json right, which says what kind of queues a topic has (see {command_line('check')})"
        )
    elif queues and not recovery.inputs.whole:
        ways.append(f"{layout.command('recover')}: without --exactly it puts queue files right")
    return [*ways, f"{layout.command('recover', '--dry-run')}: shows the plan again"]


def _can_name_kinds(kinds: list[str], layout: StoreLayout) -> bool:
    """Whether all refused queues are batch queues of topics that have no other queues."""
    others = {topic for topic, _queue_id, _path in layout.queue_dirs()}
    refused = [topic for topic, _queue_id, path in layout.queue_dirs(BATCH_QUEUES) if f"{path}: " in "\n".join(kinds)]
    return len(refused) == len(kinds) and others.isdisjoint(refused)


def _remedy_for(path: str, file: Segment | None, wanted: int, *, last: bool) -> Remedy:
    if file is None:
        return remedy_for(path, None, wanted, last=last)
    spare = file.size > wanted and not holds_message(file, wanted)
    return remedy_for(path, file.size, wanted, last=last, spare=spare)


def _is_of_queue(why: str, layout: StoreLayout) -> bool:
    return why.startswith(tuple(layout.path(kind) + os.sep for kind in QUEUE_KINDS))


def _paths(recovery: Recovery) -> list[str]:
    segments = recovery.inputs.log.segments
    return [*(file.path for file in segments.files), *segments.foreign]
