"""Buffers for both kinds of code: the bytes for plain Python, and where they lie for C."""

import ctypes
from mmap import mmap
from typing import Any

import numpy as np

Buffer = bytes | bytearray | memoryview | mmap | np.ndarray[Any, np.dtype[Any]]
_bytes_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))


class Memory:
    """A buffer that stays where it is as long as this lives.

    Args:
        buffer: bytes, an array, or a mapping's view.
        writable: it is to be written to.

    Attributes:
        view: its bytes.
        address: of the first one; 0 where there is none.
        length: in bytes.

    Raises:
        ValueError: ``writable`` is wanted, and the buffer is not.
    """

    __slots__ = ("_keep", "address", "length", "view")

    def __init__(self, buffer: Buffer, *, writable: bool = False) -> None:
        self.address, self._keep = address_of(buffer, writable=writable)
        view = memoryview(buffer)  # type: ignore[arg-type]  # an array is one to typeshed from 3.12 on
        self.view = view.cast("B") if view.nbytes and (view.format != "B" or view.ndim != 1) else view
        self.length = view.nbytes


def address_of(buffer: Buffer, *, writable: bool = False) -> tuple[int, Any]:
    """(address, what keeps it valid) of a buffer's first byte.

    Raises:
        ValueError: ``writable`` is wanted, and the buffer is not.
    """
    if type(buffer) is bytes and buffer and not writable:
        return _bytes_address(buffer), buffer  # these two take a tenth of what NumPy takes
    if type(buffer) is bytearray and buffer:
        first = ctypes.c_char.from_buffer(buffer)
        return ctypes.addressof(first), first
    view = memoryview(buffer)  # type: ignore[arg-type]  # an array is one to typeshed from 3.12 on
    if writable and view.readonly:
        raise ValueError("the buffer is read-only")
    if not view.nbytes:
        return 0, view
    array = np.frombuffer(view, np.uint8)
    return int(array.ctypes.data), array


def array_address(array: "np.ndarray[Any, Any]") -> int:
    """Where the cells of an array lie."""
    return int(array.ctypes.data)


def function_address(library: str, name: str) -> int:
    """Address of a C function in a shared object that is loaded already; 0 when it is not there."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
