"""Stored bodies: decompress by system flag, and the items of an inner batch.

Sources: common.compression.CompressorFactory, common.message.MessageDecoder.decodeMessages; store-formats 2.4, 2.10.
"""

from collections.abc import Iterator
from typing import NamedTuple

from formats.errors import BadLength, FormatError, Truncated
from formats.layouts import derived
from formats.primitives import COMPRESSED, COMPRESSION_MASK

MAX_BODY = 256 * 1024 * 1024  # a body inflates to at most this; the broker's own limit is 4 MiB before compression

_ZSTD_STEP = 1 << 10  # stored bytes at a time; four can make 128 KiB, so a step overshoots by 32 MiB at most

_TYPES = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}


def compression(sys_flag: int) -> str | None:
    """``zlib``, ``lz4``, ``zstd``, ``unknown``, or None for a plain body."""
    if not sys_flag & COMPRESSED:
        return None
    return _TYPES.get(sys_flag & COMPRESSION_MASK, "unknown")


def decompress(body: bytes, sys_flag: int, *, limit: int = MAX_BODY) -> bytes:
    """The body as the application sent it.

    Raises:
        FormatError: unknown type, broken or cut stream, or more than ``limit`` bytes.
    """
    kind = compression(sys_flag)
    if kind is None or not body:
        return body
    if kind == "zlib":
        return _inflate(body, limit)
    if kind == "lz4":
        return _lz4(body, limit)
    if kind == "zstd":
        return _zstd(body, limit)
    raise FormatError(0, f"compression type {(sys_flag & COMPRESSION_MASK) >> 8} is not known")


def _checked(out: bytes, *, whole: bool, limit: int, kind: str) -> bytes:
    if len(out) > limit:
        raise BadLength(0, f"{kind} body inflates to more than {limit} bytes")
    if not whole:
        raise Truncated(0, f"{kind} body ends inside its stream")
    return out


def _inflate(body: bytes, limit: int) -> bytes:
    import zlib

    stream = zlib.decompressobj()
    try:
        out = stream.decompress(body, limit + 1)
    except zlib.error as err:
        raise FormatError(0, f"zlib body: {err}") from err
    return _checked(out, whole=stream.eof, limit=limit, kind="zlib")


def _lz4(body: bytes, limit: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        out = stream.decompress(body, max_length=limit + 1)
    except (RuntimeError, ValueError, MemoryError, EOFError) as err:
        raise FormatError(0, f"lz4 body: {err}") from err
    return _checked(out, whole=stream.eof, limit=limit, kind="lz4")


def _zstd(body: bytes, limit: int) -> bytes:
    import zstandard

    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    parts, size = [], 0
    try:
        for at in range(0, len(body), _ZSTD_STEP):
            parts.append(stream.decompress(body[at : at + _ZSTD_STEP]))
            size += len(parts[-1])
            if size > limit or stream.eof:
                break
    except (zstandard.ZstdError, MemoryError) as err:
        raise FormatError(0, f"zstd body: {err}") from err
    return _checked(b"".join(parts), whole=stream.eof, limit=limit, kind="zstd")


class BatchItem(NamedTuple):
    """One message of a batch on the wire."""

    flag: int
    body: bytes
    properties: bytes


def batch_items(body: bytes) -> Iterator[BatchItem]:
    """The messages inside an inner-batch body (5.x) or a batch on the wire.

    Raises:
        FormatError: an item does not fit, or its lengths disagree.
    """
    at, head = 0, derived.BATCH_ITEM_HEAD
    while at < len(body):
        if at + head.size > len(body):
            raise Truncated(at, "batch item ends inside its head")
        size, _magic, _crc, flag, body_length = head.unpack_from(body, at)
        properties_at = at + head.size + body_length
        if body_length < 0 or properties_at + 2 > len(body):
            raise BadLength(at, f"batch item with a body of {body_length} bytes")
        properties_length = int.from_bytes(body[properties_at : properties_at + 2], "big", signed=True)
        end = properties_at + 2 + properties_length
        if properties_length < 0 or end > len(body):
            raise BadLength(at, f"batch item with properties of {properties_length} bytes")
        if size != end - at:
            raise BadLength(at, f"batch item lengths add up to {end - at}, it says {size}")
        yield BatchItem(flag, body[at + head.size : properties_at], body[properties_at + 2 : end])
        at = end


def build_batch(items: list[BatchItem]) -> bytes:
    """The wire form of a batch.

    Raises:
        BadLength: properties of more than the 32,767 bytes that their length field can say.
    """
    parts = []
    for item in items:
        if len(item.properties) > 0x7FFF:
            raise BadLength(0, f"properties of {len(item.properties)} bytes, at most 32767 fit")
        size = derived.BATCH_ITEM_HEAD.size + len(item.body) + 2 + len(item.properties)
        parts.append(derived.BATCH_ITEM_HEAD.pack(size, 0, 0, item.flag, len(item.body)))
        parts += [item.body, len(item.properties).to_bytes(2, "big"), item.properties]
    return b"".join(parts)
