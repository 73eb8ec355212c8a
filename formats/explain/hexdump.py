"""A hex dump whose rows say which fields begin in them."""

from collections.abc import Iterable, Iterator

from formats.explain.spans import Span

WIDTH = 16
_TEXT = 40  # characters of a value, and four times as many of its note, that a label shows
_BLOCK = 4096  # rows that are compared at a time


def hexdump(buf: bytes | memoryview, spans: Iterable[Span], base: int = 0) -> Iterator[str]:
    """Lines of offset, 16 bytes, their characters, and the fields that begin there.

    Rows lie on multiples of 16 of the shown offset. Rows that equal the one before and begin no field become one ``*``.

    Args:
        spans: in ascending order, as explain yields them; bytes before the first and behind the last are not shown.
        base: offset of the buffer's first byte, for show.
    """
    dump = _Dump(buf, base)
    for span in spans:
        yield from dump.rows(span.start)
        dump.begin(span)
        yield from dump.rows(span.end)
    yield from dump.last_row()


def label(span: Span, unit: str = "") -> str:
    """A field in a few words: name, value, meaning; one line, whatever bytes the file holds.

    Args:
        unit: what the path's part before the first dot is not repeated for.
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
    """The row that is not complete yet, and the labels that wait for it."""

    def __init__(self, buf: bytes | memoryview, base: int) -> None:
        self.buf, self.base = buf, base
        self.at = self.end = -1  # next byte to show, and where what is to be shown ends so far
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
                row_end = self._same(row_end, stop)
            self.at = row_end

    def last_row(self) -> Iterator[str]:
        """What is left of the last row, and after a ``*`` the offset where it ends."""
        if self.at < self.end:
            yield self._line(bytes(self.buf[self.at : self.end]))
        elif self.starred:
            yield f"{self.base + self.at:08x}"

    def _same(self, at: int, stop: int) -> int:
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
