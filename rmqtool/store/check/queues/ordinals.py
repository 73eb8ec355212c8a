"""Check queue offsets in the log: those of a queue must count up by one."""

from typing import Any, Protocol

import numpy as np

from formats.arrays import Column
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segment


class Counted(Protocol):
    """A queue whose queue offsets are checked.

    Attributes:
        next_ordinal: queue offset after its last message in the log; None before the first one.
        epoch: epoch of the log at that message.
    """

    next_ordinal: int | None
    epoch: int

    @property
    def about(self) -> dict[str, Any]:
        """The fields of findings that identify the queue."""


def check_ordinals(ctx: Context, queue: Counted, file: Segment, ordinals: Column, position: Column, epoch: int) -> None:
    """Check that queue offsets count up by one; after damage they must only increase."""
    expected = np.empty_like(ordinals)
    expected[1:] = ordinals[:-1] + 1
    before = queue.next_ordinal
    expected[0] = ordinals[0] if before is None else before
    if epoch != queue.epoch and before is not None and ordinals[0] >= before:
        expected[0] = ordinals[0]
    wrong = np.flatnonzero(ordinals != expected)
    for code, rows in (
        ("log-ordinal-gap", wrong[ordinals[wrong] > expected[wrong]]),
        ("log-ordinal-repeat", wrong[ordinals[wrong] < expected[wrong]]),
    ):
        if len(rows):
            _report(ctx, code, queue, file, rows, ordinals, expected, position)
    queue.next_ordinal, queue.epoch = int(ordinals[-1]) + 1, epoch


def _report(
    ctx: Context,
    code: str,
    queue: Counted,
    file: Segment,
    rows: Column,
    ordinals: Column,
    expected: Column,
    position: Column,
) -> None:
    def detail(i: int) -> dict[str, Any]:
        row = rows[i]
        return {
            "offset": int(position[row]) - file.base,
            "queueOffset": int(ordinals[row]),
            "expected": str(int(expected[row])),
            "actual": str(int(ordinals[row])),
        }

    ctx.found.many(code, ctx.name(file.path), len(rows), detail, **queue.about)
