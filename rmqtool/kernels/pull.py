"""The records of one pull: selected by queue entries, verified, and copied into one buffer."""

import ctypes
from typing import Protocol

import numpy as np

from formats.layouts.derived import CQ_ENTRY
from rmqtool.kernels.load.library import INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Memory, array_address
from rmqtool.kernels.plain import pull as plain
from rmqtool.kernels.tables.limit import Limit

_pull = Function(
    "rmq_pull", INT64, POINTER, INT64, POINTER, INT64, INT64, INT64, POINTER, POINTER, INT64, POINTER
)  # fmt: skip


class PullKernel(Protocol):
    """Entry points."""

    def pull(
        self, entries: bytes, log: Memory, base: int, in_memory_from: int, near: Limit, far: Limit
    ) -> tuple[int, bytes] | None:
        """Return (number of messages, their concatenated records) for consecutive entries, as many as fit one response.

        Returns None if the record of an entry is not in this file, or if the response exceeds ``room``.

        Args:
            entries: whole entries of a consume queue.
            log: one file of the commit log.
            base: physical offset of its first byte.
            in_memory_from: physical offset from which ``near`` applies; ``far`` applies before it.
        """


class _Compiled:
    """Not thread-safe.

    Args:
        room: maximum size of a response in bytes.
    """

    def __init__(self, room: int) -> None:
        self._out, self._room = Memory(bytearray(room), writable=True), room
        self._limits = np.empty((2, len(Limit._fields)), np.int64)
        self._limits_at = array_address(self._limits)
        self._written = ctypes.c_int64()
        self._written_at = ctypes.addressof(self._written)
        self._last_limits: tuple[Limit, Limit] | None = None

    def pull(
        self, entries: bytes, log: Memory, base: int, in_memory_from: int, near: Limit, far: Limit
    ) -> tuple[int, bytes] | None:
        if (near, far) != self._last_limits:
            self._limits[:] = near, far
            self._last_limits = near, far
        count = _pull(
            entries, len(entries) // CQ_ENTRY.size, log.address, base, log.length, in_memory_from, self._limits_at,
            self._out.address, self._room, self._written_at,
        )  # fmt: skip
        return None if count < 0 else (count, bytes(self._out.view[: self._written.value]))


class _Plain:
    """Args: as for the compiled implementation."""

    def __init__(self, room: int) -> None:
        self._room = room

    def pull(
        self, entries: bytes, log: Memory, base: int, in_memory_from: int, near: Limit, far: Limit
    ) -> tuple[int, bytes] | None:
        return plain.pull(entries, log, base, in_memory_from, near, far, self._room)


def puller(room: int, *, code: Implementation | None = None) -> PullKernel:
    """Return the compiled or the plain entry points, for use by one thread.

    Args:
        room: maximum size of a response in bytes.
    """
    return _Compiled(room) if is_compiled(code) else _Plain(room)
