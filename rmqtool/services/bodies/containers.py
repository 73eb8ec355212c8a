"""Compressed container files of Avro, made plain within a limit of bytes."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

from formats.errors import BadLength, FormatError
from formats.message.bodies import decompress
from formats.primitives import COMPRESSED

MAGIC = b"Obj\x01"
MOST = 4 << 20
"""Bytes of its blocks, decompressed: as many as brokers take as a message by default."""
_TOO_LARGE = f"a container with more than {MOST} bytes"
_ZSTD = COMPRESSED | 0x200
_SYNC = 16  # bytes
HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": _SYNC}},
    ],
}


def plain_container(body: bytes, library: Any) -> bytes:
    """Return a container whose blocks are not compressed.

    Args:
        library: fastavro.

    Raises:
        ValueError: the codec is not known, the blocks are damaged, or they have more than :data:`MOST` bytes.
        Exception: what fastavro raises on bytes that are something else.
    """
    read, write = library.schemaless_reader, library.schemaless_writer
    file, out, left = BytesIO(body), BytesIO(), MOST
    header = read(file, HEADER)
    codec = header["meta"].get("avro.codec", b"null").decode("utf-8", "replace")
    if codec == "null":
        return body
    if (inflate := _CODECS.get(codec)) is None:
        raise ValueError(f"a container compressed with {codec}, which is not read; {', '.join(_CODECS)} are")
    header["meta"]["avro.codec"] = b"null"
    write(out, HEADER, header)
    while file.tell() < len(body):
        write(out, "long", read(file, "long"))
        block = inflate(read(file, "bytes"), left)
        left -= len(block)
        write(out, "bytes", block)
        out.write(file.read(_SYNC))
    return out.getvalue()


def _by(make: Callable[[], Any], failure: type[Exception]) -> Callable[[bytes, int], bytes]:
    """Decompression by one of Python's own decompressors."""

    def inflate(data: bytes, limit: int) -> bytes:
        stream = make()
        try:
            block: bytes = stream.decompress(data, limit + 1)
        except failure as err:
            raise ValueError(f"a damaged block: {err}") from None
        if len(block) > limit:
            raise ValueError(_TOO_LARGE)
        if not stream.eof:
            raise ValueError("a block that ends inside its stream")
        return block

    return inflate


def _zstandard(data: bytes, limit: int) -> bytes:
    try:
        return decompress(data, _ZSTD, limit=limit)
    except BadLength:
        raise ValueError(_TOO_LARGE) from None
    except FormatError as err:
        raise ValueError(f"a damaged block: {err}") from None


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "deflate": _by(lambda: zlib.decompressobj(-zlib.MAX_WBITS), zlib.error),
    "bzip2": _by(bz2.BZ2Decompressor, OSError),
    "xz": _by(lzma.LZMADecompressor, lzma.LZMAError),
    "zstandard": _zstandard,
}
