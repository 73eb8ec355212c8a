"""A list of any number of rows, of which only those on the screen are made."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from rmqtool.cli.browse.sources import ListColumn, Source
from rmqtool.cli.render.text import plain
from rmqtool.errors import RmqError

_WIDE = 100  # cells, from which on there is room for every column
_LEAST = 8  # cells of the column that gets what is left


class RowList(ScrollView, can_focus=True):
    """The rows of a source, with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "jump(0)", "First", show=False),
        Binding("end,G", "jump(-1)", "Last", show=False),
        Binding("enter,right", "choose", "Open"),
        Binding("left", "screen.back", show=False),
    ]

    class Chosen(Message):
        """A row was chosen."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    class Moved(Message):
        """The cursor is at another row."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self.cursor = 0

    def on_mount(self) -> None:
        """Lay it out."""
        self.refresh_rows()

    def refresh_rows(self) -> None:
        """Take note of more rows."""
        self.virtual_size = Size(self.size.width or 1, self.source.count)
        self.cursor = max(min(self.cursor, self.source.count - 1), 0)
        self.refresh()

    def heading(self, width: int) -> str:
        """The titles of the columns."""
        return self._line([column.title for column in self.source.columns], width)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        row, width = self.scroll_offset.y + y, self.size.width
        if row >= self.source.count:
            return Strip.blank(width, self.rich_style)
        try:
            text = self._line(self.source.cells(row), width)
        except (RmqError, OSError) as err:
            text = set_cell_size(plain(str(err)), width)
        style = self.rich_style
        if row == self.cursor:
            style += Style(reverse=True, bold=self.has_focus)
        return Strip([Segment(text, style)], width)

    def _line(self, cells: Sequence[str], width: int) -> str:
        columns = self.source.columns
        shown = [
            (column, text) for column, text in zip(columns, cells, strict=True) if width >= _WIDE or not column.spare
        ]
        taken = sum(column.width + 2 for column, _text in shown)
        parts = [self._cell(column, text, max(width - taken, _LEAST)) for column, text in shown]
        return set_cell_size("  ".join(parts), width)

    @staticmethod
    def _cell(column: ListColumn, text: str, rest: int) -> str:
        width, text = column.width or rest, plain(text)
        if column.right and len(text) < width:
            return text.rjust(width)
        return set_cell_size(text, width)

    # -- moving -------------------------------------------------------------------------------------------------------

    def go_to(self, row: int) -> None:
        """Put the cursor at a row and show it."""
        before, self.cursor = self.cursor, max(min(row, self.source.count - 1), 0)
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)
        if before != self.cursor:
            self.refresh()
            self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """Move by rows."""
        self.go_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move by pages."""
        self.go_to(self.cursor + by * max(self.size.height - 1, 1))

    def action_jump(self, row: int) -> None:
        """Move to the first or the last row."""
        self.go_to(row if row >= 0 else self.source.count - 1)

    def action_choose(self) -> None:
        """Open the row."""
        if self.source.count:
            self.post_message(self.Chosen(self.cursor))

    def on_click(self, event: Click) -> None:
        """Move to a row that is clicked; open it if the cursor is there."""
        row = self.scroll_offset.y + event.y
        if row == self.cursor:
            self.action_choose()
        elif row < self.source.count:
            self.go_to(row)
