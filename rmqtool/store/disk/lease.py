"""Write leases of the kernel (fcntl F_SETLEASE): their holder knows that no other process has the file open.

While it lasts, a process that opens the file waits: until it is given back, at most /proc/sys/fs/lease-break-time (45
s). It belongs to an open file description and ends with its last descriptor, so also when the process is killed.
"""

import fcntl
from enum import Enum


class Lease(Enum):
    """What became of asking for one."""

    TAKEN = "taken"
    BUSY = "busy"  # another process has the file open, or waits to open it
    UNKNOWN = "unknown"  # not to be had here: another's file, or a file system without


def take(fd: int) -> Lease:
    """Ask for the lease of a file that is open for reading and writing."""
    import signal  # only writers need it

    try:
        # SIGIO, which would tell of a process that waits, ends a process that does not expect it; this one is ignored
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return Lease.BUSY
    except OSError:
        return Lease.UNKNOWN
    return Lease.TAKEN


def give_back(fd: int) -> None:
    """End it; processes that wait go on."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return  # it had none any more


def writer_waits(fd: int) -> bool:
    """Whether a process waits, or has waited until it ran out, to open for writing the file whose lease was taken."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    except OSError:
        return False
