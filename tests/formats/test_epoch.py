"""epochFileCheckpoint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadChecksum, BadLength, BadText, FormatError
from formats.variants.epoch import Epoch, build, is_increasing, parse
from tests.formats.strategies import examples

EPOCHS = [Epoch(1, 0), Epoch(2, 4096), Epoch(3, 81920)]


@pytest.mark.parametrize(("line_end", "crc"), [("\n", 1898809171), ("\r\n", 1635389323)])
def test_the_example_of_the_reference(line_end: str, crc: int) -> None:
    text = line_end.join(["3", str(crc), "1-0", "2-4096", "3-81920", ""]).encode()

    assert parse(text) == EPOCHS
    assert build(EPOCHS, line_end) == text


def test_a_crc_of_zero_is_not_checked() -> None:
    assert parse(b"1\n0\n7-8\n") == [Epoch(7, 8)]


def test_the_last_line_may_lack_its_end() -> None:
    assert parse(build(EPOCHS)[:-1]) == EPOCHS


@pytest.mark.parametrize("line", [b"", b"x", b"1-2-3", b"-"])
def test_lines_of_another_form_are_passed_over(line: bytes) -> None:
    assert parse(b"1\n0\n" + line + b"\n7-8\n") == [Epoch(7, 8)]


@pytest.mark.parametrize(
    ("data", "error", "at"),
    [
        (b"", BadText, 0),
        (b"0", BadText, 0),
        (b"x\n0\n", BadText, 0),
        (b"2147483648\n0\n", BadText, 0),
        (b"10\nx\n", BadText, 3),
        (b"0\n2147483648\n", BadText, 2),
        (b"1\n0\nx-8\n", BadText, 4),
        (b"1\n0\n7-8\nx-9\n", BadText, 8),
        (b"1\r\n0\r\n7-8\r\nx-9\r\n", BadText, 8),
        (b"1\n0\n7-9223372036854775808\n", BadText, 4),
        (b"1\n0\n2147483648-1\n", BadText, 4),
        (b"1\n0\n-8\n", BadText, 4),
        (b"1\n\xff\n", BadText, 2),
        (b"9" * 5000 + b"\n0\n", BadText, 0),
        (b"2\n0\n7-8\n", BadLength, 0),
        (b"0\n0\n7-8\n", BadLength, 0),
        (b"01\n5\n7-8\n", BadChecksum, 3),
    ],
)
def test_bad_files(data: bytes, error: type[FormatError], at: int) -> None:
    with pytest.raises(error) as caught:
        parse(data)
    assert caught.value.at == at


@pytest.mark.parametrize("line", ["2147483647-9223372036854775807", "+7-+8", "0-0", "00000000000000000007-8"])
def test_numbers_at_the_edge(line: str) -> None:
    (epoch,) = parse(f"1\n0\n{line}\n".encode())

    assert epoch == tuple(map(int, line.split("-")))


@examples
@given(
    epochs=st.lists(st.builds(Epoch, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=6),
    line_end=st.sampled_from(["\n", "\r\n"]),
)
def test_epochs_read_as_they_were_built(epochs: list[Epoch], line_end: str) -> None:
    assert parse(build(epochs, line_end)) == epochs


def test_what_increases() -> None:
    assert is_increasing(EPOCHS)
    assert is_increasing([])
    assert not is_increasing([Epoch(1, 0), Epoch(1, 5)])
    assert not is_increasing([Epoch(1, 5), Epoch(2, 5)])
