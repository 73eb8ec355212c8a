"""No test of the command line may hang: one that waits for a FIFO or a lock fails instead."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

MOST_SECONDS = 300  # a machine may be busy with many tests at once


class Hung(BaseException):
    """Not caught by ``except Exception`` and ``except OSError``."""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Fail after a time limit, wherever the program is."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
