"""CRC-32 with zlib."""

import zlib

from rmqtool.kernels.load.memory import Memory


def crc32(data: Memory, tables: bool) -> int:
    """See :meth:`rmqtool.kernels.crc.Crc.crc32`."""
    return zlib.crc32(data.view)
