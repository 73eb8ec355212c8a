"""Recovery of the timer compared with 5.3.3: damaged wheels, timer logs and checkpoints, loaded by both.

For each case a store with a timer written by 5.3.3 is copied and damaged by
:mod:`tests.interop.differential.timer_damage`. The engine loads one copy, and reports its state in memory: end of the
log, position in the queue, every slot with its units. We must compute the same from the same bytes, and the engine must
report the same after our recovery. For some it then delivers everything.
"""

import os
from pathlib import Path

import pytest

from tests.amounts import by_turns, some
from tests.interop.differential.timers import SEED, run_cases
from tests.interop.engine import Engine

CASES = int(os.environ.get("RMQTOOL_TIMER_CASES", some("16", "48")))
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.xdist_group("engine-timers")]


@by_turns(23)
def test_a_start_on_damaged_timers(engine_5: Engine, tmp_path: Path) -> None:
    cases = run_cases(CASES, SEED, tmp_path, engine_5, every=8)
    assert not [case.text for case in cases if case.problems]
    assert sum(case.noted["delivered by both"] for case in cases) > 0
