"""A client's identity: its address, its id, and the ids of its messages."""

import os
import secrets
import socket
import time

from formats.primitives import address_text
from rmqtool.rules.ids import UniqueIds

_ELSEWHERE = ("192.0.2.1", 9)  # a documentation address (RFC 5737); nothing is sent there


def local_address() -> bytes:
    """The IPv4 address from which this machine would reach others; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # selects a route without sending
            return socket.inet_aton(probe.getsockname()[0])
        except OSError:
            return bytes((127, 0, 0, 1))


def new_client_id() -> str:
    """An id for a client of this process, in the form of ``ClientConfig.buildMQClientId``: ``IP@PID#NANOSECONDS``."""
    return f"{address_text(local_address())}@{os.getpid()}#{time.monotonic_ns()}"


def new_unique_ids() -> UniqueIds:
    """A source of unique message ids, with random bytes so that no two sources collide."""
    return UniqueIds(local_address(), os.getpid(), secrets.randbits(32), lambda: time.time_ns() // 1_000_000)
