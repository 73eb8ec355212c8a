"""Brokers in separate processes, from which a model's store mirrors messages, or to which it replays them."""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
import time
import traceback
from abc import abstractmethod
from pathlib import Path
from typing import Self

from rmqtool.cli.serve.running import until_stopped
from rmqtool.server.serve import Served, ServeOptions

_PR_SET_PDEATHSIG = 1
_CONF = {"mappedFileSizeCommitLog": str(4 << 20), "mappedFileSizeConsumeQueue": "6000"}


def free_port() -> int:
    """A currently free port."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class Forked:
    """A server in a separate process. Use as a context manager."""

    _child = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGTERM)

    @property
    def runs(self) -> bool:
        """Whether it was started and has not ended."""
        if self._child and os.waitpid(self._child, os.WNOHANG) != (0, 0):
            self._child = 0
        return bool(self._child)

    def start(self) -> str:
        """Start it; returns its ready line once it accepts requests.

        Raises:
            RuntimeError: it has ended.
        """
        read, write = os.pipe()
        self._child = os.fork()
        if not self._child:
            self._become(write)
        os.close(write)
        with open(read) as file:
            answer = file.read()
        if not answer:
            os.waitpid(self._child, 0)
            self._child = 0
            raise RuntimeError(f"{self!r} does not start")
        return answer

    def end(self, number: int) -> None:
        """Stop or kill it."""
        if self.runs:
            os.kill(self._child, number)
            os.waitpid(self._child, 0)
            self._child = 0

    def _become(self, write: int) -> None:
        code = 70
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # whoever began it may be killed
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            logging.getLogger().handlers.clear()  # pytest's would write to a descriptor that a store has by then
            os.closerange(3, write)
            os.closerange(write + 1, 1 << 16)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            asyncio.run(self._serve(write))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    @abstractmethod
    async def _serve(self, write: int) -> None:
        """Serve until a signal; writes the ready line to ``write``."""


class Neighbour(Forked):
    """A broker with a fixed address.

    Args:
        conf: file sizes of its store, and other settings.

    Attributes:
        clock: error of its clock in ms, from the next start on.
    """

    def __init__(self, store: Path, conf: dict[str, str] | None = None) -> None:
        self._store, self._ports, self._conf = store, (free_port(), free_port()), conf or _CONF
        self.clock = 0
        self.address, self.namesrv = (f"127.0.0.1:{port}" for port in self._ports)

    def __repr__(self) -> str:
        return f"the broker of {self._store}"

    async def _serve(self, write: int) -> None:
        if self.clock:
            real, ahead = time.time_ns, self.clock * 1_000_000
            time.time_ns = lambda: real() + ahead
        options = ServeOptions(
            broker_conf=self._conf, listen=("127.0.0.1", self._ports[0]),
            namesrv_listen=("127.0.0.1", self._ports[1]), create=True,
        )  # fmt: skip
        async with until_stopped() as told, Served(str(self._store), options):
            os.write(write, b"ready")
            os.close(write)
            await told.wait()
