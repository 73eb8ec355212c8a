"""The map of a log: a row of cells for each file, with the topics in it, damage, and where the next start ends it."""

import os
from collections.abc import Iterator
from typing import Any

from rmqtool.cli.html.words import clean, moment_text, number_text
from rmqtool.cli.render.text import size_text
from rmqtool.services.overview.overview import Overview
from rmqtool.services.usage.contents import Cell, Contents, FileRow
from rmqtool.store.log.shape import LogShape
from rmqtool.words import counted

COLOURS = 7  # topics with one of their own
_WIDTH, _HEIGHT = 10, 24  # of a cell
_LISTED = 3  # topics named in a description
_OTHERS, _DAMAGED = "cx", "damaged"

Part = tuple[str, str, int]  # class, name, bytes


class LogMap:
    """The map of one store's log.

    Args:
        coloured: numbers of the topics with a colour of their own.
    """

    def __init__(self, overview: Overview, contents: Contents, coloured: list[int]) -> None:
        self._contents, self._shape = contents, overview.shape or LogShape()
        self._root = overview.info.store
        self._kinds = {number: f"c{at}" for at, number in enumerate(coloured)}
        self._end = self._shape.end
        self._damage: dict[int, int] = {}  # bytes by the beginning of a row
        for each in self._shape.damaged:
            row = next((row for row in contents.rows if row.begin <= each.physical_offset < row.end), None)
            if row is not None:
                self._damage[row.begin] = self._damage.get(row.begin, 0) + each.length

    def section(self) -> dict[str, Any]:
        """What the template needs."""
        rows = self._contents.rows
        most = max((row.files for row in rows), default=1)
        legend = [{"kind": kind, "name": clean(self._name(number))} for number, kind in self._kinds.items()]
        if len(self._contents.topics) > len(self._kinds):
            legend.append({"kind": _OTHERS, "name": "other topics"})
        legend += [{"kind": "free", "name": "unused"}]
        legend += [{"kind": _DAMAGED, "name": "damaged"}] if self._damage else []
        legend += [{"kind": "cut", "name": "cut off by the next start"}] if self._shape.cut is not None else []
        heads = ("Files", "First message", "Last message", "Messages", "Bytes", "Damaged", "Topics", "Next start")
        return {
            "row_is": "one file" if most == 1 else f"up to {most} files",
            "legend": legend,
            "rows": [self._row(row) for row in rows],
            "heads": [{"name": name, "right": name in ("Messages", "Bytes", "Damaged")} for name in heads],
            "table": [self._line(row) for row in rows],
        }

    def _name(self, number: int) -> str:
        return self._contents.topics[number][0]

    def _files(self, row: FileRow) -> str:
        first, last = (
            os.path.relpath(path, self._root) if os.path.isabs(path) else path for path in (row.first, row.last)
        )
        return clean(first if row.files == 1 else f"{first} to {os.path.basename(last)}")

    def _row(self, row: FileRow) -> dict[str, Any]:
        cut, end = self._shape.cut, min(self._end, row.end)
        at, width = 0, 0
        if cut is not None and cut < end and row.begin < end:
            length = max(row.end - row.begin, 1)
            at, stop = ((max(each - row.begin, 0) * _WIDTH * len(row.cells)) // length for each in (cut, end))
            width = max(stop - at, 1)
        times = " – ".join(dict.fromkeys(filter(None, map(moment_text, (row.first_time, row.last_time)))))
        begins = cut is not None and row.begin <= cut < row.end
        return {
            "name": self._files(row),
            "times": times or "no messages",
            "label": ", ".join(map(str, filter(None, self._described(row)))),
            "cells": [self._cell(row, number, cell) for number, cell in enumerate(row.cells)],
            "cut": {"x": at, "width": width, "mark": begins} if width else None,
            "remark": self._remark(row) if begins else "",
        }

    def _cell(self, row: FileRow, number: int, cell: Cell) -> dict[str, Any]:
        room, bottom, parts = max(cell.bytes, 1), float(_HEIGHT), []
        listed = self._parts(cell)
        for kind, _text, size in listed:
            # damage is visible, however small
            height = min(max(size * _HEIGHT / room, 4 if kind == _DAMAGED else 0.3), bottom)
            bottom -= height
            parts.append({"kind": kind, "y": f"{bottom:.3g}", "height": f"{height:.3g}"})
        texts = [f"{name} {size / room:.0%}" for _kind, name, size in listed]
        start = row.begin + number * -(-(row.end - row.begin) // len(row.cells))
        when = f"from {moment_text(cell.time)}" if cell.time is not None else ""
        what = ", ".join(texts) or ("unused" if cell.bytes else "no file")
        return {
            "x": number * _WIDTH,
            "parts": parts,
            "title": " ".join(filter(None, (f"offset {number_text(start)}:", what, when))),
        }

    def _parts(self, cell: Cell) -> list[Part]:
        """The parts of a cell from below: topics with a colour, all others, damage."""
        coloured = [(self._kinds[number], clean(self._name(number)), size) for number, size in cell.topics
                    if number in self._kinds]  # fmt: skip
        others = cell.others + sum(size for number, size in cell.topics if number not in self._kinds)
        parts = sorted(coloured)
        parts += [(_OTHERS, "other topics", others)] if others else []
        parts += [(_DAMAGED, "damaged", cell.damaged)] if cell.damaged else []
        return parts

    def _described(self, row: FileRow) -> Iterator[str]:
        yield self._files(row)
        yield counted(row.messages, "message")
        yield self._topics(row)
        damaged = max(self._damage.get(row.begin, 0), row.damaged)
        yield f"{size_text(damaged)} damaged" if damaged else "no damage"
        yield self._remark(row)

    def _topics(self, row: FileRow) -> str:
        listed = [f"{clean(self._name(number))} {size / row.bytes:.0%}" for number, size in row.topics[:_LISTED]]
        return ", ".join(listed)

    def _remark(self, row: FileRow) -> str:
        """What the next start does here."""
        cut = self._shape.cut
        if cut is None:
            return "the log ends here" if row.begin <= self._end - 1 < row.end else ""
        if cut < row.begin:
            return "the next start cuts it off" if row.begin < self._end else ""
        return f"the next start ends the log here, at offset {number_text(cut)}" if cut < row.end else ""

    def _line(self, row: FileRow) -> list[str]:
        damaged = max(self._damage.get(row.begin, 0), row.damaged)
        return [
            self._files(row), moment_text(row.first_time), moment_text(row.last_time), number_text(row.messages),
            size_text(row.bytes), size_text(damaged) if damaged else "", self._topics(row), self._remark(row),
        ]  # fmt: skip
