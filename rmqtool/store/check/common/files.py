"""Names and lengths of files that make up one offset space, and what lies among them."""

import os
from itertools import pairwise
from typing import Any

from rmqtool.store.check.advice.steps import KEEPS, RECOVER, Step, by_hand
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segments
from rmqtool.store.layout.mending import Remedy, cut_short, remedy_for, remedy_for_only_file


def check_files(
    ctx: Context, segments: Segments, size: int, topic: str | None = None, queue: int | None = None
) -> None:
    """Foreign files, wrong lengths, gaps, duplicates.

    Args:
        size: what every file should be long, bytes.
        topic, queue: of the consume queue, where it is one.
    """
    files, situation = segments.files, ctx.found.situation
    about: dict[str, Any] = {"topic": topic, "queueId": queue}

    def tell(code: str, path: str, **more: Any) -> None:
        situation.refused |= code in ("file-size", "file-foreign")
        if queue is None:
            situation.log_codes.add(code)
            situation.stuck |= code in ("file-size", "file-foreign")  # it may hold messages under another name
        elif code != "file-foreign":
            more["steps"] = (RECOVER,)
        if code == "file-foreign":
            situation.stuck |= os.path.isdir(path)  # recovery takes files out
        ctx.found.add(code, ctx.name(path), **more, **about)

    for path in segments.foreign:
        tell("file-foreign", path, steps=_steps(remedy_for(path, None, size, last=False)))
    for file in files:
        if file.size != size:
            steps = _steps(remedy_for(file.path, file.size, size, last=file is files[-1]))
            if queue is None and len(files) == 1 and ctx.layout.conf.options:
                steps += by_hand(
                    f"if {file.path} was not cut short, set mappedFileSizeCommitLog={file.size} in "
                    f"{ctx.layout.conf.path} instead"
                )
            tell("file-size", file.path, expected=f"{size} bytes", actual=f"{file.size} bytes", steps=steps)
        if file.base % size and not (queue is None and cut_short(files, ctx.layout.conf, -1)):
            actual = f"{file.base % size} bytes after a multiple of {size}"
            tell("file-misnamed", file.path, actual=actual)
    for before, after in pairwise(files):
        step = after.base - before.base
        if step == 0:
            tell("file-duplicate", after.path, expected="one file", actual=ctx.name(before.path))
        elif step > size and not before.base % size and not after.base % size:
            tell(
                "file-gap",
                os.path.join(os.path.dirname(before.path), f"{before.base + size:020d}"),
                count=step // size - 1,
                expected=f"file {before.base + size:020d}",
                actual=f"the next file is {os.path.basename(after.path)}",
            )


def check_alone(ctx: Context, known: int) -> None:
    """The only file of the log, of whose length nothing tells but the queues.

    Args:
        known: end of the last message that any queue knows.
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
    steps = _steps(remedy_for_only_file(file, known))
    ctx.found.add("file-size", ctx.name(file.path), expected=expected, actual=f"{file.size} bytes", steps=steps)


def _steps(way: Remedy) -> tuple[Step, ...]:
    return (Step(command=way.command, does=way.does, costs=KEEPS if way.command else ""),)
