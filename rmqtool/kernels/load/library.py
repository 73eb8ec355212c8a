"""The compiled library: locating, verifying and loading it, and declaring its functions.

ctypes releases the GIL while a function runs. If the library is missing or was compiled from other sources, one warning
is printed and everything runs in plain Python.
"""

import ctypes
import os
import sys
import threading
from enum import Enum
from typing import Any

from rmqtool.kernels.load.stamp import SOURCES, VARIANTS, library_name, stamp

POINTER, INT64, INT32, UINT32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_uint32
_REBUILD = "reinstall the package (`pip install -e .` in a checkout) to compile them"
_LOCK = threading.Lock()


class Implementation(Enum):
    """The implementation to use. Functions that accept None use compiled code if it is available."""

    COMPILED = "compiled"
    PLAIN = "plain"


class NotLoadable(RuntimeError):
    """There is no usable compiled library."""


class Function:
    """A function of the library, resolved on its first call.

    Args:
        name: name in C.
        result: ctypes result type, or None.
        arguments: ctypes argument types.
    """

    __slots__ = ("_arguments", "_name", "_resolved", "_result")

    def __init__(self, name: str, result: type[Any] | None, *arguments: type[Any]) -> None:
        self._name, self._result, self._arguments = name, result, arguments
        self._resolved: Any = None

    def __call__(self, *arguments: object) -> int:
        """Call the function; return 0 if it returns nothing."""
        if self._resolved is None:
            function = getattr(library(), self._name)
            function.restype, function.argtypes = self._result, self._arguments
            self._resolved = function
        return self._resolved(*arguments) or 0


_loaded: ctypes.CDLL | None = None
_problem = ""


def library() -> ctypes.CDLL:
    """Return the library, in the best variant that this processor supports.

    Raises:
        NotLoadable: the library is missing or stale, or cannot be loaded.
    """
    global _loaded, _problem
    if _loaded is None:
        with _LOCK:
            if _loaded is None and not _problem:
                try:
                    _loaded = load()
                except NotLoadable as err:
                    _problem = str(err)
    if _loaded is None:
        raise NotLoadable(_problem)
    return _loaded


def load(folder: str = SOURCES) -> ctypes.CDLL:
    """Load the best variant in a folder.

    Raises:
        NotLoadable: the library is missing or stale, or cannot be loaded.
    """
    machine = os.uname().machine
    if machine not in VARIANTS:
        raise NotLoadable(f"there is no compiled code for {machine}")
    if folder == SOURCES and not os.path.isdir(folder):
        return _load_packed()
    first, *better = VARIANTS[machine]
    try:
        expected = stamp(folder)
        loaded = _open(folder, first, expected)
        for number, variant in enumerate(better, 1):
            if loaded.rmq_level() >= number:
                loaded = _open(folder, variant, expected)
    except OSError as err:
        raise NotLoadable(f"the compiled code cannot be loaded: {err}") from err
    return loaded


def _load_packed() -> ctypes.CDLL:
    """Load the library if the package is in an archive, as ``--py-files`` of Spark leaves it: from a copy.

    Raises:
        NotLoadable: the library is missing or stale, or cannot be loaded.
    """
    from importlib.resources import files  # only then
    from tempfile import TemporaryDirectory

    try:
        with TemporaryDirectory(prefix="rmqtool-kernels-") as folder:  # a loaded library does not need its file
            for packed in (files("rmqtool.kernels") / os.path.basename(SOURCES)).iterdir():
                with open(os.path.join(folder, packed.name), "wb") as file:
                    file.write(packed.read_bytes())
            return load(folder)
    except OSError as err:
        raise NotLoadable(f"the compiled code cannot be loaded: {err}") from err


def _open(folder: str, variant: str, expected: int) -> ctypes.CDLL:
    path = os.path.join(folder, library_name(variant, sys.platform))
    if not os.path.exists(path):
        raise NotLoadable(f"there is no compiled code: {path} is missing")
    opened = ctypes.CDLL(path)
    try:
        opened.rmq_stamp.restype = ctypes.c_uint32
        actual = opened.rmq_stamp()
    except AttributeError:
        actual = -1
    if actual != expected:
        raise NotLoadable(f"the compiled code does not match its sources: {path}")
    return opened


_PLAIN = "RMQTOOL_KERNELS"  # environment variable; the value "plain" disables compiled code
_warned = False


def is_compiled(code: Implementation | None) -> bool:
    """Return whether to run compiled code: by default if the library can be loaded, else warn once.

    The environment variable ``RMQTOOL_KERNELS=plain`` changes the default.

    Raises:
        NotLoadable: compiled code was requested but is not available.
    """
    global _warned
    if code is Implementation.PLAIN or (code is None and os.environ.get(_PLAIN) == Implementation.PLAIN.value):
        return False
    try:
        library()
    except NotLoadable as err:
        if code is Implementation.COMPILED:
            raise
        if not _warned:
            _warned = True
            sys.stderr.write(f"warning: {err}; working in plain Python, which is slower; {_REBUILD}\n")
        return False
    return True
