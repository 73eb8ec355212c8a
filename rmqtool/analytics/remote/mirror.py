"""Remote files that are mapped locally and fetched in parts into an unnamed temporary file.

The temporary file disappears with the mapping, however the process ends. Zero blocks take no space in it, and space
that a reader has finished with is released.
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
from rmqtool.store.disk.files import write_all
from rmqtool.store.disk.remote import Partial

BLOCK = 4 << 10  # unit of presence, bytes
MOST = 8 << 20  # maximum size of a fetch, bytes
THREADS = 8
_NEAR = 16 << 10  # ranges with a gap up to this size are fetched together, bytes
_ABSENT, _THERE, _ZERO = range(3)
_ZEROS = bytes(BLOCK)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)

Fetch = Callable[[int, int], bytes]  # returns bytes [start, stop) of a file
_Run = tuple[int, int]  # (first block, end)


class Mirror(Partial):
    """A remote file.

    Args:
        size: size of the file; not 0.
        fetch: may be called concurrently by several threads.

    Raises:
        UnreadableStore: there is no space for a temporary file.
    """

    _fetch: Fetch
    _fd: int
    _state: bytearray  # one of _ABSENT, _THERE, _ZERO for each block
    _lock: Lock
    _next: int  # block after the last one fetched
    _ahead: int  # read-ahead in bytes for a reader that continues there
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
        """See :meth:`Partial.need`. Sequential reads get a growing read-ahead."""
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
        """See :meth:`Partial.need_all`."""
        with self._lock:
            self._have(_join(run for each in ranges for run in self._absent(*self._blocks(*each))))

    def need_whole(self) -> None:
        """See :meth:`Partial.need_whole`."""
        with self._lock:
            if not self._whole:
                self._have(self._absent(0, len(self._state)))
                self._whole = True

    def forget(self, start: int, stop: int) -> None:
        """See :meth:`Partial.forget`."""
        at, last = -(-start // BLOCK), stop // BLOCK
        if self._whole or _punch is None:
            return
        with self._lock:
            while at < last and (at := self._state.find(_THERE, at, last)) >= 0:
                end = at + 1
                while end < last and self._state[end] == _THERE:
                    end += 1
                if _punch(self._fd, _KEEP_SIZE | _PUNCH_HOLE, at * BLOCK, (end - at) * BLOCK):
                    return  # the file system does not support holes
                self._state[at:end] = bytes(end - at)
                at = end

    def _blocks(self, start: int, stop: int) -> _Run:
        start, stop = max(start, 0), min(stop, len(self))
        return (start // BLOCK, -(-stop // BLOCK)) if start < stop else (0, 0)

    def _absent(self, first: int, last: int) -> Iterator[_Run]:
        """Yield the absent runs of blocks, none longer than MOST."""
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
            end = first + len(list(same))
            if not is_zero:
                try:
                    write_all(self._fd, data[first * BLOCK - start : end * BLOCK - start], first * BLOCK)
                except OSError as err:
                    raise _no_room(err) from err
            self._state[first:end] = bytes([_ZERO if is_zero else _THERE]) * (end - first)
            first = end


def _join(runs: Iterable[_Run]) -> Iterator[_Run]:
    """Merge ascending runs that are close to each other."""
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
    """Return fallocate(2), which punches holes on Linux; None elsewhere."""
    if sys.platform != "linux":
        return None
    function: Callable[[int, int, int, int], int] = ctypes.CDLL(None).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)  # type: ignore[attr-defined]
    return function


_punch = _fallocate()
