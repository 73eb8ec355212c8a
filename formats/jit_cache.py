"""Where kernels' object code is kept between processes: beside Python's own compiled modules, else in the user's cache.

The one place in this package that touches files: what it keeps is about the machine, not about any store. Code in it
gets executed, so of the user's cache only a directory is taken that nobody else may write to.
"""

import ctypes
import hashlib
import mmap
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress

LOCK = threading.RLock()  # one thread makes code at a time
_SUFFIX = ".rmqtool-code"
_CHECK = hashlib.sha256().digest_size


def processor() -> str:
    """What machine code may use here, as Linux says it; empty where nobody says so in a file."""
    words = (b"vendor_id", b"cpu family", b"model", b"stepping", b"flags")
    with suppress(OSError), open("/proc/cpuinfo", "rb", buffering=0) as file:
        first, end, _others = file.read(1 << 14).partition(b"\n\n")
        lines = [line for line in first.splitlines() if line.split(b"\t")[0] in words]
        if end and len(lines) == len(words):
            return b"\n".join(lines).decode("ascii", "replace")
    return ""


def stamp(path: str | None) -> str:
    """What tells a file from the one before it, which an update has replaced; empty where there is none."""
    with suppress(OSError, TypeError):
        status = os.stat(path)  # type: ignore[arg-type]
        return f"{status.st_size} {status.st_mtime_ns}"
    return ""


def executable(code: bytes) -> mmap.mmap | None:
    """Memory with code in it that can be run; None where the system lets nobody make such memory."""
    try:
        memory = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        refused = ctypes.CDLL(None).mprotect(
            ctypes.c_void_p(address), ctypes.c_size_t(len(code)), mmap.PROT_READ | mmap.PROT_EXEC
        )
    except (OSError, AttributeError):
        return None
    return None if refused else memory


def _places() -> Iterator[str]:
    package = os.path.dirname(os.path.abspath(__file__))
    if os.path.isdir(package):  # it may lie in an archive
        yield os.path.join(package, "__pycache__")
    roots = [os.environ.get("XDG_CACHE_HOME", ""), os.path.join(os.path.expanduser("~"), ".cache")]
    for root in filter(os.path.isabs, roots):
        yield os.path.join(root, "rmqtool", "code")


def _is_pythons(place: str) -> bool:
    """Whether Python keeps compiled modules there, for all users."""
    return os.path.basename(place) == "__pycache__"


def _is_ours(place: str) -> bool:
    """Whether nobody can have put code there who could not change this program, or this user's files, anyway.

    Who may write to a directory above could put another one in its place, so all of them count, as they truly lie.
    """
    status = os.stat(place)
    if _is_pythons(place):
        return stat.S_ISDIR(status.st_mode)
    place = os.path.realpath(place)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        return False
    while (above := os.path.dirname(place)) != place:
        place, status = above, os.stat(above)
        others_write = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX  # /tmp: each may rename his own
        if others_write or status.st_uid not in (0, os.geteuid()):
            return False
    return True


def stored(name: str) -> bytes | None:
    """The code of a name; None where there is none, or only a damaged file."""
    for place in _places():
        with suppress(OSError):
            if not _is_ours(place):
                continue
            with open(os.path.join(place, name + _SUFFIX), "rb") as file:
                data = file.read()
            # LLVM takes what it is given for sound
            if hashlib.sha256(data[_CHECK:]).digest() == data[:_CHECK]:
                return data[_CHECK:]
    return None


def store(name: str, code: bytes) -> None:
    """Keep code; where no place can be written, nothing is kept, and each process makes its own."""
    for place in _places():
        temporary = None
        try:
            mode = 0o777 if _is_pythons(place) else 0o700
            for folder in (os.path.dirname(place), place):  # both: those above the last would be made by the umask
                os.makedirs(folder, mode, exist_ok=True)
            if not _is_ours(place):
                continue
            descriptor, temporary = tempfile.mkstemp(dir=place)
            with open(descriptor, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.chmod(temporary, 0o644)
            os.replace(temporary, os.path.join(place, name + _SUFFIX))
            return
        except OSError:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)
