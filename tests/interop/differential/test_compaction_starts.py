"""Damaged compacted topics compared with 5.3.3: the same stores are refused, and each offset gives the same.

The engine loads and starts one copy of a golden store with damaged compaction logs; we recover another, and compare
what a consumer gets at each queue and offset.
"""

import os
from pathlib import Path

import pytest

from tests.amounts import by_turns, some
from tests.interop.differential.compacted import SEED, run_cases
from tests.interop.engine import Engine

CASES = int(os.environ.get("RMQTOOL_COMPACTION_CASES", some("12", "48")))
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.xdist_group("engine-timers")]


@by_turns(11)
def test_reads_after_damage(engine_5: Engine, tmp_path: Path) -> None:
    cases = run_cases(CASES, SEED, tmp_path, engine_5)
    assert not [case.text for case in cases if case.problems]
    assert sum(case.noted["reads alike"] for case in cases) > 10 * CASES
