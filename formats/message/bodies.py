"""Stored bodies: decompression according to the system flag, and the messages of an inner batch.

Sources: common.compression.CompressorFactory, common.message.MessageDecoder.decodeMessages; store-formats 2.4, 2.10.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from formats.errors import BadLength, FormatError, Truncated
from formats.layouts import derived
from formats.primitives import COMPRESSED, COMPRESSION_MASK

MAX_BODY = 256 * 1024 * 1024  # maximum size after decompression; the broker's own limit is 4 MiB before compression

_ZSTD_STEP = (
    1 << 10
)  # stored bytes per step; four of them can expand to 128 KiB, so a step overshoots by at most 32 MiB

_TYPES = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}


def compression(sys_flag: int) -> str | None:
    """Return ``zlib``, ``lz4``, ``zstd``, ``unknown``, or None for an uncompressed body."""
    if not sys_flag & COMPRESSED:
        return None
    return _TYPES.get(sys_flag & COMPRESSION_MASK, "unknown")


def decompress(body: bytes, sys_flag: int, *, limit: int = MAX_BODY) -> bytes:
    """Return the body as the application sent it.

    Raises:
        FormatError: the compression type is unknown, the stream is damaged or truncated, or exceeds ``limit`` bytes.
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


def _check_inflated(out: bytes, *, whole: bool, limit: int, kind: str) -> bytes:
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
    return _check_inflated(out, whole=stream.eof, limit=limit, kind="zlib")


def _lz4(body: bytes, limit: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        out = stream.decompress(body, max_length=limit + 1)
    except (RuntimeError, ValueError, MemoryError, EOFError) as err:
        raise FormatError(0, f"lz4 body: {err}") from err
    return _check_inflated(out, whole=stream.eof, limit=limit, kind="lz4")


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
    return _check_inflated(b"".join(parts), whole=stream.eof, limit=limit, kind="zstd")


class BatchItem(NamedTuple):
    """One message of a batch in wire format."""

    flag: int
    body: bytes
    properties: bytes


class BatchSpan(NamedTuple):
    """Position of one message of a batch in a buffer."""

    flag: int
    body_at: int
    body_length: int
    properties_at: int
    properties_length: int


def batch_spans(buf: bytes | memoryview, at: int, stop: int) -> Iterator[BatchSpan]:
    """Yield the positions of the messages of a batch stored in bytes [at, stop) of a buffer.

    Raises:
        FormatError: an item does not fit, or its lengths are inconsistent.
    """
    head = derived.BATCH_ITEM_HEAD
    while at < stop:
        body_at = at + head.size
        if body_at > stop:
            raise Truncated(at, "batch item ends inside its head")
        size, _magic, _crc, flag, body_length = head.unpack_from(buf, at)
        properties_at = body_at + body_length + 2
        if body_length < 0 or properties_at > stop:
            raise BadLength(at, f"batch item with a body of {body_length} bytes")
        length = buf[properties_at - 2] << 8 | buf[properties_at - 1]
        if length > 0x7FFF or properties_at + length > stop:
            signed = length - 0x10000 if length > 0x7FFF else length
            raise BadLength(at, f"batch item with properties of {signed} bytes")
        end = properties_at + length
        if size != end - at:
            raise BadLength(at, f"batch item lengths add up to {end - at}, it says {size}")
        yield BatchSpan(flag, body_at, body_length, properties_at, length)
        at = end


def batch_items(body: bytes) -> Iterator[BatchItem]:
    """Yield the messages of an inner-batch body (5.x) or of a batch in wire format.

    Raises:
        FormatError: an item does not fit, or its lengths are inconsistent.
    """
    for flag, body_at, body_length, properties_at, length in batch_spans(body, 0, len(body)):
        yield BatchItem(flag, body[body_at : body_at + body_length], body[properties_at : properties_at + length])


def build_batch(items: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the wire format of a batch.

    Args:
        items: flag, body and properties of each message, as :class:`BatchItem` or plain tuples.

    Raises:
        BadLength: properties exceed 32,767 bytes, the maximum of their length field.
    """
    parts: list[bytes] = []
    pack, min_size = derived.BATCH_ITEM_HEAD.pack, derived.BATCH_ITEM_HEAD.size + 2
    heads: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}  # the messages of a batch often have the same size
    for flag, body, properties in items:
        key = flag, len(body), len(properties)
        head = heads.get(key)
        if head is None:
            _, body_length, length = key
            if length > 0x7FFF:
                raise BadLength(0, f"properties of {length} bytes, at most 32767 fit")
            head = heads[key] = (
                pack(min_size + body_length + length, 0, 0, flag, body_length),
                length.to_bytes(2, "big"),
            )
        parts += (head[0], body, head[1], properties)
    return b"".join(parts)
