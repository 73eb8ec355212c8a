"""Sentences about what a recovery loses that another command would keep, and about what it did not check."""

import os

from formats.message.properties import KEYS, UNIQ_KEY, parse
from rmqtool.store.disk.directories import exists
from rmqtool.store.log.commit_log import LocatedRecord
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.report import Loss
from rmqtool.store.recovery.warnings import of_other_names
from rmqtool.words import command_line, counted

_NAMED = 3  # queues that a note names
_MUCH = 1 << 30  # bytes
_LOOKED_AT = 100  # number of first messages checked for keys


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
        f"topic {topic!r} has neither settings nor queues, so it was deleted: its {messages} messages are in no queue"
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
