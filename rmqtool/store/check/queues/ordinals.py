"""Queue offsets in the log: the messages of a queue count up by one."""

from typing import Any, Protocol

import numpy as np

from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segment

Column = np.ndarray[Any, np.dtype[Any]]


class Counted(Protocol):
    """A queue whose messages are counted.

    Attributes:
        next_ordinal: after the last message of it in the log; None before the first one.
        epoch: of the log when that message was met.
    """

    next_ordinal: int | None
    epoch: int

    @property
    def about(self) -> dict[str, Any]:
        """What findings say of the queue."""


def check_ordinals(ctx: Context, queue: Counted, file: Segment, ordinals: Column, position: Column, epoch: int) -> None:
    """Queue offsets must count up by one; where damage lies between, only up."""
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
            _tell(ctx, code, queue, file, rows, ordinals, expected, position)
    queue.next_ordinal, queue.epoch = int(ordinals[-1]) + 1, epoch


def _tell(
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
