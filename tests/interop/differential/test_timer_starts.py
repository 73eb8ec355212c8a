"""Recovery of the timer against 5.3.3 itself: damaged wheels, timer logs and checkpoints, loaded by both.

For each case a store whose timer 5.3.3 wrote is copied and damaged by
:mod:`tests.interop.differential.timer_damage`. The engine loads one copy, and says what is in its memory then: end of
the log, place in the queue, every slot with its units. That is what we say of the same bytes, number by number; and it
is what the engine says again after a recovery of ours. Of some it then delivers everything.
"""

import os
from pathlib import Path

import pytest

from tests.amounts import by_turns, some
from tests.interop.differential.timers import SEED, run_cases
from tests.interop.engine import Engine

CASES = int(os.environ.get("RMQTOOL_TIMER_CASES", some("16", "48")))
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.xdist_group("engine-timers")]


@by_turns(7)
def test_a_start_on_damaged_timers(engine_5: Engine, tmp_path: Path) -> None:
    cases = run_cases(CASES, SEED, tmp_path, engine_5, every=8)
    assert not [case.text for case in cases if case.problems]
    assert sum(case.noted["delivered by both"] for case in cases) > 0
