"""Texts are found as Python finds them."""

import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.kernel_find import find
from tests.formats.strategies import many_examples

TEXT = b"abca"


def expected(data: bytes, text: bytes, start: int, stop: int) -> int:
    return data.find(text, start, stop + len(text) - 1) if stop > start else -1


@many_examples
@given(
    st.lists(st.sampled_from([b"abc", b"abca", b"a", b"xbca", b"abcb", bytes(4090)]), max_size=12).map(b"".join),
    st.integers(0, 9000),
    st.integers(0, 20000),
)
def test_as_python_finds_it(data: bytes, start: int, length: int) -> None:
    start = min(start, len(data))
    stop = min(start + length, len(data))
    for text in (TEXT, b"abcaabc", b"abcx", bytes(5)):
        assert find(data, text, start, stop) == expected(data, text, start, stop)


@pytest.mark.parametrize("at", [0, 4089, 4093, 4094, 4095, 4096, 8191, 9992])
def test_across_strides(at: int) -> None:
    data = bytearray(b"INNER_BAS\x01" * 1000)
    data[at : at + 8] = b"WONDERED"
    for stop in (at, at + 1, len(data)):
        assert find(data, b"WONDERED", 0, stop) == (-1 if stop == at else at)
    assert find(data, b"INNER_BASE", 0, len(data)) == -1


def test_of_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000) + TEXT)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert find(mapped, TEXT, 0, len(mapped)) == 100_000


def test_what_cannot_be_looked_for() -> None:
    assert find(b"abc", TEXT, 0, 3) == find(b"", TEXT, 0, 0) == -1
    for start, stop, text in ((-1, 5, TEXT), (0, 11, TEXT), (0, 5, b"abc")):
        with pytest.raises(ValueError, match="of a buffer of 10"):
            find(bytes(10), text, start, stop)
