"""Simulate bad sectors: a directory mounted through a FUSE file system in which ranges of files cannot be read.

A separate process speaks the kernel's FUSE protocol (linux/fuse.h, 7.31), read-only. Reads and mappings of the ranges
fail as on a broken disk: EIO, SIGBUS. Needs the right to mount.
"""

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = 1  # the number of the top directory
IN_HEADER = struct.Struct("<IIQQIIII")
OUT_HEADER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = 27, 28, 29, 34, 36, 42
_LONGEST = (1 << 20) + 4096
_MOUNT_FLAGS = 1 | 2 | 4  # MS_RDONLY, MS_NOSUID, MS_NODEV
_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


class _Server:
    def __init__(self, folder: str, bad: Mapping[str, list[tuple[int, int]]]) -> None:
        self._bad = bad
        self._paths = {ROOT: folder}
        self._numbers = {folder: ROOT}

    def serve(self, fd: int) -> None:
        while True:
            try:
                request = os.read(fd, _LONGEST)
            except OSError as err:
                if err.errno == errno.ENODEV:
                    return  # unmounted
                if err.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                raise
            _length, code, unique, node, *_who = IN_HEADER.unpack_from(request)
            if code in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                answer, error = self._answer(code, node, request[IN_HEADER.size :]), 0
            except OSError as err:
                answer, error = b"", -(err.errno or errno.EIO)
            os.write(fd, OUT_HEADER.pack(OUT_HEADER.size + len(answer), error, unique) + answer)

    def _answer(self, code: int, node: int, body: bytes) -> bytes:
        if code == INIT:
            return struct.pack("<4I2H2I2HI28x", 7, 31, 1 << 17, 0, 16, 12, 1 << 17, 1, 0, 0, 0)
        path = self._paths[node]
        if code == LOOKUP:
            inner = os.path.join(path, os.fsdecode(body.rstrip(b"\0")))
            attributes = self._attributes(inner)
            return struct.pack("<4Q2I", self._number(inner), 0, 0, 0, 0, 0) + attributes
        if code == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self._attributes(path)
        if code in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if code == READ:
            _handle, at, size = struct.unpack_from("<QQI", body)
            for name, ranges in self._bad.items():
                if path.endswith(f"/{name}") and any(start < at + size and at < stop for start, stop in ranges):
                    raise OSError(errno.EIO, "bad sector")
            with open(path, "rb") as file:
                return os.pread(file.fileno(), size, at)
        if code == READDIR:
            _handle, at, size = struct.unpack_from("<QQI", body)
            return self._entries(path, at, size)
        if code in (RELEASE, RELEASEDIR, FLUSH, ACCESS):
            return b""
        if code == STATFS:
            return struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
        raise OSError(errno.ENOSYS, "not needed here")

    def _number(self, path: str) -> int:
        number = self._numbers.setdefault(path, len(self._numbers) + ROOT)
        self._paths[number] = path
        return number

    def _attributes(self, path: str) -> bytes:
        status = os.lstat(path)
        seconds, rest = divmod(status.st_mtime_ns, 10**9)
        times = (seconds,) * 3, (rest,) * 3
        more = status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0
        return ATTRIBUTES.pack(self._number(path), status.st_size, status.st_blocks, *times[0], *times[1], *more)

    def _entries(self, path: str, at: int, size: int) -> bytes:
        out = b""
        for number, name in list(enumerate(sorted(os.listdir(path)), 1))[at:]:
            raw, kind = os.fsencode(name), stat.S_IFMT(os.lstat(os.path.join(path, name)).st_mode) >> 12
            entry = struct.pack("<QQII", number, number, len(raw), kind) + raw
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out


@contextmanager
def bad_disk(folder: Path, mountpoint: Path, bad: Mapping[str, list[tuple[int, int]]]) -> Iterator[Path]:
    """Mount a directory with bad sectors.

    Args:
        bad: file name, or end of a path, → unreadable ranges; whole pages fail.

    Raises:
        PermissionError: this process may not mount.
    """
    mountpoint.mkdir()
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as err:
        raise PermissionError(err.errno, "no /dev/fuse") from err
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if _libc.mount(b"bad-disk", os.fsencode(mountpoint), b"fuse", _MOUNT_FLAGS, options):
        os.close(fd)
        raise PermissionError(ctypes.get_errno(), "mount")
    command = [sys.executable, "-m", "tests.bad_disk", str(folder), str(fd), repr(dict(bad))]
    server = subprocess.Popen(command, pass_fds=[fd], cwd=Path(__file__).parents[1])
    os.close(fd)
    try:
        deadline = time.monotonic() + 30
        while not os.listdir(mountpoint) and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        yield mountpoint
    finally:
        _libc.umount2(os.fsencode(mountpoint), _DETACH)
        server.terminate()
        server.wait()


if __name__ == "__main__":
    import ast

    _Server(sys.argv[1], ast.literal_eval(sys.argv[3])).serve(int(sys.argv[2]))
