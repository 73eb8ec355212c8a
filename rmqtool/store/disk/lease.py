"""Write leases of the kernel (fcntl F_SETLEASE): the holder knows that no other process has the file open.

While the lease lasts, a process that opens the file blocks until the lease is released, at most for
/proc/sys/fs/lease-break-time (45 s). It belongs to the open file description, so it also ends when the process dies.
"""

import fcntl
from enum import Enum


class Lease(Enum):
    """The result of requesting a lease."""

    TAKEN = "taken"
    BUSY = "busy"  # another process has the file open, or is waiting to open it
    UNKNOWN = "unknown"  # not available: the file has another owner, or the file system has no leases


def take(fd: int) -> Lease:
    """Request the lease of a file that is open for reading and writing."""
    import signal  # only writers need it

    try:
        # the default signal, SIGIO, kills a process that has no handler for it; SIGURG is ignored by default
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return Lease.BUSY
    except OSError:
        return Lease.UNKNOWN
    return Lease.TAKEN


def give_back(fd: int) -> None:
    """Release the lease; processes waiting for it continue."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return  # the lease was already lost


def writer_waits(fd: int) -> bool:
    """Whether a process is waiting to open the leased file for writing, or has waited until the lease expired."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    except OSError:
        return False
