"""Recovery by the rules of 4.9 against the engine itself: damaged stores are recovered by both, every answer compared.

For each case a store that 4.9.8 wrote is copied and damaged by :mod:`tests.damage`; the engine loads and starts one
copy, rmqtool recovers another, exactly. Then both releases open what rmqtool left, and see the same in it.

A failure names its seed, what was done, and the folder where the damaged store is kept. Environment:

* ``RMQTOOL_DIFFERENTIAL_CASES``: how many cases in all, for both releases; some hundreds unless told.
* ``RMQTOOL_DIFFERENTIAL_SEED``: the seed of the first one; the others count on from there.
* ``RMQTOOL_DIFFERENTIAL_ENGINES``: how many engines of each release run at the same time.
"""

from pathlib import Path

import pytest

from tests import damage
from tests.amounts import every, whole_by_turns
from tests.interop.differential.bases import Base
from tests.interop.differential.judge import CASES, Pool, assert_agreement

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.xdist_group("engine-differential"),
    whole_by_turns(0, 3),
]


@pytest.mark.parametrize("verb", every(4, list(damage.VERBS), 0))
def test_recovery_agrees_with_4_9_8(verb: str, stores_of_4: list[Base], pool: Pool, tmp_path: Path) -> None:
    assert_agreement("4.9.8", verb, CASES // 2, stores_of_4, tmp_path, pool)
