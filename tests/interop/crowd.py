"""Many connections, and clients that send and never read, at a served store: ``python -m tests.interop.crowd``."""

import argparse
import resource
import socket
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command, build
from tests.interop.hostile import greet, memory
from tests.interop.serving import Serving

_ASKED = build(Command(RequestCode.GET_ALL_TOPIC_CONFIG, opaque=6))
_FEW = 128  # descriptors that the process may open at first


@dataclass
class Stood:
    """How the server coped. Sizes are KB, times are seconds.

    Attributes:
        lines: its log.
        alone, crowded: its memory.
        idle, busy: response time to another client with idle connections, and with clients that never read.
    """

    lines: list[str]
    alone: int
    crowded: int
    idle: float
    busy: float
    code: int


def crowd(store: Path, connections: int, greedy: int) -> Stood:
    """Open ``count`` connections, and as many more that send and never read."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Serving(store, "--create", "--engine", "5.3", files=_FEW) as serving:
        host, _, port = serving.broker.rpartition(":")
        address, pid = (host, int(port)), serving.process.pid
        alone = memory(pid)
        with ExitStack() as opened:
            for number in range(connections):  # nothing at all, half a frame, a question
                _connect(opened, address).sendall((b"", _ASKED[:9], _ASKED)[number % 3])
            idle = greet(address, _ASKED)
            for _ in range(greedy):
                unread = _connect(opened, address)
                unread.setblocking(False)
                with suppress(BlockingIOError):
                    while True:
                        unread.send(_ASKED * 500)
            busy = greet(address, _ASKED)
            crowded = memory(pid)
        greet(address, _ASKED)
        code, stderr = serving.end()
    return Stood(stderr.splitlines(), alone, crowded, idle, busy, code)


def _connect(opened: ExitStack, address: tuple[str, int]) -> socket.socket:
    return opened.enter_context(socket.create_connection(address, timeout=60))


def main() -> None:
    """Run and print the result."""
    options = argparse.ArgumentParser(prog="python -m tests.interop.crowd", description=__doc__)
    options.add_argument("--connections", type=int, default=10_000)
    options.add_argument("--greedy", type=int, default=50)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqtool-crowd-") as made:
        stood = crowd(Path(made, "store"), chosen.connections, chosen.greedy)
    print(
        f"{chosen.connections} connections and {chosen.greedy} that never read: exit code {stood.code}, "
        f"{len(stood.lines)} lines logged, memory {stood.alone >> 10} to {stood.crowded >> 10} MB, others answered "
        f"within {stood.idle:.3f} s beside the first, {stood.busy:.3f} s beside all"
    )


if __name__ == "__main__":
    main()
