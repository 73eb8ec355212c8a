"""How much of the tests one run covers: a share that finishes in time on two cores, and over several runs everything.

``RMQTOOL_TESTS=all`` covers everything: every step at which a process may be killed, every seed, every release.
Otherwise a run takes a share that depends on the date, so that runs of successive days cover them all. ``RMQTOOL_TURN``
selects another share; a run prints its own at the end.
"""

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

import pytest

T = TypeVar("T")
ALL = os.environ.get("RMQTOOL_TESTS") == "all"
# in the environment, for processes of pytest-xdist that start after midnight
TURN = int(os.environ.setdefault("RMQTOOL_TURN", str((datetime.now(UTC).date() - date(2026, 11, 28)).days)))
only_in_all = pytest.mark.skipif(not ALL, reason="takes a minute or more: RMQTOOL_TESTS=all")


def some(part: T, everything: T) -> T:
    """The amount for this run."""
    return everything if ALL else part


def every(step: int, everything: Sequence[T], first: int = 0) -> Sequence[T]:
    """Every ``step``-th of them, by turns; ``first`` shifts the choice for tests of the same cases."""
    return everything if ALL else everything[(first + TURN) % step :: step]


def turn_of(everything: Sequence[T], first: int = 0) -> T:
    """The value whose turn it is."""
    return everything[(first + TURN) % len(everything)]


def has_turn(number: int, runs: int) -> bool:
    """Whether it is the turn of this number, which comes once in ``runs`` runs."""
    return (number + TURN) % runs == 0


def by_turns(runs: int) -> pytest.MarkDecorator:
    """Run a share of a test's cases in each run, all of them in ``runs`` (``tests/conftest.py`` selects them).

    If :func:`every` or a release takes a share too, choose numbers of runs without a common divisor, so that each
    combination gets its turn.
    """
    return pytest.mark.turns(runs)


DEALT = ("slow", "interop", "spark")  # marks of tests whose cases are dealt out without a mark of their own
DEALT_RUNS = 21  # the number of runs for them


def whole_by_turns(number: int, runs: int) -> pytest.MarkDecorator:
    """Run all cases of a test in one of ``runs`` runs, so that shared fixtures are created once."""
    return pytest.mark.turns(runs, number)


# modules that take a fifth of a second of processor time for each test, and two seconds in all: -m quick leaves them
# out, and their cases are dealt out without a mark
SLOW_MODULES = frozenset(
    f"{folder}/test_{name}"
    for folder, names in {
        "cli": (
            *("browse", "contract", "folding", "large_offsets", "odd_files", "paging", "quick", "report_html"),
            *("types",),
        ),
        "server": ("cleaning", "defaults", "testing", "union"),
        "services": ("evidence", "grep", "overview", "popping_rules", "pulls_at_once", "redaction", "replicas"),
        "store": (
            *("accelerated", "accounts", "backup", "batch_repair", "change_owner", "change_places", "check_batches"),
            *("check_compaction", "check_hostile", "cut_timer", "damages_of_5", "deleted_topics", "dledger"),
            *("newest", "parts", "parts_of_5", "rebuild_timer", "recover_rocks", "remade_topics", "rocks_newest"),
            *("roles", "salvage", "salvage_copies", "salvage_proof", "salvage_rocks", "salvage_tier", "tail", "tier"),
            *("tier_read", "truncate", "wheel_snapshots", "whole_places", "whole_settings"),
        ),
    }.items()
    for name in names
)
SLOW_MODULE_RUNS = 7  # the number of runs for them
# folders whose tests are slow on average, or many: the cases of a test with parameters are dealt out to so many runs
FOLDERS_OF_CASES = {"admin": 7, "analytics": 7, "cli": 5, "client": 7, "server": 5, "services": 7, "store": 7}
