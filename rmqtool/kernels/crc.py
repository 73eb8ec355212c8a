"""CRC-32 as used in kernels: ISA-L's vector code if its library is installed, else sixteen lookup tables."""

import ctypes
import functools
from typing import Protocol

from rmqtool.kernels.load.library import INT64, POINTER, UINT32, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Memory, function_address
from rmqtool.kernels.plain import crc as plain

_CHECK = (b"123456789", 0xCBF43926)  # standard check value of this CRC-32
_crc32 = Function("rmq_crc32", UINT32, POINTER, INT64, POINTER)


class Crc(Protocol):
    """Entry points."""

    def crc32(self, data: Memory, tables: bool) -> int:
        """Return the CRC-32 of a buffer; with ``tables``, do not use vector code."""


class _Compiled:
    def crc32(self, data: Memory, tables: bool) -> int:
        return _crc32(data.address, data.length, 0 if tables else fast_function())


def choose_code(code: Implementation | None) -> Crc:
    """Return the compiled or the plain entry points."""
    return _Compiled() if is_compiled(code) else plain


@functools.cache
def fast_function() -> int:
    """Return the address of ISA-L's ``crc32_gzip_refl``; 0 if it is missing or fails a self-test."""
    try:
        from isal import isal_zlib
    except ImportError:
        return 0
    address = function_address(isal_zlib.__file__, "crc32_gzip_refl")
    if address:
        kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64)
        if kind(address)(0, _CHECK[0], len(_CHECK[0])) != _CHECK[1]:
            return 0
    return address


def crc32(data: bytes | bytearray | memoryview, *, tables: bool = False, code: Implementation | None = None) -> int:
    """Return the CRC-32 of a buffer as computed by the kernels.

    Args:
        tables: use lookup tables even if vector code is available.
        code: implementation to use.
    """
    return choose_code(code).crc32(Memory(data), tables)
