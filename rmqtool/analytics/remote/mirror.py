"""Files that are mapped here and fetched in parts: what was fetched lies in a temporary file without a name.

That file goes with the mapping, whatever ends this process. Nothing that is zero takes room in it, and what a reader
has behind it is given back.
"""

import ctypes
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from threading import Lock
from weakref import finalize

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.remote import Partial
from rmqtool.store.disk.segments import write_all

BLOCK = 4 << 10  # bytes that are there, or not, together
MOST = 8 << 20  # bytes that are fetched at once
THREADS = 8
_NEAR = 16 << 10  # bytes between two ranges that are fetched with them
_ABSENT, _THERE, _ZERO = range(3)
_ZEROS = bytes(BLOCK)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)

Fetch = Callable[[int, int], bytes]  # gives bytes [start, stop) of a file
_Run = tuple[int, int]  # (first block, behind the last)


class Mirror(Partial):
    """A file elsewhere.

    Args:
        size: of the file; not 0.
        fetch: called by several threads at a time.

    Raises:
        UnreadableStore: there is no place for a temporary file.
    """

    _fetch: Fetch
    _fd: int
    _state: bytearray  # one of _ABSENT, _THERE, _ZERO for each block
    _lock: Lock
    _next: int  # block behind the last that was fetched
    _ahead: int  # bytes that the next one gets who goes on there
    _whole: bool

    def __new__(cls, size: int, fetch: Fetch) -> "Mirror":
        try:
            with tempfile.TemporaryFile(prefix="rmqtool-") as file:
                fd = os.dup(file.fileno())
            os.truncate(fd, size)
            mapped = super().__new__(cls, fd, size, access=mmap.ACCESS_READ)
        except OSError as err:
            raise _no_room(err) from err
        finalize(mapped, os.close, fd)
        mapped._fd, mapped._fetch, mapped._lock = fd, fetch, Lock()
        mapped._state, mapped._next, mapped._ahead, mapped._whole = bytearray(-(-size // BLOCK)), -1, BLOCK, False
        return mapped

    def need(self, start: int, stop: int) -> None:
        """As :meth:`Partial.need`. Who goes on where the last fetch ended gets more than is asked for, ever more."""
        first, last = self._blocks(start, stop)
        if first >= last or self._state.find(_ABSENT, first, last) < 0:
            return
        with self._lock:
            at = self._state.find(_ABSENT, first, last)
            if at < 0:
                return
            self._ahead = min(2 * self._ahead, MOST) if at == self._next else BLOCK
            last = min(max(last, at + self._ahead // BLOCK), len(self._state))
            self._have(self._absent(at, last))
            self._next = last

    def need_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """As :meth:`Partial.need_all`."""
        with self._lock:
            self._have(_join(run for each in ranges for run in self._absent(*self._blocks(*each))))

    def need_whole(self) -> None:
        """As :meth:`Partial.need_whole`."""
        with self._lock:
            if not self._whole:
                self._have(self._absent(0, len(self._state)))
                self._whole = True

    def forget(self, start: int, stop: int) -> None:
        """As :meth:`Partial.forget`."""
        at, last = -(-start // BLOCK), stop // BLOCK
        if self._whole or _punch is None:
            return
        with self._lock:
            while at < last and (at := self._state.find(_THERE, at, last)) >= 0:
                end = at + 1
                while end < last and self._state[end] == _THERE:
                    end += 1
                if _punch(self._fd, _KEEP_SIZE | _PUNCH_HOLE, at * BLOCK, (end - at) * BLOCK):
                    return  # a file system that has no holes
                self._state[at:end] = bytes(end - at)
                at = end

    def _blocks(self, start: int, stop: int) -> _Run:
        start, stop = max(start, 0), min(stop, len(self))
        return (start // BLOCK, -(-stop // BLOCK)) if start < stop else (0, 0)

    def _absent(self, first: int, last: int) -> Iterator[_Run]:
        """What is not there, none of it longer than MOST."""
        while first < last and (first := self._state.find(_ABSENT, first, last)) >= 0:
            end, most = first + 1, min(last, first + MOST // BLOCK)
            while end < most and self._state[end] == _ABSENT:
                end += 1
            yield first, end
            first = end

    def _have(self, runs: Iterable[_Run]) -> None:
        listed = list(runs)
        if len(listed) == 1:
            self._take(listed[0])
        elif listed:
            with ThreadPoolExecutor(THREADS) as pool:
                for _done in pool.map(self._take, listed):
                    pass

    def _take(self, run: _Run) -> None:
        first, last = run
        start = first * BLOCK
        data = memoryview(self._fetch(start, min(last * BLOCK, len(self))))
        blocks = (data[at : at + BLOCK] for at in range(0, len(data), BLOCK))
        for is_zero, same in groupby(block == _ZEROS[: len(block)] for block in blocks):
            behind = first + len(list(same))
            if not is_zero:
                try:
                    write_all(self._fd, data[first * BLOCK - start : behind * BLOCK - start], first * BLOCK)
                except OSError as err:
                    raise _no_room(err) from err
            self._state[first:behind] = bytes([_ZERO if is_zero else _THERE]) * (behind - first)
            first = behind


def _join(runs: Iterable[_Run]) -> Iterator[_Run]:
    """Runs in ascending order, near ones as one."""
    held: _Run | None = None
    for first, last in runs:
        if held is not None and (first - held[1]) * BLOCK <= _NEAR and (last - held[0]) * BLOCK <= MOST:
            held = held[0], max(held[1], last)
            continue
        if held is not None:
            yield held
        held = first, last
    if held is not None:
        yield held


def _no_room(err: OSError) -> UnreadableStore:
    return UnreadableStore(f"{tempfile.gettempdir()}: {os.strerror(err.errno or 0)}")


def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """fallocate(2), by which Linux makes holes."""
    if sys.platform != "linux":
        return None
    function: Callable[[int, int, int, int], int] = ctypes.CDLL(None).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)  # type: ignore[attr-defined]
    return function


_punch = _fallocate()
