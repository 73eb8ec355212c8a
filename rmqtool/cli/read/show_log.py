"""A commit log as one row of blocks."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from rmqtool.store.log.shape import LogShape

_LABEL = "Log  "
_MOST = 64  # blocks
_DAMAGED, _CUT, _MESSAGES, _UNUSED, _NO_FILE = "✗", "▒", "█", "░", "·"
_MEANINGS = {
    _MESSAGES: "messages", _DAMAGED: "damaged", _CUT: "cut off by the next start", _UNUSED: "unused",
    _NO_FILE: "no file",
}  # fmt: skip
_COLOURS = {_DAMAGED: "31", _CUT: "33"}


def blocks_of(shape: LogShape, count: int) -> str:
    """One character for each of so many equal parts of a log, by the worst of what is in it."""
    if not shape.files:
        return ""
    begin, end = shape.files[0].base, shape.files[-1].end
    count = min(count, end - begin) or 1
    edges = [begin + (end - begin) * at // count for at in range(count + 1)]
    blocks, first, damaged = [], 0, iter(shape.damaged)
    damage = next(damaged, None)
    for start, stop in pairwise(edges):
        while shape.files[first].end <= start:
            first += 1
        while damage is not None and damage.physical_offset + max(damage.length, 1) <= start:
            damage = next(damaged, None)
        if damage is not None and damage.physical_offset < stop:
            blocks.append(_DAMAGED)
            continue
        last = bisect_left(shape.files, stop, key=lambda file: file.base)
        parts = [(max(file.base, start), min(file.end, stop)) for file in shape.files[first:last]]
        blocks.append(_block(shape, parts))
    return "".join(blocks)


def _block(shape: LogShape, parts: list[tuple[int, int]]) -> str:
    """The block for bytes that are not damaged; each part is in one file."""
    cut = shape.end if shape.cut is None else shape.cut
    if any(max(start, cut) < min(stop, shape.end) for start, stop in parts):
        return _CUT
    if any(start < shape.end for start, _stop in parts):
        return _MESSAGES
    return _UNUSED if parts else _NO_FILE


def lines_of_log(shape: LogShape, width: int, *, colour: bool) -> Iterator[str]:
    """The row, and what its blocks mean; nothing for a log without files.

    Args:
        width: cells of a line.
    """
    blocks = blocks_of(shape, min(width - len(_LABEL), _MOST))
    if not blocks:
        return

    def paint(block: str) -> str:
        return f"\x1b[{_COLOURS[block]}m{block}\x1b[0m" if colour and block in _COLOURS else block

    yield _LABEL + "".join(map(paint, blocks))
    meanings = [f"{paint(block)} {text}" for block, text in _MEANINGS.items() if block in blocks]
    yield " " * len(_LABEL) + "   ".join(meanings)
