"""Names and lengths of files that make up one offset space, and what lies among them."""

import os
from itertools import pairwise

from rmqtool.store.check.context import Context
from rmqtool.store.disk.segments import Segments


def check_files(
    ctx: Context, segments: Segments, size: int, topic: str | None = None, queue: int | None = None
) -> None:
    """Foreign files, wrong lengths, gaps, duplicates.

    Args:
        size: what every file should be long, bytes.
        topic, queue: of the consume queue, where it is one.
    """
    found, files = ctx.found, segments.files
    about = {"topic": topic, "queueId": queue}
    for path in segments.foreign:
        found.add("file-foreign", ctx.name(path), **about)
    for file in files:
        if file.size != size:
            found.add("file-size", ctx.name(file.path), expected=f"{size} bytes", actual=f"{file.size} bytes", **about)
        if file.base % size:
            actual = f"{file.base % size} bytes behind a multiple of {size}"
            found.add("file-misnamed", ctx.name(file.path), actual=actual, **about)
    for before, after in pairwise(files):
        step = after.base - before.base
        if step == 0:
            found.add(
                "file-duplicate", ctx.name(after.path), expected="one file", actual=ctx.name(before.path), **about
            )
        elif step > size and not before.base % size and not after.base % size:
            found.add(
                "file-gap",
                ctx.name(os.path.join(os.path.dirname(before.path), f"{before.base + size:020d}")),
                count=step // size - 1,
                expected=f"file {before.base + size:020d}",
                actual=f"the next file is {os.path.basename(after.path)}",
                **about,
            )
