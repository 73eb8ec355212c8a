"""How much a run of all tests looks at: a part of what some could, so that it ends in time on two cores.

``RMQTOOL_TESTS=all`` looks at everything: every step at which a process may be killed, every seed, both sanitizers.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
ALL = os.environ.get("RMQTOOL_TESTS") == "all"
only_in_all = pytest.mark.skipif(not ALL, reason="takes a minute or more: RMQTOOL_TESTS=all")


def some(part: T, everything: T) -> T:
    """The amount for this run."""
    return everything if ALL else part


def every(step: int, everything: Sequence[T], first: int = 0) -> Sequence[T]:
    """Each so many of them, from one on: tests of the same cases begin at different ones."""
    return everything if ALL else everything[first::step]
