"""Check names and lengths of files that form one offset space, and for foreign files among them."""

import os
from itertools import pairwise
from typing import Any

from rmqtool.store.check.advice.steps import KEEPS, RECOVER, Step, by_hand
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segments
from rmqtool.store.layout.mending import Remedy, cut_short, remedy_for, remedy_for_only_file
from rmqtool.store.recovery.whole_log import holds_message


def check_files(
    ctx: Context, segments: Segments, size: int, topic: str | None = None, queue: int | None = None
) -> None:
    """Check for foreign files, wrong lengths, gaps and duplicates.

    Args:
        size: expected length of every file, bytes.
        topic, queue: the consume queue; None for the log.
    """
    files, situation = segments.files, ctx.found.situation
    about: dict[str, Any] = {"topic": topic, "queueId": queue}

    def report(code: str, path: str, **more: Any) -> None:
        situation.refused |= code in ("file-size", "file-foreign")
        if queue is None:
            situation.log_codes.add(code)
            situation.stuck |= code in ("file-size", "file-foreign")  # it may contain messages under another name
        elif code != "file-foreign":
            more["steps"] = (RECOVER,)
        if code == "file-foreign":
            situation.stuck |= os.path.isdir(path)  # recovery removes foreign files
        ctx.found.add(code, ctx.name(path), **more, **about)

    for path in segments.foreign:
        report("file-foreign", path, steps=steps_of(remedy_for(path, None, size, last=False)))
    for file in files:
        if file.size != size:
            spare = queue is None and file.size > size and not holds_message(file, size)
            steps = steps_of(remedy_for(file.path, file.size, size, last=file is files[-1], spare=spare))
            if queue is None and len(files) == 1 and ctx.layout.conf.options:
                steps += by_hand(
                    f"if {file.path} has its true length, set mappedFileSizeCommitLog={file.size} in "
                    f"{ctx.layout.conf.path} instead"
                )
            report("file-size", file.path, expected=f"{size} bytes", actual=f"{file.size} bytes", steps=steps)
        if file.base % size and not (queue is None and cut_short(files, ctx.layout.conf, -1)):
            actual = f"{file.base % size} bytes after a multiple of {size}"
            report("file-misnamed", file.path, actual=actual)
    for before, after in pairwise(files):
        step = after.base - before.base
        if step == 0:
            report("file-duplicate", after.path, expected="one file", actual=ctx.name(before.path))
        elif step > size and not before.base % size and not after.base % size:
            report(
                "file-gap",
                os.path.join(os.path.dirname(before.path), f"{before.base + size:020d}"),
                count=step // size - 1,
                expected=f"file {before.base + size:020d}",
                actual=f"the next file is {os.path.basename(after.path)}",
            )


def check_alone(ctx: Context, known: int) -> None:
    """Check the only file of the log, whose length can only be judged by the queues.

    Args:
        known: end of the last message in any queue.
    """
    files = ctx.log.segments.files
    if not cut_short(files, ctx.layout.conf, known):
        return
    (file,) = files
    ctx.found.situation.refused = ctx.found.situation.stuck = True
    ctx.found.situation.log_codes.add("file-size")
    expected = f"at least {known - file.base} bytes: queues point at messages up to there"
    if known <= file.end:
        expected = f"a length that {file.base} is a multiple of"
    steps = steps_of(remedy_for_only_file(file, known))
    ctx.found.add("file-size", ctx.name(file.path), expected=expected, actual=f"{file.size} bytes", steps=steps)


def steps_of(remedy: Remedy) -> tuple[Step, ...]:
    """A remedy as advice."""
    return (Step(command=remedy.command, does=remedy.does, costs=KEEPS if remedy.command else ""),)
