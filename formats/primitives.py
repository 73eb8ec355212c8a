"""Primitives shared by all formats: Java's string hash, the 31-bit CRC, host addresses, system flags.

Sources: java.lang.String, common.UtilAll.crc32, common.sysflag.MessageSysFlag, common.message.MessageDecoder.
"""

import zlib
from operator import mul

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_V6 = 0x10
STORE_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700

_INT32 = 0xFFFFFFFF


_MOST_POWERS = 64
_POWERS = [pow(31, n, 1 << 32) for n in range(_MOST_POWERS, -1, -1)]


def java_hash(text: str) -> int:
    """``String.hashCode``: computed over UTF-16 code units, wrapped to signed 32 bits."""
    h = 0
    if text.isascii():
        data = text.encode()
        for at in range(0, len(data), _MOST_POWERS):
            part = data[at : at + _MOST_POWERS]
            h = (h * _POWERS[-len(part) - 1] + sum(map(mul, part, _POWERS[-len(part) :]))) & _INT32
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8 | units[i + 1])) & _INT32
    return h - (1 << 32) if h >> 31 else h


def crc31(data: bytes | bytearray | memoryview) -> int:
    """Return zlib's CRC-32 with the top bit cleared, as RocketMQ stores it."""
    return zlib.crc32(data) & 0x7FFFFFFF


def address_text(address: bytes) -> str:
    """Format 4 or 16 address bytes like Java's ``InetAddress.getHostAddress``.

    IPv6 is printed as eight groups, without leading zeros and without ``::``; IPv4-mapped addresses as IPv4, as in
    Java.
    """
    if len(address) == 16:
        if address[:12] != b"\0" * 10 + b"\xff\xff":
            return ":".join(f"{address[i] << 8 | address[i + 1]:x}" for i in range(0, 16, 2))
        address = address[12:]
    return ".".join(map(str, address))


def host_text(address: bytes, port: int) -> str:
    """Return ``address:port``, as printed by RocketMQ's own tools."""
    return f"{address_text(address)}:{port}"


def parse_address(text: str) -> bytes:
    """Return the 4 or 16 bytes of a numeric address; ``::`` and brackets are accepted.

    Raises:
        ValueError: the text is not a numeric address.
    """
    import ipaddress

    return ipaddress.ip_address(text.strip("[]")).packed


def parse_host(text: str) -> tuple[bytes, int]:
    """Parse ``address:port`` into address bytes and port.

    Raises:
        ValueError: there is no port, or the address is not numeric.
    """
    address, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} has no port")
    return parse_address(address), int(port)


def flag_names(sys_flag: int) -> list[str]:
    """Return the names of the bits set in a system flag."""
    names = []
    if sys_flag & COMPRESSED:
        kind = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}.get(sys_flag & COMPRESSION_MASK, "unknown")
        names.append(f"compressed:{kind}")
    if sys_flag & MULTI_TAGS:
        names.append("multi-tags")
    names += [name for name in (("prepared", "commit", "rollback")[((sys_flag >> 2) & 3) - 1],) if sys_flag & 0xC]
    for bit, name in ((BORN_V6, "born-v6"), (STORE_V6, "store-v6"), (NEED_UNWRAP, "need-unwrap")):
        if sys_flag & bit:
            names.append(name)
    if sys_flag & INNER_BATCH:
        names.append("inner-batch")
    return names
