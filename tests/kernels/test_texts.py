"""Either code numbers texts in order of their first appearance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.texts import number_texts
from tests.formats.strategies import many_examples
from tests.kernels.codes import both

TEXTS = [b"", b"a", b"b", b"ab", b"a\0", bytes(8), b"12345678", b"123456789", b"12345678\0", b"x" * 40, b"x" * 41]


@both
@many_examples
@given(st.lists(st.sampled_from(TEXTS) | st.binary(max_size=3), max_size=60))
def test_equal_texts_have_one_number(code: Implementation, texts: list[bytes]) -> None:
    lengths = [len(text) for text in texts]
    at = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
    known: dict[bytes, int] = {}
    expected = [known.setdefault(text, len(known)) for text in texts]
    first, numbers = number_texts(b"".join(texts), at, np.array(lengths, np.int64), code=code)
    assert numbers.tolist() == expected
    assert first.tolist() == [expected.index(number) for number in range(len(known))]


@both
def test_many_different_texts(code: Implementation) -> None:
    data = np.arange(5000, dtype=np.int64).tobytes() * 2
    at = np.arange(10_000, dtype=np.int64) * 8
    first, numbers = number_texts(data, at, np.full(10_000, 8, np.int64), code=code)
    assert first.tolist() == list(range(5000))
    assert numbers.tolist() == [*range(5000), *range(5000)]


@both
@pytest.mark.parametrize(("at", "length"), [(-1, 1), (0, -1), (0, 4), (3, 1)])
def test_texts_outside_of_the_buffer(code: Implementation, at: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        number_texts(b"abc", np.array([at], np.int64), np.array([length], np.int64), code=code)
