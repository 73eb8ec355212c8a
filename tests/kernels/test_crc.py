"""Checksums computed by kernels."""

import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.kernels.crc import crc32, fast_function
from rmqtool.kernels.load.library import Implementation
from tests.formats.strategies import examples
from tests.kernels.codes import both


@both
@examples
@given(st.binary(max_size=300), st.integers(0, 16))
def test_checksums_agree(code: Implementation, data: bytes, skip: int) -> None:
    part = memoryview(data)[skip:]
    assert crc32(part, code=code) == crc32(part, tables=True, code=code) == zlib.crc32(part)


@both
def test_checksums_of_every_short_length_agree(code: Implementation) -> None:
    data = bytes(range(256)) * 20
    for length in [*range(130), 4095, 4096, 5120]:
        part = data[:length]
        assert crc32(part, code=code) == crc32(part, tables=True, code=code) == zlib.crc32(part)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="where the library exports it is known for Linux only")
def test_vector_code_is_found() -> None:
    assert fast_function()
