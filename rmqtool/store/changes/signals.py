"""SIGINT, SIGTERM and SIGHUP while a store is changed: at once while that is prepared, between two actions while it is
done.
"""

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
    """A signal asks to stop, and nothing has been changed yet. Never leaves this package."""


class Signals:
    """Takes them while it is entered; what a caller has ignored stays ignored, and a caller's own handler runs
    as soon as that does no harm. Outside the main thread nothing is taken.

    Attributes:
        asked: number of the first signal that came; None without one.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._deferring = False
        self._late: list[int] = []  # signals that are a caller's own
        self._before: dict[int, Any] = {}
        self._told: Callable[[sys.UnraisableHookArgs], Any] | None = None

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                before = signal.getsignal(number)
                if before in (signal.SIG_IGN, None):
                    continue
                ours = before in (signal.SIG_DFL, signal.default_int_handler)
                self._before[number] = before
                signal.signal(number, self._take if ours else self._theirs)
            self._told, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._told is not None:
            sys.unraisablehook, self._told = self._told, None
        for number in self._late:
            handler: Callable[[int, FrameType | None], Any] = self._before[number]
            handler(number, None)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        first, self.asked = self.asked is None, self.asked or number
        if first and not self._deferring:
            self._deferring = True  # what is tidied up now must not be disturbed
            raise Stop

    def _unraisable(self, what: "sys.UnraisableHookArgs") -> None:
        """One that comes while Python tidies up is swallowed: it is noted, and no traceback is shown for it."""
        if self._told is not None and not isinstance(what.exc_value, Stop):
            self._told(what)

    def _theirs(self, number: int, frame: FrameType | None) -> None:
        if self._deferring:
            self._late.append(number)
        else:
            self._before[number](number, frame)

    def defer(self) -> None:
        """From here on signals are only noted. One that came before stops here.

        Raises:
            Stop: it did, and that was swallowed.
        """
        if self.asked is not None:
            raise Stop
        self._deferring = True

    def hold(self) -> None:
        """From here on signals are only noted, one that came before too."""
        self._deferring = True

    def resume(self) -> None:
        """A change is complete, and the next one is prepared.

        Raises:
            Stop: a signal came meanwhile.
        """
        if self.asked is not None:
            raise Stop
        self._deferring = False

    def error(self, words: str) -> Interrupted:
        """What to raise for the signal that came."""
        asked = signal.Signals(self.asked or signal.SIGINT)
        return _ERRORS.get(asked, Interrupted)(f"{asked.name}: {words}")
