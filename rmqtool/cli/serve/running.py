"""What commands that serve have in common: where they listen, when they are ready, what they log, how they end."""

import asyncio
import logging
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from rmqtool.cli.render.output import PEOPLE, Column, write_all, writer
from rmqtool.cli.render.text import dump_json
from rmqtool.errors import BadValue
from rmqtool.store.disk.mapping import raise_open_files

_OPEN_FILES = 65_536  # a connection is one; a shell often allows 1,024 where the system allows many more
_SWITCH = 0.0005  # s that a request waits while another thread dispatches or flushes; Python's own 5 ms are felt
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+):([0-9]{1,5})", re.ASCII)


def address_of(text: str, option: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        BadValue: it is not HOST:PORT.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > 0xFFFF:
        raise BadValue(f"{option} {text}: give HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def say_ready(output: str, addresses: dict[str, str]) -> None:
    """One line on stdout: requests are taken from now on."""
    if output in PEOPLE:
        sys.stdout.write(" ".join(["ready", *(f"{name}={address}" for name, address in addresses.items())]) + "\n")
    elif output == "csv":
        write_all(writer("csv", tuple(addresses), [Column(name) for name in addresses]), [addresses])
    else:
        sys.stdout.write(dump_json(addresses) + "\n")
    sys.stdout.flush()


def log_to_stderr() -> None:
    """One line for each event that an operator needs, with its time in UTC."""
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    form.converter = time.gmtime
    form.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class StopEvent(asyncio.Event):
    """Set when a signal has come.

    Attributes:
        number: of the first one; 0 without.
    """

    number = 0

    def take(self, number: int) -> None:
        """A signal has come."""
        self.number = self.number or number
        self.set()

    @property
    def exit_code(self) -> int:
        """As a shell tells of a process that a signal has ended."""
        return 128 + self.number if self.number else 0


@asynccontextmanager
async def until_stopped() -> AsyncIterator[StopEvent]:
    """Set when SIGINT, SIGTERM or SIGHUP comes, except those that the parent process has had ignored."""
    loop, stop = asyncio.get_running_loop(), StopEvent()
    heeded = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, stop.take, number)
    try:
        yield stop
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on the event loop of uvloop where that is installed, with room for many connections."""
    raise_open_files(_OPEN_FILES)
    sys.setswitchinterval(_SWITCH)
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)
