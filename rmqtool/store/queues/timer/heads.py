"""Read many timer messages partially: their heads as columns, and the position of their properties.

Records that are unlike most (both hosts IPv4, topic of at most 255 bytes) are left to code that reads records one by
one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from formats.layouts.codes import BORN_V6, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.layouts.derived import HEAD_V4_V4
from formats.variants import timer
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog

if TYPE_CHECKING:
    from formats.arrays import Array

_MAGICS = MAGIC_V1, MAGIC_V2
_TOPIC = timer.TOPIC.encode()
_BEHIND = 1 + len(_TOPIC)  # the topic with its length, after the body; the length of the properties follows


class TimerHeads(NamedTuple):
    """Messages in one file of the log.

    Attributes:
        numbers: numbers of their units; int64 of shape (messages,), like the other columns.
        heads: record array with the fields of :data:`formats.layouts.derived.HEAD_V4_V4`.
        data: the file's bytes; uint8 of shape (bytes,), mapped while in use.
        properties_at: position of the properties of each message in ``data``.
        properties_length: their length.
    """

    numbers: "Array"
    heads: "Array"
    data: "Array"
    properties_at: "Array"
    properties_length: "Array"


def lead_to_records(log: CommitLog, units: "Array") -> "Array":
    """Which units point to a record that has their size and its right position: bool of shape (units,).

    Topic and properties are not checked.
    """
    leading = np.zeros(len(units), bool)
    offsets = units["physical_offset"].astype(np.int64)
    for file in log.segments:
        inside = np.flatnonzero((offsets >= file.base) & (offsets <= file.end - HEAD_V4_V4.size))
        if len(inside):
            heads = _heads(np.frombuffer(file.view(), np.uint8), offsets[inside] - file.base)
            leading[inside] = (
                np.isin(heads["magic"], _MAGICS)
                & (heads["total_size"] == units["message_size"][inside])
                & (heads["physical_offset"] == offsets[inside])
                & (heads["queue_id"] == timer.QUEUE_ID)
            )
            file.release()
    return leading


def _heads(data: "Array", at: "Array") -> "Array":
    return windows(data, at, HEAD_V4_V4.size).view(HEAD_V4_V4.dtype)[:, 0]


def windows(data: "Array", at: "Array", size: int) -> "Array":
    """``size`` bytes from each position on, of shape (positions, size)."""
    cut: Array = sliding_window_view(data, size)[at]
    return cut


def plain_heads(log: CommitLog, units: "Array", chosen: "Array") -> Iterator[TimerHeads]:
    """The messages that units point to, if they are plain; other messages are left out.

    Args:
        units: record array with the fields of :class:`formats.variants.timer.LogUnit`.
        chosen: numbers of the wanted units.
    """
    offsets = units["physical_offset"][chosen].astype(np.int64)
    for file in log.segments:
        inside = np.flatnonzero((offsets >= file.base) & (offsets <= file.end - HEAD_V4_V4.size))
        if len(inside):
            yield _in_file(file, chosen[inside], offsets[inside] - file.base, units["message_size"][chosen[inside]])
            file.release()


def _in_file(file: Segment, numbers: "Array", at: "Array", sizes: "Array") -> TimerHeads:
    data = np.frombuffer(file.view(), np.uint8)
    heads = _heads(data, at)
    ends = at + sizes
    good = (
        (heads["magic"] == MAGIC_V1)
        & (heads["total_size"] == sizes)
        & (heads["physical_offset"] == at + file.base)
        & (heads["sys_flag"] & (BORN_V6 | STORE_V6) == 0)
        & (heads["queue_id"] == timer.QUEUE_ID)
        & (heads["body_length"] >= 0)
        & (ends <= len(data))
    )
    topic = at + HEAD_V4_V4.size + heads["body_length"]
    good &= topic + _BEHIND + 2 <= ends
    numbers, heads, topic, ends = numbers[good], heads[good], topic[good], ends[good]
    names = windows(data, topic, _BEHIND + 2)
    expected = np.frombuffer(bytes([len(_TOPIC)]) + _TOPIC, np.uint8)
    length = names[:, _BEHIND].astype(np.int64) << 8 | names[:, _BEHIND + 1]
    begins = topic + _BEHIND + 2
    good = (names[:, :_BEHIND] == expected).all(axis=1) & (begins + length == ends)
    return TimerHeads(numbers[good], heads[good], data, begins[good], length[good])
