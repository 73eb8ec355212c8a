"""Items made by a thread: the same ones, the same end, no thread left."""

import threading
import time
from collections.abc import Generator

import pytest

from rmqtool.store.ahead import ahead


def items(count: int, made: list[int], closed: list[bool]) -> Generator[int, None, str]:
    try:
        for n in range(count):
            made.append(n)
            yield n
        return "end"
    finally:
        closed.append(True)


def test_items_and_end() -> None:
    made: list[int] = []
    closed: list[bool] = []
    source = ahead(items(100, made, closed))
    ends: list[str] = []

    def drained() -> Generator[int, None, None]:
        ends.append((yield from source))

    got = list(drained())
    assert got == made == list(range(100))
    assert closed == [True]
    assert ends == ["end"]


def test_no_more_than_was_asked_for_and_some() -> None:
    made: list[int] = []
    closed: list[bool] = []
    before = threading.active_count()
    source = ahead(items(10_000, made, closed), depth=3)
    assert next(source) == 0
    time.sleep(0.1)
    assert len(made) <= 6
    source.close()
    assert closed == [True]
    assert threading.active_count() == before


def test_what_the_items_raise() -> None:
    def failing() -> Generator[int, None, None]:
        yield 1
        raise ValueError("here")

    source = ahead(failing())
    assert next(source) == 1
    with pytest.raises(ValueError, match="here"):
        next(source)
