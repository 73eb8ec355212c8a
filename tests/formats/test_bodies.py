"""Stored bodies: every kind of stream, cut and damaged ones, and inner batches."""

import zlib
from contextlib import suppress
from itertools import islice

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadLength, FormatError, Truncated
from formats.layouts import message as layouts
from formats.message.bodies import BatchItem, batch_items, build_batch, compression, decompress
from tests.formats.strategies import examples, signed

ZLIB, LZ4, ZSTD, OLD_ZLIB = 0x301, 0x101, 0x201, 0x001
PLAIN = "消息 body ".encode() * 500


def _lz4_frame(body: bytes) -> bytes:
    """A frame as written by the Java client: descriptor 60 70 73, here with one stored block."""
    block = (len(body) | 1 << 31).to_bytes(4, "little") + body
    return bytes.fromhex("04224d18 607073") + block + bytes(4)


def _zstd_frame(body: bytes) -> bytes:
    """A frame as written by the Java client: no content size, no checksum, an empty raw block at the end; here one
    block.
    """
    block = (len(body) << 3).to_bytes(3, "little") + body
    return bytes.fromhex("28b52ffd 00 58") + block + bytes.fromhex("010000")


STREAMS = {
    "zlib of the Java client": (ZLIB, zlib.compress(PLAIN, 5)),
    "zlib without type bits": (OLD_ZLIB, zlib.compress(PLAIN, 9)),
    "lz4 of the Java client": (LZ4, _lz4_frame(PLAIN)),
    "lz4 with other options": (LZ4, lz4.frame.compress(PLAIN, content_checksum=True, block_linked=True)),
    "zstd of the Java client": (ZSTD, _zstd_frame(PLAIN)),
    "zstd with content size": (ZSTD, zstandard.ZstdCompressor(level=3).compress(PLAIN)),
    "zstd with checksum": (
        ZSTD,
        zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(PLAIN),
    ),
}
kinds = pytest.mark.parametrize("name", STREAMS)


@kinds
def test_a_body_inflates(name: str) -> None:
    sys_flag, stored = STREAMS[name]

    assert decompress(stored, sys_flag) == PLAIN
    assert decompress(stored + b"trailing", sys_flag) == PLAIN
    assert decompress(stored, sys_flag & ~1) == stored


def test_the_header_of_the_default_level() -> None:
    assert STREAMS["zlib of the Java client"][1][:2] == bytes.fromhex("785e")


@kinds
def test_a_cut_stream_is_truncated(name: str) -> None:
    sys_flag, stored = STREAMS[name]
    for size in {*range(1, min(40, len(stored))), *range(len(stored) - 9, len(stored)), len(stored) // 2}:
        with pytest.raises(Truncated):
            decompress(stored[:size], sys_flag)


@kinds
def test_a_body_is_never_larger_than_its_limit(name: str) -> None:
    sys_flag, stored = STREAMS[name]

    assert decompress(stored, sys_flag, limit=len(PLAIN)) == PLAIN
    with pytest.raises(BadLength):
        decompress(stored, sys_flag, limit=len(PLAIN) - 1)


@pytest.mark.parametrize(
    ("sys_flag", "stored"),
    [
        (ZLIB, zlib.compress(bytes(64 << 20))),
        (LZ4, lz4.frame.compress(bytes(64 << 20))),
        (ZSTD, zstandard.ZstdCompressor().compress(bytes(64 << 20))),
    ],
)
def test_a_bomb_stops_at_the_limit(sys_flag: int, stored: bytes) -> None:
    with pytest.raises(BadLength):
        decompress(stored, sys_flag, limit=1 << 20)


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
@examples
@given(junk=st.binary(min_size=1, max_size=200))
def test_junk_is_a_format_error(sys_flag: int, junk: bytes) -> None:
    with pytest.raises(FormatError):
        decompress(junk, sys_flag)


@kinds
@examples
@given(data=st.data())
def test_a_flipped_byte_is_a_format_error_or_another_body(name: str, data: st.DataObject) -> None:
    sys_flag, stored = STREAMS[name]
    at = data.draw(st.integers(0, len(stored) - 1))
    broken = stored[:at] + bytes([stored[at] ^ data.draw(st.integers(1, 255))]) + stored[at + 1 :]
    with suppress(FormatError):
        assert isinstance(decompress(broken, sys_flag), bytes)


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x600, 0x700])
def test_an_unknown_type_is_named(bits: int) -> None:
    assert compression(bits | 1) == "unknown"
    assert compression(bits) is None
    with pytest.raises(FormatError, match=f"type {bits >> 8} "):
        decompress(b"x", bits | 1)


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD, 0x701])
def test_an_empty_body_stays_empty(sys_flag: int) -> None:
    assert decompress(b"", sys_flag) == b""


items = st.builds(BatchItem, signed(32), st.binary(max_size=30), st.binary(max_size=30))


@examples
@given(batch=st.lists(items, max_size=6))
def test_a_batch_reads_as_it_was_built(batch: list[BatchItem]) -> None:
    raw = build_batch(batch)

    assert list(batch_items(raw)) == batch
    at = 0
    for item in batch:
        head = layouts.BATCH_ITEM_HEAD.parse(raw[at:])
        assert (head.magic, head.body_crc, head.flag, head.body_length) == (0, 0, item.flag, len(item.body))
        at += head.total_size
    assert at == len(raw)


@examples
@given(batch=st.lists(items, min_size=1, max_size=3), data=st.data())
def test_a_cut_batch_gives_the_items_before_the_cut(batch: list[BatchItem], data: st.DataObject) -> None:
    raw = build_batch(batch)
    cut = data.draw(st.integers(0, len(raw) - 1))
    whole = [len(build_batch(batch[:n])) for n in range(len(batch) + 1)]
    complete = sum(size <= cut for size in whole) - 1
    result = batch_items(raw[:cut])

    assert list(islice(result, complete)) == batch[:complete]
    if cut in whole:
        assert list(result) == []
    else:
        with pytest.raises(FormatError):
            next(result)


@pytest.mark.parametrize(
    "raw",
    [
        bytes(16) + b"\xff\xff\xff\xff" + bytes(10),
        bytes(20) + b"\xff\xff",
        b"\x00\x00\x00\x17" + bytes(18),
        bytes(16) + b"\x7f\xff\xff\xff" + bytes(10),
    ],
)
def test_lengths_of_a_batch_item_that_cannot_be(raw: bytes) -> None:
    with pytest.raises(BadLength):
        list(batch_items(raw))


def test_a_batch_item_with_too_long_properties_does_not_build() -> None:
    assert build_batch([BatchItem(0, b"", bytes(32767))])
    with pytest.raises(BadLength):
        build_batch([BatchItem(0, b"", bytes(32768))])
