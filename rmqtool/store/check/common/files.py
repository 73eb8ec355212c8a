"""Names and lengths of files that make up one offset space, and what lies among them."""

import os
from itertools import pairwise
from typing import Any

from rmqtool.store.check.advice.steps import KEEPS, REBUILD_QUEUES, Step
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segments
from rmqtool.store.layout.mending import WayOn, way_on


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
        elif code != "file-foreign":
            more["steps"] = (REBUILD_QUEUES,)
        ctx.found.add(code, ctx.name(path), **more, **about)

    for path in segments.foreign:
        tell("file-foreign", path, steps=_steps(way_on(path, None, size, last=False)))
    for file in files:
        if file.size != size:
            way = way_on(file.path, file.size, size, last=file is files[-1])
            tell("file-size", file.path, expected=f"{size} bytes", actual=f"{file.size} bytes", steps=_steps(way))
        if file.base % size:
            actual = f"{file.base % size} bytes behind a multiple of {size}"
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


def _steps(way: WayOn) -> tuple[Step]:
    return (Step(command=way.command, does=way.does, costs=KEEPS if way.command else ""),)
