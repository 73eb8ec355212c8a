"""Progress on stderr: a transient line on a terminal, or JSON for programs."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.cli.render.text import clearing, columns_of, cut_to, dump_json, width_of
from rmqtool.progress import Stage, listening

FORMS = ("auto", "json", "none")
_SILENT = 1.0  # seconds; shorter work shows no progress
_EVERY = {"auto": 0.2, "json": 1.0}  # seconds between updates
_COLUMNS = 80
_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")


class ProgressDisplay:
    """Shows the innermost current stage.

    Args:
        form: "json" for a line of JSON each second, "auto" for a line of a terminal.
    """

    def __init__(self, form: str) -> None:
        self._form = form
        self._stages: list[tuple[Stage, float]] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._looking: threading.Thread | None = None
        self._ended = self._visible = False

    def begin(self, stage: Stage) -> None:
        """See :class:`rmqtool.progress.StageListener`."""
        with self._lock:
            self._stages.append((stage, time.monotonic()))
            if self._looking is None:
                self._looking = threading.Thread(target=self._look, name="rmqtool-progress", daemon=True)
                self._looking.start()

    def end(self, stage: Stage) -> None:
        """End a stage; programs get its final state."""
        with self._lock:
            began = next(began for known, began in self._stages if known is stage)
            self._stages = [known for known in self._stages if known[0] is not stage]
            if self._form == "json":
                self._write(dump_json(row(stage, time.monotonic() - began)) + "\n")
            elif not self._stages:
                self._clear()

    def close(self) -> None:
        """Stop showing progress."""
        with self._lock:
            self._ended = True
            self._clear()
        self._changed.set()

    def _look(self) -> None:
        while not self._changed.wait(_EVERY[self._form]):
            with self._lock:
                if self._ended or not self._stages:
                    continue
                stage, began = self._stages[-1]
                seconds = time.monotonic() - began
                if self._form == "json":
                    self._write(dump_json(row(stage, seconds)) + "\n")
                elif time.monotonic() - self._stages[0][1] >= _SILENT:
                    self._visible = True
                    text, room = line(stage, seconds), (columns_of(sys.stderr) or _COLUMNS) - 1
                    self._write(f"\r\x1b[K{text if width_of(text) <= room else cut_to(text, room)}")

    def clear(self) -> None:
        """Remove the line from the terminal so that something else can be written; the next update restores it."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._visible:
            self._visible = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # stderr is gone; the work continues
            self._ended = True


def row(stage: Stage, seconds: float) -> dict[str, object]:
    """A stage as machine output has it.

    Args:
        seconds: since it began.
    """
    rate = stage.done / seconds if seconds > 0 and stage.done else None
    left = (stage.total - stage.done) / rate if rate and stage.total is not None else None
    return {
        "progress": stage.name,
        "done": stage.done,
        "total": stage.total,
        "unit": stage.unit,
        "seconds": round(seconds, 3),
        "rate": None if rate is None else round(rate, 1),
        "secondsLeft": None if left is None else round(max(left, 0.0), 1),
    }


def line(stage: Stage, seconds: float) -> str:
    """A stage for people, in less than 80 columns: share, amount, rate, time left."""
    rate = stage.done / seconds if seconds > 0 else 0
    parts = []
    if stage.total:
        parts.append(f"{min(stage.done / stage.total, 1):.0%}")
        parts.append(f"{_amount(stage.done, stage.unit, bare=True)} of {_amount(stage.total, stage.unit)}")
    elif stage.done:
        parts.append(_amount(stage.done, stage.unit))
    if rate and seconds >= _SILENT:
        parts.append(f"{_amount(rate, stage.unit)}/s")
        if stage.total:
            parts.append(f"{_time(max(stage.total - stage.done, 0) / rate)} left")
    else:
        parts.append(_time(seconds))
    return f"{stage.name}: {', '.join(parts)}"


def _amount(count: float, unit: str, *, bare: bool = False) -> str:
    if unit != "bytes":
        return f"{count:,.0f}" if bare else f"{count:,.0f} {unit}"
    step = 0
    while count >= 1024 and step + 1 < len(_STEPS):
        count, step = count / 1024, step + 1
    return f"{count:.{1 if step and count < 100 else 0}f} {_STEPS[step]}"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


@contextmanager
def showing(form: str, *, streams: bool) -> Iterator[None]:
    """Show progress while a command runs.

    Args:
        form: of :data:`FORMS`.
        streams: rows are written to stdout meanwhile; if that is the same terminal, no progress is shown.
    """
    if form == "none" or (form == "auto" and not (sys.stderr.isatty() and not (streams and sys.stdout.isatty()))):
        yield
        return
    shown = ProgressDisplay(form)
    clearing.append(shown.clear)
    with listening(shown):
        try:
            yield
        finally:
            clearing.remove(shown.clear)
            shown.close()
