"""Buffers for both implementations: a view for Python and an address for C."""

import ctypes
from mmap import mmap
from typing import Any

import numpy as np

Buffer = bytes | bytearray | memoryview | mmap | np.ndarray[Any, np.dtype[Any]]
_bytes_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))


class Memory:
    """A buffer that does not move during the lifetime of this object.

    Args:
        buffer: bytes, an array, or a view of a mapping.
        writable: require a writable buffer.

    Attributes:
        view: its bytes as a memoryview.
        address: address of the first byte; 0 if the buffer is empty.
        length: length in bytes.

    Raises:
        ValueError: ``writable`` is set and the buffer is read-only.
    """

    __slots__ = ("_keep", "address", "length", "view")

    def __init__(self, buffer: Buffer, *, writable: bool = False) -> None:
        self.address, self._keep = address_of(buffer, writable=writable)
        view = memoryview(buffer)  # type: ignore[arg-type]  # typeshed accepts an array from 3.12 on
        self.view = view.cast("B") if view.nbytes and (view.format != "B" or view.ndim != 1) else view
        self.length = view.nbytes


def address_of(buffer: Buffer, *, writable: bool = False) -> tuple[int, Any]:
    """Return the address of a buffer's first byte and an object that keeps it valid.

    Raises:
        ValueError: ``writable`` is set and the buffer is read-only.
    """
    if type(buffer) is bytes and buffer and not writable:
        return _bytes_address(buffer), buffer  # ten times faster than going through NumPy, as below
    if type(buffer) is bytearray and buffer:
        first = ctypes.c_char.from_buffer(buffer)
        return ctypes.addressof(first), first
    view = memoryview(buffer)  # type: ignore[arg-type]  # typeshed accepts an array from 3.12 on
    if writable and view.readonly:
        raise ValueError("the buffer is read-only")
    if not view.nbytes:
        return 0, view
    array = np.frombuffer(view, np.uint8)
    return int(array.ctypes.data), array


def array_address(array: "np.ndarray[Any, Any]") -> int:
    """Return the address of an array's data."""
    return int(array.ctypes.data)


def function_address(library: str, name: str) -> int:
    """Return the address of a C function in a library that is already loaded; 0 if it is not found."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
