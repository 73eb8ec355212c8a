"""CRC-32 inside kernels: ISA-L's vector code where its library is at hand, else sixteen tables."""

import ctypes
import functools
from typing import Protocol

from rmqtool.kernels.load.library import INT64, POINTER, UINT32, Code, Function, is_compiled
from rmqtool.kernels.load.memory import Memory, function_address
from rmqtool.kernels.plain import crc as plain

_CHECK = (b"123456789", 0xCBF43926)  # what every CRC-32 of this kind must give
_crc32 = Function("rmq_crc32", UINT32, POINTER, INT64, POINTER)


class Crc(Protocol):
    """Entry points."""

    def crc32(self, data: Memory, tables: bool) -> int:
        """CRC-32 of a buffer; by tables also where there is vector code."""


class _Compiled:
    def crc32(self, data: Memory, tables: bool) -> int:
        return _crc32(data.address, data.length, 0 if tables else fast_function())


def choose_code(code: Code | None) -> Crc:
    """The entry points by compiled or by plain code."""
    return _Compiled() if is_compiled(code) else plain


@functools.cache
def fast_function() -> int:
    """Address of ISA-L's ``crc32_gzip_refl``; 0 where it is missing or does not do what is expected of it."""
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


def crc32(data: bytes | bytearray | memoryview, *, tables: bool = False, code: Code | None = None) -> int:
    """CRC-32 of a buffer as kernels compute it.

    Args:
        tables: by tables also where there is vector code.
        code: which code computes it.
    """
    return choose_code(code).crc32(Memory(data), tables)
