"""SIGINT, SIGTERM and SIGHUP during a change: acted on at once while preparing, between two actions while applying."""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from rmqtool.errors import HungUp, Interrupted, Terminated

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ERRORS: dict[int, type[Interrupted]] = {signal.SIGTERM: Terminated, signal.SIGHUP: HungUp}


class Stop(BaseException):
    """A signal arrived before anything was changed. Caught within this package."""


class Signals:
    """Handles signals inside the ``with`` block; ignored signals stay ignored, and a caller's own handler runs as soon
    as that is safe. Does nothing outside the main thread.

    Attributes:
        asked: number of the first signal that arrived; None without one.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._deferring = False
        self._late: list[int] = []  # signals for a caller's own handler
        self._before: dict[int, Any] = {}
        self._previous_hook: Callable[[sys.UnraisableHookArgs], Any] | None = None

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                before = signal.getsignal(number)
                if before in (signal.SIG_IGN, None):
                    continue
                ours = before in (signal.SIG_DFL, signal.default_int_handler)
                self._before[number] = before
                signal.signal(number, self._take if ours else self._forward)
            self._previous_hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._previous_hook is not None:
            sys.unraisablehook, self._previous_hook = self._previous_hook, None
        for number in self._late:
            handler: Callable[[int, FrameType | None], Any] = self._before[number]
            handler(number, None)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        first, self.asked = self.asked is None, self.asked or number
        if first and not self._deferring:
            self._deferring = True  # clean-up must not be disturbed
            raise Stop

    def _unraisable(self, what: "sys.UnraisableHookArgs") -> None:
        """Print no traceback for a Stop raised while Python cleans up; the signal is recorded in ``asked``."""
        if self._previous_hook is not None and not isinstance(what.exc_value, Stop):
            self._previous_hook(what)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._deferring:
            self._late.append(number)
        else:
            self._before[number](number, frame)

    def defer(self) -> None:
        """From now on only record signals. If one arrived before, stop here.

        Raises:
            Stop: a signal arrived and its exception was swallowed.
        """
        if self.asked is not None:
            raise Stop
        self._deferring = True

    def hold(self) -> None:
        """From now on only record signals, like one that arrived before."""
        self._deferring = True

    def resume(self) -> None:
        """Act on signals at once again, after a change is complete and before the next one.

        Raises:
            Stop: a signal arrived in the meantime.
        """
        if self.asked is not None:
            raise Stop
        self._deferring = False

    def error(self, text: str) -> Interrupted:
        """The exception to raise for the signal that arrived."""
        asked = signal.Signals(self.asked or signal.SIGINT)
        return _ERRORS.get(asked, Interrupted)(f"{asked.name}: {text}")
