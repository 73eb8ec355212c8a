"""Recovery by the rules of 5.3 against the engine itself: damaged stores are recovered by both, every answer compared.

For each case a store that 5.3.3 wrote, or 4.9.8 before an upgrade, is copied and damaged by :mod:`tests.damage`; the
engine loads and starts one copy, rmqtool recovers another, exactly. Then the engine opens what rmqtool left, and sees
the same in it.

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
    whole_by_turns(1, 3),
]


@pytest.mark.parametrize("verb", every(4, list(damage.VERBS), 1))
def test_recovery_agrees_with_5_3_3(
    verb: str, stores_of_4: list[Base], stores_of_5: list[Base], pool: Pool, tmp_path: Path
) -> None:
    assert_agreement("5.3.3", verb, CASES // 2, stores_of_5 + stores_of_4, tmp_path, pool)
