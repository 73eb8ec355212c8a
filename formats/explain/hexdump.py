"""A hex dump that lists the fields beginning in each row."""

from collections.abc import Iterable, Iterator

from formats.explain.spans import Span

WIDTH = 16
_TEXT = 40  # length limit of a value in a label; notes get four times as much
_BLOCK = 4096  # rows compared at a time


def hexdump(buf: bytes | memoryview, spans: Iterable[Span], base: int = 0) -> Iterator[str]:
    """Lines of offset, 16 bytes, their characters, and the fields that begin there.

    Rows are aligned to multiples of 16 of the shown offset. Rows equal to the previous one without new fields become
    ``*``.

    Args:
        spans: in ascending order, as from explain; bytes outside them are not shown.
        base: shown offset of the buffer's first byte.
    """
    dump = _Dump(buf, base)
    for span in spans:
        yield from dump.rows(span.start)
        dump.begin(span)
        yield from dump.rows(span.end)
    yield from dump.last_row()


def label(span: Span, unit: str = "") -> str:
    """A short description of a field: name, value, meaning; always one line.

    Args:
        unit: a prefix of the path to omit.
    """
    text = span.path[len(unit) :] if unit and span.path.startswith(f"{unit}.") else span.path
    if isinstance(span.value, int):
        text += f"={span.value}"
    elif span.value is not None and not span.note:
        text += f"={span.value[:_TEXT].hex()}" + ("..." if len(span.value) > _TEXT else "")
    if span.note:
        text += f" ({span.note[: 4 * _TEXT]}" + ("...)" if len(span.note) > 4 * _TEXT else ")")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _Dump:
    """The incomplete row, and the labels waiting for it."""

    def __init__(self, buf: bytes | memoryview, base: int) -> None:
        self.buf, self.base = buf, base
        self.at = self.end = -1  # next byte to show, and end of the bytes to show so far
        self.labels: list[str] = []
        self.unit = ""
        self.previous, self.starred = b"", False

    def begin(self, span: Span) -> None:
        if self.at < 0:
            self.at = span.start
        self.labels.append(label(span, self.unit))
        self.unit = span.path.partition(".")[0]
        self.end = span.end

    def rows(self, stop: int) -> Iterator[str]:
        """The complete rows that end at or before ``stop``."""
        while self.at >= 0 and (row_end := self.at + WIDTH - (self.base + self.at) % WIDTH) <= stop:
            row = bytes(self.buf[self.at : row_end])
            if self.labels or row != self.previous:
                yield self._line(row)
            else:
                if not self.starred:
                    yield "*"
                self.starred = True
                row_end = self._end_of_repeats(row_end, stop)
            self.at = row_end

    def last_row(self) -> Iterator[str]:
        """The rest of the last row, and after a ``*`` the offset where it ends."""
        if self.at < self.end:
            yield self._line(bytes(self.buf[self.at : self.end]))
        elif self.starred:
            yield f"{self.base + self.at:08x}"

    def _end_of_repeats(self, at: int, stop: int) -> int:
        """The end of the run of rows equal to the previous one."""
        block = self.previous * _BLOCK
        while stop - at >= len(block) and self.buf[at : at + len(block)] == block:
            at += len(block)
        while stop - at >= WIDTH and self.buf[at : at + WIDTH] == self.previous:
            at += WIDTH
        return at

    def _line(self, row: bytes) -> str:
        offset = self.base + self.at
        lead = offset % WIDTH
        digits = "   " * lead + row.hex(" ")
        text = " " * lead + "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
        line = f"{offset - lead:08x}  {digits:<47}  |{text:<16}|  {'; '.join(self.labels)}"
        self.labels.clear()
        self.previous, self.starred = row if len(row) == WIDTH else b"", False
        return line.rstrip()
