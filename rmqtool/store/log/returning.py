"""Iterate over a generator whose return value is needed too."""

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Returning(Generic[T, R]):
    """Iterates over a generator, and keeps what it returns.

    Attributes:
        value: what it returned; set once it is exhausted.
    """

    value: R

    def __init__(self, generator: Generator[T, None, R]) -> None:
        self._generator = generator

    def __iter__(self) -> Iterator[T]:
        self.value = yield from self._generator
