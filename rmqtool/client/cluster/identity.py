"""Who a client is: its address, its id, and the ids of its messages."""

import os
import secrets
import socket
import time

from formats.primitives import address_text
from rmqtool.rules.ids import UniqueIds

_ELSEWHERE = ("192.0.2.1", 9)  # an address of documentation (RFC 5737): nothing is ever sent there


def local_address() -> bytes:
    """The IPv4 address from which this machine would reach another one; that of itself where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # chooses a route, and sends nothing
            return socket.inet_aton(probe.getsockname()[0])
        except OSError:
            return bytes((127, 0, 0, 1))


def new_client_id() -> str:
    """An id for a client of this process, in the form of ``ClientConfig.buildMQClientId``: ``IP@PID#NANOSECONDS``."""
    return f"{address_text(local_address())}@{os.getpid()}#{time.monotonic_ns()}"


def new_unique_ids() -> UniqueIds:
    """A source of unique message ids; no two sources give the same, for each has random bytes of its own."""
    return UniqueIds(local_address(), os.getpid(), secrets.randbits(32), lambda: time.time_ns() // 1_000_000)
