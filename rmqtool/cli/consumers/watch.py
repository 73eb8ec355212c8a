"""``group lag --watch`` and ``--prometheus``: the lag of groups in rounds."""

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.render.output import writer
from rmqtool.cli.render.rows import Warnings, columns_of, names_of
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import time_text
from rmqtool.errors import BadValue, RmqError
from rmqtool.services.consumers.groups import GroupLag
from rmqtool.services.consumers.watch import LagWatch, WatchedLag
from rmqtool.words import counted

if TYPE_CHECKING:
    from rmqtool.admin.subjects import GroupSubject
    from rmqtool.cli.consumers.lag_metrics import LagMetricsPage, MetricsFile

_HOME, _REST = "\x1b[H\x1b[2J", "\x1b[J"  # first round: an empty screen; and what is left of the round before
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]*):[0-9]{1,5}", re.ASCII)
_LEAST = 100  # ms between two rounds
_COLUMNS = {
    "queue": ("group", "topic", "queueId", "diff", "change", "inRate", "outRate", "drainSeconds", "oldestTimestamp"),
    "topic": ("group", "topic", "queues", "diff", "change", "inRate", "outRate", "drainSeconds", "oldestTimestamp"),
    "group": ("group", "queues", "diff", "change", "inRate", "outRate", "drainSeconds", "oldestTimestamp"),
}


def watch_lag(
    open_groups: "Callable[[Warnings], GroupSubject]",
    chosen: Callable[[GroupLag], bool],
    *,
    by: str,
    pause: int | None,
    rounds: int | None,
    lagging: bool,
    limit: int | None,
    output: str,
    prometheus: str | None,
) -> int:
    """Show the lag of groups in rounds, until a signal comes; the exit code is that of the last round.

    A round that fails is reported, and the next one is tried.

    Args:
        open_groups: opens the groups; called once per round.
        pause: ms from the beginning of a round to that of the next; None for a single round.
        rounds: number of rounds.
        prometheus: file for the text collector of the node exporter, replaced in each round, or HOST:PORT of a page.

    Raises:
        BadValue: the form of output is made for something that ends, or the pause is too short.
        RmqError: a single round failed.
    """
    if pause is not None and pause < _LEAST:
        raise BadValue("--watch: at least 100ms")
    if pause is None and prometheus is not None and is_address(prometheus):
        raise BadValue(f"--prometheus {prometheus}: a page goes with --watch")
    if pause is not None and output == "json":
        raise BadValue("--watch: give --output ndjson, which has a line for each row and round, or csv")
    watch, ending, code, count = LagWatch(by), StopSignal(), 0, 0
    screen = _Screen(output)
    with ending.watch(), _metrics_at(prometheus) as metrics:
        while not ending.asked:
            started, warn = time.monotonic(), Warnings()
            try:
                groups = open_groups(warn)
                lags = [row for row in groups.lag() if chosen(row)]
                oldest = groups.oldest([row for row in lags if (row.diff or 0) > 0])
                now = int(time.time() * 1000)
                rows = watch.next_round(lags, oldest, now)
                if metrics is not None:
                    metrics.show(lags, oldest, now, groups.clusters)
                shown = [row for row in rows if row.diff or not lagging]
                screen.show(shown, names_of_table(by, groups), limit, now)
                code = warn.tell() or (1 if any(row.problems for row in rows) else 0)
            except RmqError as err:
                if pause is None:
                    raise
                note(f"{time_text(int(time.time() * 1000))} {err}")
                if metrics is not None:
                    metrics.clear()
                code = err.exit_code
            count += 1
            if pause is None or count == rounds:
                break
            ending.wait(max(pause - round((time.monotonic() - started) * 1000), 0))
    screen.close()
    return code


def is_address(place: str) -> bool:
    """Whether metrics go to a page, at ``HOST:PORT`` or ``:PORT``, and not to a file."""
    return _ADDRESS.fullmatch(place) is not None


@contextmanager
def _metrics_at(place: str | None) -> "Iterator[MetricsFile | LagMetricsPage | None]":
    if place is None:
        yield None
        return
    from rmqtool.cli.consumers.lag_metrics import LagMetricsPage, MetricsFile

    metrics = LagMetricsPage(place) if is_address(place) else MetricsFile(place)
    if isinstance(metrics, LagMetricsPage):
        note(f"metrics at http://{metrics.address}/metrics")
    try:
        yield metrics
    finally:
        metrics.close()


def names_of_table(by: str, groups: "GroupSubject") -> tuple[str, ...]:
    """The columns of a table; a queue of a cluster has a broker."""
    more = ("brokerName",) if by == "queue" and "brokerName" in names_of(groups.lag_row) else ()
    return (*_COLUMNS[by], *more)


class _Screen:
    """Rows of each round: repainted on a terminal, one after the other elsewhere."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._repaints = output == "text" and sys.stdout.isatty()
        self._stream = writer(output, names_of(WatchedLag), ()) if output in ("ndjson", "csv") else None
        self._begun = False

    def show(self, rows: Sequence[WatchedLag], names: Sequence[str], limit: int | None, now: int) -> None:
        if self._stream is not None:
            for row in rows[:limit]:
                self._stream.row(row.to_dict())
            sys.stdout.flush()
            return
        left = len(rows) - len(rows[:limit])
        if self._repaints:
            rows = sorted(rows, key=lambda row: -(row.diff or 0))
            room = max(shutil.get_terminal_size().lines - 4, 1)
            limit = room if limit is None else min(limit, room)
            left = max(len(rows) - limit, 0)
            sys.stdout.write(_HOME)
        elif self._begun:
            sys.stdout.write("\n")
        self._begun = True
        sys.stdout.write(f"{time_text(now)}, {counted(len(rows), 'row')}{f', {left} not shown' if left else ''}\n")
        table = writer(self._output, names_of(WatchedLag), columns_of(WatchedLag, names, spare=("change", "inRate")))
        for row in rows[:limit]:
            table.row(row.to_dict())
        table.close()
        if self._repaints:
            sys.stdout.write(_REST)
        sys.stdout.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
