"""Live status of a served store on a terminal: clients, rates, and groups that are behind.

It stands below the log and is redrawn every second, if stderr is a terminal.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rmqtool.cli.render.text import cell_text
from rmqtool.errors import RmqError
from rmqtool.server.broker.context import counts
from rmqtool.server.metrics.figures import Figures, GroupFigures
from rmqtool.server.serve import Served

log = logging.getLogger(__name__)

_EVERY = 1.0  # s
_SHARE = 10  # share of time for collecting figures: with many groups it is done less often
_ROWS = 8


class _AboveIt(logging.Handler):
    """Prints log lines above the status."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = cell_text(self.format(record))
            self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
        except Exception:  # the terminal may be gone, and logging must not fail because of that
            self.handleError(record)


@asynccontextmanager
async def live_status(served: Served) -> AsyncIterator[None]:
    """Show the status inside the context, if stderr is a terminal that can."""
    console = Console(stderr=True)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        yield
        return
    root = logging.getLogger()
    before = root.handlers[:]
    above = _AboveIt(console)
    above.setFormatter(before[0].formatter if before else None)
    live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
    live.start()
    root.handlers[:] = [above]
    task = asyncio.create_task(_draw(served, live))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        root.handlers[:] = before
        with suppress(OSError):  # the terminal may be gone; the store is closed in any case
            live.stop()


async def _draw(served: Served, live: Live) -> None:
    try:
        await _draw_again_and_again(served, live)
    except (OSError, RmqError) as err:  # the terminal is gone, or a queue cannot be read: serving continues
        log.warning("no status is shown any more: %s", err)


async def _draw_again_and_again(served: Served, live: Live) -> None:
    broker = served.broker
    assert broker is not None
    context, figures = broker.context, Figures(broker.context)
    rates = _Rates()
    groups: list[GroupFigures] = []
    again = 0.0
    while True:
        now = time.monotonic()
        if now >= again:
            groups = await figures.groups()
            spent = time.monotonic() - now
            again = now + max(_EVERY, spent * _SHARE)
        cluster = context.settings.cluster
        put = rates.of("put", context.counts.sum(counts.BROKER_PUT, cluster), now)
        sent_rate = rates.of("got", context.counts.sum(counts.BROKER_GET, cluster), now)
        producers = sum(map(len, context.clients.producers.values()))
        consumers = sum(len(group.clients) for group in context.clients.consumers.values())
        head = _head(
            f"{context.settings.name} {served.broker_address}",
            f"connections {served.connections:,}  producers {producers:,}  consumers {consumers:,}",
            f"stored {put:,.0f}/s  handed out {sent_rate:,.0f}/s",
            width=live.console.width,
        )
        # a blocked terminal must not hold up clients
        await asyncio.to_thread(live.update, Group(head, *_tables(groups)), refresh=True)
        await asyncio.sleep(_EVERY)


def _head(*parts: str, width: int) -> Text:
    """The figures on as few lines as fit without cutting numbers."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}  {part}" if lines[-1] else part
        if lines[-1] and len(longer) > width:
            lines.append(part)
        else:
            lines[-1] = longer
    return Text("\n".join(lines), style="bold", no_wrap=True, overflow="ellipsis")


class _Rates:
    """How fast sums grow between updates."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def of(self, name: str, total: int, now: float) -> float:
        at, before = self._last.get(name, (now, total))
        self._last[name] = now, total
        return (total - before) / (now - at) if now > at else 0.0


def _tables(groups: list[GroupFigures]) -> list[Table | Text]:
    """The groups that are behind, farthest first."""
    behind = sorted(
        (group for group in groups if group.behind > 0 and not group.broadcast), key=lambda group: -group.behind
    )
    if not behind:
        return [Text("no group is behind")]
    table = Table(box=None, pad_edge=False)
    for name in ("group", "topic"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("members", "behind", "late"):
        table.add_column(name, justify="right", no_wrap=True)
    for figures in behind[:_ROWS]:
        late = f"{figures.late / 1000:,.0f} s"
        names = (Text(cell_text(figures.group)), Text(cell_text(figures.topic)))
        table.add_row(*names, f"{figures.members:,}", f"{figures.behind:,}", late)
    more = len(behind) - _ROWS
    return [table] if more <= 0 else [table, Text(f"and {more:,} more")]
