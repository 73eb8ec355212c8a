"""Shared by the commands that serve: address, ready line, logging, shutdown."""

import asyncio
import logging
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rmqtool.cli.render.output import PEOPLE, Column, write_all, writer
from rmqtool.cli.render.text import dump_json
from rmqtool.client.cluster.loop import fast_event_loop
from rmqtool.errors import BadValue
from rmqtool.store.disk.mapping import raise_open_files

_OPEN_FILES = 65_536  # file descriptors; shells often allow 1,024 although the system allows more
_SWITCH = 0.0005  # s a request may wait for another thread; Python's default of 5 ms is noticeable
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+):([0-9]{1,5})", re.ASCII)


def address_of(text: str, option: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        BadValue: not of the form HOST:PORT.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > 0xFFFF:
        raise BadValue(f"{option} {text}: give HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def say_ready(output: str, addresses: dict[str, str]) -> None:
    """Print the line on stdout that says that requests are accepted."""
    if output in PEOPLE:
        sys.stdout.write(" ".join(["ready", *(f"{name}={address}" for name, address in addresses.items())]) + "\n")
    elif output == "csv":
        write_all(writer("csv", tuple(addresses), [Column(name) for name in addresses]), [addresses])
    else:
        sys.stdout.write(dump_json(addresses) + "\n")
    sys.stdout.flush()


def log_to_stderr() -> None:
    """Log to stderr, one line per event, with times in UTC."""
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    form.converter = time.gmtime
    form.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class StopEvent(asyncio.Event):
    """Set when a signal has come.

    Attributes:
        number: of the first signal; 0 if none.
    """

    number = 0

    def take(self, number: int) -> None:
        """Handle a signal."""
        self.number = self.number or number
        self.set()

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as a shell reports it."""
        return 128 + self.number if self.number else 0


@asynccontextmanager
async def until_stopped() -> AsyncIterator[StopEvent]:
    """An event set by SIGINT, SIGTERM or SIGHUP, except those that the parent process ignores."""
    loop, stop = asyncio.get_running_loop(), StopEvent()
    heeded = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, stop.take, number)
    try:
        yield stop
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def run_async(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what ``work`` returns, on uvloop if installed, with many file descriptors allowed.

    SIGINT before the loop runs ends it without a word of a coroutine that nobody has awaited.
    """
    raise_open_files(_OPEN_FILES)
    sys.setswitchinterval(_SWITCH)
    with asyncio.Runner(loop_factory=fast_event_loop) as runner:
        runner.get_loop()  # creating it takes milliseconds
        coroutine = work()
        try:
            runner.run(coroutine)
        finally:
            coroutine.close()
