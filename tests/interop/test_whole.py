"""Real engines serve recovered stores completely, and change nothing at the next start; see
:mod:`tests.interop.whole`.
"""

from pathlib import Path

import pytest

from tests.amounts import by_turns, some
from tests.interop.engine import Engine
from tests.interop.whole import make_stores, run_cases

pytestmark = pytest.mark.interop


@by_turns(23)
def test_recovered_stores_are_whole_to_the_engine(engine: Engine, tmp_path: Path) -> None:
    stores = make_stores(tmp_path / "stores", engine)
    failed = [
        f"case {number}: {outcome}"
        for number, outcome in run_cases(engine, stores, 1, 0, some(9, 100), tmp_path)
        if outcome.faults
    ]
    assert not failed, "\n".join(failed)
