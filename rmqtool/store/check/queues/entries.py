"""Finish the check of a queue: messages without entries, and entries that match no message."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from formats.arrays import Column
from formats.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, parse
from formats.message.read import Record
from rmqtool.store.check.advice.steps import RECOVER
from rmqtool.store.check.codes.all import INFO, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.queues.state import (
    BEFORE,
    CHUNK,
    EMPTY,
    FILLER,
    LAG,
    OTHER,
    CheckedQueue,
    FileSummary,
    MissingRun,
    masks,
)
from rmqtool.store.layout.paths import UNIT
from rmqtool.store.log.commit_log import Damage
from rmqtool.words import counted


def finish_queue(ctx: Context, queue: CheckedQueue) -> Iterator[None]:
    """Report what is wrong with a queue, after the whole log has been compared with it."""
    bad: set[int] = set()
    bound = max(queue.end, queue.last_matched + 1)
    for file in queue.files:
        yield from _check_entries(ctx, queue, file, bound, bad)
        file.segment.release()
    if queue.last_matched >= queue.end:
        yield from _report_holes(ctx, queue)
    _report_missing(ctx, queue, bad)
    last = queue.files[-1] if queue.files else None
    if last is not None and not last.used and last.capacity:
        ctx.found.add("cq-empty-file", ctx.name(last.segment.path), offset=0, **queue.about)


# -- entries ----------------------------------------------------------------------------------------------------------


def _check_entries(ctx: Context, queue: CheckedQueue, file: FileSummary, bound: int, bad: set[int]) -> Iterator[None]:
    """Report entries before ``bound`` that are not their message's, and everything after it."""
    inside = max(min(file.used, bound - file.first), 0)
    live = file.live
    if inside < file.used:
        behind, first = 0, file.used
        for start, part in file.runs(inside, file.used):
            kind = masks(part)
            if len(rows := np.flatnonzero(kind.nonzero)):
                behind, first = behind + len(rows), min(first, start + int(rows[0]))
            live -= int((kind.valid & ~kind.filler & (part["physical_offset"] >= ctx.log.min_offset)).sum())
        ctx.found.add(
            "cq-stale",
            ctx.name(file.segment.path),
            offset=first * UNIT,
            queueOffset=file.first + first,
            count=behind,
            expected="zeros",
            actual=f"{counted(behind, 'entry', 'entries')} after the queue's end at {bound}",
            **queue.about,
        )
    if live == file.matched:
        return
    for start in range(0, inside, CHUNK):
        part = file.units(start, min(start + CHUNK, inside))
        kind = masks(part)
        physical = part["physical_offset"].astype(np.int64)
        rows = np.flatnonzero(kind.valid & ~kind.filler & (physical >= ctx.log.min_offset))
        behind_end = rows[physical[rows] >= ctx.log_seen.end]
        if len(behind_end):
            _report_behind_end(ctx, queue, file, start + behind_end, physical[behind_end], bad)
        for row in rows[physical[rows] < ctx.log_seen.end].tolist():
            _check_entry(ctx, queue, file, start + row, int(physical[row]), bad)
        yield


def _report_behind_end(
    ctx: Context, queue: CheckedQueue, file: FileSummary, numbers: Column, physical: Column, bad: set[int]
) -> None:
    bad.update((file.first + numbers).tolist())
    # a start truncates the queue at the first of them, and with it the good entries behind
    about = {"steps": (RECOVER,)} if file.first + int(numbers[0]) > queue.last_matched else {}
    ctx.found.many(
        "cq-no-message",
        ctx.name(file.segment.path),
        len(numbers),
        lambda i: {
            "offset": int(numbers[i]) * UNIT,
            "queueOffset": file.first + int(numbers[i]),
            "expected": f"a message before the log's end at {ctx.log_seen.end}",
            "actual": str(int(physical[i])),
        },
        **about,
        **queue.about,
    )


def _check_entry(
    ctx: Context, queue: CheckedQueue, file: FileSummary, number: int, physical: int, bad: set[int]
) -> None:
    """Check an entry that may not be its message's."""
    ordinal = file.first + number
    item = ctx.log.look(physical, crc=False)
    if isinstance(item, Damage):
        code, expected, actual = "cq-no-message", "a message", f"{physical}: {item.reason}"
    else:
        judged = _judge(queue, item.record, ordinal)
        if judged is None:
            return
        code, expected, actual = judged
    bad.add(ordinal)
    ctx.found.add(
        code,
        ctx.name(file.segment.path),
        offset=number * UNIT,
        queueOffset=ordinal,
        expected=expected,
        actual=actual,
        **queue.about,
    )


def _judge(queue: CheckedQueue, record: Record, ordinal: int) -> tuple[str, str, str] | None:
    """(code, expected, actual) if a record is not the one with this queue offset in the queue; else None."""
    topic, place = record.topic.decode("utf-8", "replace"), f"{queue.topic} queue {queue.queue_id}"
    stated = record.queue_offset
    if (topic, record.queue_id) != (queue.topic, queue.queue_id):
        properties = parse(record.properties)
        names = properties.get(MULTI_DISPATCH, "").split(",")
        offsets = properties.get(MULTI_QUEUE_OFFSET, "").split(",")
        own = [offset for name, offset in zip(names, offsets, strict=False) if name == queue.topic]
        if not own or not own[0].isdecimal() or len(own[0]) > 18:
            return "cq-other-message", place, f"{topic} queue {record.queue_id}"
        stated = int(own[0])
    if stated != ordinal:
        return "cq-order", f"message {ordinal}", f"message {stated}"
    return None


def _report_holes(ctx: Context, queue: CheckedQueue) -> Iterator[None]:
    """Report runs of invalid units, or of fillers, that are followed by valid entries."""
    last, matched = queue.last_matched, sum(file.matched for file in queue.files)
    for file in queue.files:
        stop = min(file.capacity, last + 1 - file.first)
        if stop <= 0:
            continue
        for start in range(0, stop, CHUNK):
            units = file.units(start, min(start + CHUNK, stop))
            bad = np.flatnonzero(~masks(units).valid)
            for run in np.split(bad, np.flatnonzero(np.diff(bad) != 1) + 1) if len(bad) else ():
                first = start + int(run[0])
                count = len(run)
                unit = units[first - start]
                ctx.found.add(
                    "cq-hole",
                    ctx.name(file.segment.path),
                    offset=first * UNIT,
                    queueOffset=file.first + first,
                    count=count,
                    expected="entries",
                    actual=f"{counted(count, 'damaged unit')}, the first ({unit['physical_offset']}, {unit['size']})",
                    consequence=f"{counted(count, 'message')} of topic {queue.topic} cannot be reached; a start "
                    f"that looks at this file ends the queue at {queue.end}, and cuts off later entries "
                    f"({matched} are good)",
                    **queue.about,
                )
            yield
        file.segment.release()


# -- messages ---------------------------------------------------------------------------------------------------------


def _report_missing(ctx: Context, queue: CheckedQueue, bad: set[int]) -> None:
    """Report messages without an entry."""
    runs = queue.runs
    tail = queue.last_matched
    # redispatched messages are appended at the end of the queue, which is only right if nothing older is missing there
    torn = bool(queue.files) and any(
        not run.soon and run.first > tail and run.reason not in (BEFORE, FILLER) for run in runs
    )
    for run in runs:
        if run.reason == EMPTY and run.first <= tail:
            continue  # reported as a hole
        if run.reason == OTHER:
            # a finding about an entry covers its message too
            lost = [o for o in range(run.first, run.first + run.messages) if o not in bad]
            if not lost:
                continue
            run = run._replace(first=lost[0], messages=len(lost))
        if run.reason == FILLER and run.first >= queue.leading_end:
            _report_filler(ctx, queue, run)
        elif run.reason in (BEFORE, FILLER):
            _report_run(ctx, queue, "cq-starts-late", run)
        elif run.soon and not torn:
            _report_run(ctx, queue, "cq-behind", run, severity=INFO if run.soon == LAG else WARNING)
        else:
            _report_run(ctx, queue, "cq-missing", run)
    for (reason, soon), count in queue.overflow.items():
        code = "cq-starts-late" if reason in (BEFORE, FILLER) else "cq-behind" if soon else "cq-missing"
        ctx.found.add(code, ctx.name(queue.path), count=count, actual="in many places", **queue.about)


def _report_filler(ctx: Context, queue: CheckedQueue, run: MissingRun) -> None:
    path, at = queue.place(run.first)
    ctx.found.add(
        "cq-hole",
        ctx.name(path),
        offset=at,
        queueOffset=run.first,
        count=run.messages,
        expected="entries",
        actual=counted(run.messages, "filler"),
        consequence=f"{counted(run.messages, 'message')} of topic {queue.topic} cannot be reached; readers skip to the "
        "next log file",
        **queue.about,
    )


def _report_run(ctx: Context, queue: CheckedQueue, code: str, run: MissingRun, **about: Any) -> None:
    path, at = queue.place(run.first)
    end = run.first + run.messages - 1
    messages = f"{counted(run.messages, 'message')} of topic {queue.topic}"
    texts = {
        "cq-missing": f"{messages} cannot be reached",
        "cq-starts-late": f"{messages} cannot be reached, but {'is' if run.messages == 1 else 'are'} in the log",
        "cq-behind": f"{messages} {'is' if run.messages == 1 else 'are'} added by the next start",
    }
    ctx.found.add(
        code,
        ctx.name(path),
        offset=at,
        queueOffset=run.first,
        count=run.messages,
        expected=f"entries {run.first} to {end}, the first for physical offset {run.physical}",
        actual={BEFORE: "the queue begins later", FILLER: "fillers", EMPTY: "zeros"}.get(run.reason, "no entry"),
        consequence=texts[code],
        **about,
        **queue.about,
    )
