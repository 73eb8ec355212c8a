"""How much one run of the tests looks at: what ends in time on two cores, and by turns everything.

``RMQTOOL_TESTS=all`` looks at everything: every step at which a process may be killed, every seed, every release.
Without it a run takes its share. Which one goes by the day, so that runs of successive days see all of them;
``RMQTOOL_TURN`` names another, and a run says at its end which it was.
"""

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

import pytest

T = TypeVar("T")
ALL = os.environ.get("RMQTOOL_TESTS") == "all"
# in the environment for the processes of pytest-xdist, which may start on another day
TURN = int(os.environ.setdefault("RMQTOOL_TURN", str((datetime.now(UTC).date() - date(2026, 11, 28)).days)))
only_in_all = pytest.mark.skipif(not ALL, reason="takes a minute or more: RMQTOOL_TESTS=all")


def some(part: T, everything: T) -> T:
    """The amount for this run."""
    return everything if ALL else part


def every(step: int, everything: Sequence[T], first: int = 0) -> Sequence[T]:
    """Each so many of them, by turns: tests of the same cases begin at different ones."""
    return everything if ALL else everything[(first + TURN) % step :: step]


def turn_of(everything: Sequence[T], first: int = 0) -> T:
    """The one whose turn it is."""
    return everything[(first + TURN) % len(everything)]


def has_turn(number: int, runs: int) -> bool:
    """Whether what has a number has its turn, which it has once in so many runs."""
    return (number + TURN) % runs == 0


def by_turns(runs: int) -> pytest.MarkDecorator:
    """Of the cases of a test a share in each run, and all of them in so many (``tests/conftest.py`` deals them).

    Where :func:`every` or a release takes a share too, the numbers of runs have no divisor in common: so each case has
    its turn.
    """
    return pytest.mark.turns(runs)


SLOW_RUNS = 3  # in which the cases of a slow test that says nothing else have their turn


def whole_by_turns(number: int, runs: int) -> pytest.MarkDecorator:
    """All cases of a test in one of so many runs: what they share is made once."""
    return pytest.mark.turns(runs, number)
