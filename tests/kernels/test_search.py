"""Either code finds texts like Python does, and odd properties like a regular expression."""

import mmap
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.search import find, odd_properties
from rmqtool.store.check.log.records import PROPERTIES
from tests.formats.strategies import many_examples
from tests.kernels.codes import both

TEXT = b"abca"


def expected(data: bytes, text: bytes, start: int, stop: int) -> int:
    return data.find(text, start, stop + len(text) - 1) if stop > start else -1


@both
@many_examples
@given(
    st.lists(st.sampled_from([b"abc", b"abca", b"a", b"xbca", b"abcb", bytes(4090)]), max_size=12).map(b"".join),
    st.integers(0, 9000),
    st.integers(0, 20000),
)
def test_as_python_finds_it(code: Implementation, data: bytes, start: int, length: int) -> None:
    start = min(start, len(data))
    stop = min(start + length, len(data))
    for text in (TEXT, b"abcaabc", b"abcx", bytes(5)):
        assert find(data, text, start, stop, code=code) == expected(data, text, start, stop)


@both
@pytest.mark.parametrize("at", [0, 4089, 4093, 4094, 4095, 4096, 8191, 9992])
def test_across_strides(code: Implementation, at: int) -> None:
    data = bytearray(b"INNER_BAS\x01" * 1000)
    data[at : at + 8] = b"WONDERED"
    for stop in (at, at + 1, len(data)):
        assert find(data, b"WONDERED", 0, stop, code=code) == (-1 if stop == at else at)
    assert find(data, b"INNER_BASE", 0, len(data), code=code) == -1


@both
def test_of_a_mapping(code: Implementation, tmp_path: Path) -> None:
    path = tmp_path / "file"
    size = (1 << 20) - 2  # the text lies across what the plain way looks at in one step
    path.write_bytes(bytes(size) + TEXT + bytes(100))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert find(mapped, TEXT, 0, len(mapped), code=code) == size


@both
def test_what_cannot_be_looked_for(code: Implementation) -> None:
    assert find(b"abc", TEXT, 0, 3, code=code) == find(b"", TEXT, 0, 0, code=code) == -1
    for start, stop, text in ((-1, 5, TEXT), (0, 11, TEXT), (0, 5, b"abc")):
        with pytest.raises(ValueError, match="of a buffer of 10"):
            find(bytes(10), text, start, stop, code=code)


@both
def test_odd_properties_are_all_that_are_not_plain(code: Implementation) -> None:
    random = Random(1)
    items = [bytes(random.choices(b"\0\1\2\1\2ab\x80c", k=random.randrange(12))) for _ in range(3000)]
    lengths = np.array([len(item) for item in items], np.int64)
    odd = odd_properties(b"".join(items), np.cumsum(lengths) - lengths, lengths, code=code)
    assert odd.tolist() == [
        number
        for number, item in enumerate(items)
        if item and (PROPERTIES.fullmatch(item) is None or item[-1] == 0 or not item.isascii())
    ]
    nothing = np.zeros(0, np.int64)
    assert odd_properties(b"", nothing, nothing, code=code).tolist() == []


@both
@pytest.mark.parametrize(("at", "length"), [(-1, 2), (5, -1), (9, 2)])
def test_properties_outside_of_the_buffer(code: Implementation, at: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        odd_properties(bytes(10), np.array([at]), np.array([length]), code=code)
