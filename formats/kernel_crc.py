"""CRC-32 inside kernels: ISA-L's vector code where its library is at hand, else sixteen tables."""

import ctypes
import functools
from typing import Any

import numpy as np

from formats.jit import address_of, byte_at, call_crc, function_address, kernel, part, word_at

_POLYNOMIAL = 0xEDB88320
_CHECK = (b"123456789", 0xCBF43926)  # what every CRC-32 of this kind must give
_MASK = 0xFFFFFFFF


def _tables() -> "np.ndarray[tuple[int, int], np.dtype[np.uint32]]":
    """Shape (16, 256): what a byte contributes that has 0 to 15 bytes behind it."""
    tables = np.empty((16, 256), np.uint64)
    row = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        row = (row >> np.uint64(1)) ^ np.where(row & np.uint64(1), np.uint64(_POLYNOMIAL), np.uint64(0))
    tables[0] = row
    for distance in range(1, 16):
        tables[distance] = (tables[distance - 1] >> np.uint64(8)) ^ row[tables[distance - 1] & np.uint64(255)]
    return tables.astype(np.uint32)


_TABLES = _tables()


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


@part
def _half(word: Any, distance: Any) -> Any:
    """What eight bytes contribute, the last of which has ``distance`` bytes behind it."""
    low = np.uint64(255)  # unsigned throughout: a signed index is checked for being negative
    return (
        _TABLES[distance + 7, word & low]
        ^ _TABLES[distance + 6, (word >> np.uint64(8)) & low]
        ^ _TABLES[distance + 5, (word >> np.uint64(16)) & low]
        ^ _TABLES[distance + 4, (word >> np.uint64(24)) & low]
        ^ _TABLES[distance + 3, (word >> np.uint64(32)) & low]
        ^ _TABLES[distance + 2, (word >> np.uint64(40)) & low]
        ^ _TABLES[distance + 1, (word >> np.uint64(48)) & low]
        ^ _TABLES[distance, word >> np.uint64(56)]
    )


@part
def crc_at(start: Any, length: Any, function: Any) -> Any:
    """CRC-32 of ``length`` bytes at an address, by a C function when its address is given, else by tables."""
    if function != 0:
        return call_crc(function, start, length)
    crc, stop = np.uint64(_MASK), start + length
    while stop - start >= 16:
        crc = _half(word_at(start) ^ crc, 8) ^ _half(word_at(start + 8), 0)
        start += 16
    while start < stop:
        crc = _TABLES[0, (crc ^ np.uint64(byte_at(start))) & np.uint64(255)] ^ (crc >> np.uint64(8))
        start += 1
    return np.int64(crc ^ np.uint64(_MASK))


@kernel
def _crc(start: Any, length: Any, function: Any) -> Any:
    return crc_at(start, length, function)


def crc32(data: bytes | bytearray | memoryview, *, tables: bool = False) -> int:
    """CRC-32 of a buffer as kernels compute it.

    Args:
        tables: by tables also where there is vector code.
    """
    address, _keep = address_of(data)
    return int(_crc(address, memoryview(data).nbytes, 0 if tables else fast_function()))
