"""The application: a stack of lists, a message or a finding on top, a search and an export.

Services are imported by what needs them, as the first list is to appear at once.
"""

import asyncio
import signal
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Input, Label, Static

from rmqtool.cli.browse.places import BrowsedPlace
from rmqtool.cli.browse.rows import RowList
from rmqtool.cli.browse.sources import (
    BrowsedGroups,
    BrowsedMessages,
    BrowsedQueues,
    BrowsedTopics,
    Findings,
    Lags,
    Source,
)
from rmqtool.cli.render.text import dump_json, plain
from rmqtool.errors import RmqError
from rmqtool.words import counted

if TYPE_CHECKING:
    from rmqtool.services.open_store.message import StoredMessage

_EVERY = 0.2  # seconds between updates of findings
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Browser(App[None]):
    """A store or a cluster in a terminal. Nothing is written to it.

    Args:
        place: what is looked at.
    """

    CSS = """
    Screen { layers: base; }
    #title, #heading { height: 1; width: 100%; }
    #title { text-style: bold; }
    #heading { text-style: underline; color: $text-muted; }
    #status { height: 1; width: 100%; color: $text-muted; }
    #ask { display: none; height: 3; }
    RowList { height: 1fr; }
    #details { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "show('topics')", "Topics"),
        Binding("2", "show('groups')", "Groups"),
        Binding("3", "show('findings')", "Findings"),
        Binding("q,ctrl+c", "quit", "Quit"),
    ]

    def __init__(self, place: BrowsedPlace) -> None:
        super().__init__(ansi_color=True)
        self.place, self._path = place, place.path
        self.stopped_by = 0
        self._findings: Findings | None = None
        self.checked = False

    def on_mount(self) -> None:
        """Show the topics."""
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in _SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, self._stop, number)
        self.action_show("topics")

    def _stop(self, number: int) -> None:
        self.stopped_by = number
        self.exit()

    def action_show(self, what: str) -> None:
        """Show one of the first lists."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if what == "topics":
            self.push_screen(ListScreen(self._path, load=self.place.topics))
        elif what == "groups":
            self.push_screen(ListScreen(self._path, load=self.place.groups))
        else:
            self.push_screen(ListScreen(self._path, source=self._check()))

    def _check(self) -> Findings:
        """The findings; the check begins when they are first looked at."""
        if self._findings is None:
            self._findings = Findings()
            # a check of a large store must not keep the program from ending
            threading.Thread(target=self._run_check, args=(self._findings,), daemon=True).start()
        return self._findings

    def _run_check(self, findings: Findings) -> None:
        try:
            for finding in self.place.check():
                findings.rows.append(finding)
        except (RmqError, OSError) as err:
            self.place.warnings.append(f"check: {err}")
        self.checked = True


class _Base(Screen[None]):
    """A screen with a title, a status line and a field for search and export."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left", "back", "Back"),
        # at once, so that keys which follow are typed into the field
        Binding("slash", "ask('search')", "Search", priority=True),
        Binding("e", "ask('export')", "Export", priority=True),
    ]

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path, self._asked = path, ""

    @property
    def browser(self) -> Browser:
        """The application."""
        assert isinstance(self.app, Browser)
        return self.app

    def say(self, text: str) -> None:
        """Show a line of status."""
        self.query_one("#status", Label).update(plain(text))

    def action_back(self) -> None:
        """Leave the field, or the screen if there is one below."""
        if self._asked:
            self._close()
        elif len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key means an action now: in the field it is a letter."""
        return not (action == "ask" and self._asked)

    def action_ask(self, what: str) -> None:
        """Open the field."""
        self._asked = what
        field = self.query_one("#ask", Input)
        field.value = ""
        field.placeholder = self.question(what)
        field.display = True
        self.set_focus(field)  # at once: keys may follow

    def question(self, what: str) -> str:
        """What the field asks for."""
        return "file for an export as NDJSON; must not exist" if what == "export" else "text"

    def _close(self) -> None:
        self._asked = ""
        self.query_one("#ask", Input).display = False
        self.focus_first()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search or export."""
        asked, text = self._asked, event.value.strip()
        self._close()
        if not text:
            return
        try:
            self.search(text) if asked == "search" else self._export(text)
        except (RmqError, OSError) as err:
            self.say(str(err))

    def _export(self, out: str) -> None:
        from rmqtool.store.disk.outputs import check_output, write_output

        check_output(out, self.browser.place.root)
        lines = [dump_json(row) for row in self.exported()]
        write_output(out, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        self.say(f"{counted(len(lines), 'row')} written to {out}")

    @abstractmethod
    def focus_first(self) -> None:
        """Give the keys to what is looked at."""

    @abstractmethod
    def search(self, text: str) -> None:
        """Go to a text."""

    @abstractmethod
    def exported(self) -> Iterator[dict[str, Any]]:
        """The rows of an export."""


class ListScreen(_Base):
    """A list.

    Args:
        source: its rows.
        load: makes the source in the background, if that may take time.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("n", "again", "Next", show=False)]

    def __init__(self, path: str, source: Source | None = None, load: Callable[[], Source] | None = None) -> None:
        super().__init__(path)
        self._source, self._load, self._text = source, load, ""

    def compose(self) -> ComposeResult:
        """Its parts."""
        yield Label(plain(self._path), id="title", markup=False)
        yield Label("", id="heading", markup=False)
        if self._source is not None:
            yield RowList(self._source)
        yield Label("reading …", id="status", markup=False)
        yield Input(id="ask", select_on_focus=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Fill it."""
        if self._source is not None:
            self._ready()
        elif self._load is not None:
            threading.Thread(target=self._read, args=(self._load,), daemon=True).start()
        if isinstance(self._source, Findings):
            self.set_interval(_EVERY, self._more)

    def _read(self, load: Callable[[], Source]) -> None:
        try:
            done: Callable[[], Any] = partial(self._loaded, load())
        except (RmqError, OSError) as err:
            done = partial(self.say, str(err))
        with suppress(RuntimeError):  # the application has ended
            self.app.call_from_thread(done)

    async def _loaded(self, source: Source) -> None:
        if self.is_attached:
            self._source = source
            await self.mount(RowList(source), after="#heading")
            self._ready()
            if not source.complete:
                complete = threading.Thread(target=self._complete, args=(source,), daemon=True)
                self.call_after_refresh(complete.start)

    def _complete(self, source: Source) -> None:
        source.complete_cells()
        with suppress(RuntimeError):  # the application has ended
            self.app.call_from_thread(lambda: self._more() if self.is_attached else None)

    def _ready(self) -> None:
        assert self._source is not None
        self.query_one("#title", Label).update(plain(f"{self._path} › {self._source.title}"))
        self._head()
        self.focus_first()
        self._tell()

    def on_resize(self) -> None:
        """Lay out the columns again."""
        self._head()

    def _head(self) -> None:
        for rows in self.query(RowList):
            self.query_one("#heading", Label).update(rows.heading(self.size.width))
            rows.refresh_rows()

    def _more(self) -> None:
        """Take findings that have come."""
        for rows in self.query(RowList):
            rows.refresh_rows()
        self._tell()

    def _tell(self) -> None:
        source = self._source
        assert source is not None
        rows = self.query_one(RowList)
        text = f"{rows.cursor + 1:,} of {source.count:,}" if source.count else "nothing"
        if isinstance(source, Findings):
            text += "" if self.browser.checked else "; checking …"
        if warnings := self.browser.place.warnings:
            text += f"; {warnings[-1]}"
        self.say(text)

    def on_row_list_moved(self) -> None:
        """Say where the cursor is."""
        self._tell()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open what was chosen."""
        try:
            self._open(event.row)
        except (RmqError, OSError) as err:
            self.say(str(err))

    def _open(self, row: int) -> None:
        source = self._source
        if isinstance(source, BrowsedTopics):
            self._push(BrowsedQueues(source, source.names[row]))
        elif isinstance(source, BrowsedQueues):
            each = source.ranges[row]
            reader = self.browser.place.reader(each.brokerName)
            self._push(BrowsedMessages(reader, source.topic, each.queueId, each.minOffset, each.maxOffset))
        elif isinstance(source, BrowsedMessages):
            message = source.message(row)
            if message is None:
                self.say("no message can be read here: 3 shows what a check finds")
            else:
                self.app.push_screen(MessageScreen(self._path, message))
        elif isinstance(source, BrowsedGroups):
            group = source.rows[row].group
            self.app.push_screen(ListScreen(self._path, load=lambda: self.browser.place.lags(group)))
        elif isinstance(source, Lags):
            lag = source.rows[row]
            reader = self.browser.place.reader(getattr(lag, "brokerName", None))
            messages = BrowsedMessages(reader, lag.topic, lag.queueId, lag.minOffset or 0, lag.brokerOffset or 0)
            self._push(messages, messages.row_of(lag.consumerOffset or 0))
        elif isinstance(source, Findings):
            self.app.push_screen(TextScreen(self._path, source.title, source.lines(row), source.to_dict(row)))

    def _push(self, source: Source, row: int | None = None) -> None:
        screen = ListScreen(self._path, source)
        self.app.push_screen(screen)
        if row:
            screen.call_after_refresh(lambda: screen.query_one(RowList).go_to(row))

    def focus_first(self) -> None:
        """Give the keys to the rows."""
        for rows in self.query(RowList):
            self.set_focus(rows)

    def question(self, what: str) -> str:
        """What the field asks for."""
        if what == "search" and self._source is not None:
            return self._source.hint
        return super().question(what)

    def search(self, text: str) -> None:
        """Go to the next row with a text."""
        self._text = text
        self._seek(0)

    def action_again(self) -> None:
        """Go to the next row with the same text."""
        if self._text:
            self._seek(1)

    def _seek(self, ahead: int) -> None:
        if self._source is None:
            return
        rows = self.query_one(RowList)
        row = self._source.find(self._text, rows.cursor + ahead)
        if row is None:
            self.say(f"{self._text}: not here")
        else:
            rows.go_to(row)
            self._tell()

    def exported(self) -> Iterator[dict[str, Any]]:
        """The rows of an export."""
        return self._source.exported(self.query_one(RowList).cursor) if self._source is not None else iter(())


class TextScreen(_Base):
    """Lines of text.

    Args:
        row: the same for an export.
    """

    def __init__(self, path: str, title: str, lines: list[str], row: dict[str, Any]) -> None:
        super().__init__(path)
        self._title, self._lines, self._row = title, lines, row

    def compose(self) -> ComposeResult:
        """Its parts."""
        yield Label(plain(f"{self._path} › {self._title}"), id="title", markup=False)
        with VerticalScroll(id="details"):
            yield Static("\n".join(self._lines), id="text", markup=False)
        yield Label("", id="status", markup=False)
        yield Input(id="ask", select_on_focus=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Give it the keys."""
        self.focus_first()

    def focus_first(self) -> None:
        """Give the keys to the text."""
        self.set_focus(self.query_one("#details"))

    def search(self, text: str) -> None:
        """Scroll to the next line with a text."""
        details = self.query_one("#details")
        above = self._lines[: int(details.scroll_offset.y) + 1]
        order = [*range(len(above), len(self._lines)), *range(len(above))]
        line = next((at for at in order if text.casefold() in self._lines[at].casefold()), None)
        if line is None:
            self.say(f"{text}: not here")
        else:
            details.scroll_to(y=line, animate=False)
            self.say(self._lines[line].strip())

    def exported(self) -> Iterator[dict[str, Any]]:
        """What an export writes."""
        return iter((self._row,))


class MessageScreen(TextScreen):
    """A message with its body, and what became of it."""

    def __init__(self, path: str, message: "StoredMessage") -> None:
        from rmqtool.cli.browse.details import message_lines

        lines, row = message_lines(message)
        super().__init__(path, f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}", lines, row)
        self._id: str = row["msgId"]

    def on_mount(self) -> None:
        """Trace it in the background."""
        super().on_mount()
        self.say("tracing …")
        threading.Thread(target=self._trace, daemon=True).start()

    def _trace(self) -> None:
        warnings: list[str] = []
        try:
            lines = self.browser.place.trace(self._id, warnings.append)
        except (RmqError, OSError) as err:
            lines = [f"trace: {err}"]
        with suppress(RuntimeError):  # the application has ended
            self.app.call_from_thread(self._traced, lines, warnings)

    def _traced(self, lines: list[str], warnings: list[str]) -> None:
        if self.is_attached:
            self._lines = [*self._lines, "", *lines]
            self.query_one("#text", Static).update("\n".join(self._lines))
            self.say(warnings[-1] if warnings else "")
