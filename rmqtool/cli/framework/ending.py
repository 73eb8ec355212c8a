"""SIGINT, SIGTERM and SIGHUP ask a writing command to end at the next safe place."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal came, and all work so far is discarded."""


class StopSignal:
    """Records whether one of the signals has come; a signal ends a pause.

    Attributes:
        asked: whether one has.
        signal: which one came first.
    """

    def __init__(self) -> None:
        self.asked = False
        self.signal: signal.Signals | None = None
        self._raises = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Handle the signals inside the context, except those that the parent process ignores."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _NUMBERS}
        wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        try:
            for number, handler in before.items():
                if handler is not signal.SIG_IGN:
                    signal.signal(number, self._take)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            os.close(self._read)
            os.close(self._write)

    def _take(self, number: int, _frame: object) -> None:
        if not self.asked:
            self.asked, self.signal = True, signal.Signals(number)
            if self._raises:
                raise Stopped

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside the context a signal interrupts at any point.

        Raises:
            Stopped: a signal came, now or before.
        """
        self._raises = True
        try:
            if self.asked:
                raise Stopped
            yield
        finally:
            self._raises = False
        if self.asked:  # even if the code inside swallowed it
            raise Stopped

    def ask(self) -> None:
        """Act as if a signal had come, for signals that are handled elsewhere; also from another thread."""
        self.asked = True
        os.write(self._write, b"\0")

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as a shell reports it."""
        return 0 if self.signal is None else 128 + self.signal

    def wait(self, millis: int) -> None:
        """Pause."""
        if not self.asked:
            select.select([self._read], [], [], millis / 1000)

    @property
    def fd(self) -> int:
        """A descriptor that becomes readable when a signal comes."""
        return self._read

    def readable(self, fd: int) -> bool:
        """Wait for input or its end; False if a signal came first."""
        if self.asked:
            return False
        waiting = select.poll()
        waiting.register(self._read, select.POLLIN)
        waiting.register(fd, select.POLLIN)
        waiting.poll()
        return not self.asked
