"""Report which file caused a SIGBUS: a mapped page that could not be read.

Bad sectors, files truncated by another process, and holes in files on a full tmpfs raise it, and it ends the process.
The kernel gives only the address; the file is looked up in the list of this process's mappings. On 64-bit Linux only;
elsewhere the process ends without a message.
"""

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_EXIT_CODE = 3  # as rmqtool.errors.UnreadableStore
_WITH_DETAILS, _ONCE = 0x4, 0x80000000  # SA_SIGINFO, SA_RESETHAND
_AT_ADDRESS = 16  # in siginfo_t
_MASK_BYTES = 128  # of sigset_t
_keep: list[Any] = []


def arm(line: Callable[[str], str]) -> None:
    """Install the handler.

    Args:
        line: formats the message for stderr.
    """
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32 or _keep:
        return
    import ctypes

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    class Action(ctypes.Structure):  # struct sigaction
        _fields_ = (
            ("handler", handler),
            ("mask", ctypes.c_char * _MASK_BYTES),
            ("flags", ctypes.c_int),
            ("restorer", ctypes.c_void_p),
        )

    def die(_signal: int, details: int, _context: int) -> None:
        try:
            address = ctypes.c_uint64.from_address(details + _AT_ADDRESS).value
            os.write(2, f"{line(_words(address))}\n".encode("utf-8", "backslashreplace"))
        finally:
            os._exit(_EXIT_CODE)

    action = Action(handler(die), b"", ctypes.c_int(_WITH_DETAILS | _ONCE).value, None)
    _keep.append(action)
    ctypes.CDLL(None).sigaction(int(signal.SIGBUS), ctypes.byref(action), None)


def _words(address: int) -> str:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            span, mode, offset, _device, _inode, *path = line.rstrip("\n").split(maxsplit=5)
            start, stop = (int(end, 16) for end in span.split("-"))
            if start <= address < stop:
                at = address - start + int(offset, 16)
                why = "cannot be written" if "w" in mode and "s" in mode else "cannot be read"
                place = path[0] if path else "memory"
                return f"{place}: byte {at}: {why}: {_cause(place, at)}"
    return f"address {address:#x} cannot be read"


def _cause(path: str, at: int) -> str:
    """Why a mapped byte cannot be read, as far as the file shows."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if at >= os.fstat(fd).st_size:
            return "the file was cut short meanwhile"
        os.pread(fd, 1, at)
        if _in_hole(fd, at):
            return "it lies in a hole, for which the file system (a tmpfs) has no room: free some, and run this again"
    except OSError:
        pass
    return "a bad sector, or the file was cut short meanwhile"


def _in_hole(fd: int, at: int) -> bool:
    try:
        return os.lseek(fd, at, os.SEEK_DATA) > at
    except OSError as err:
        return err.errno == errno.ENXIO  # a hole up to the end
