"""Recovery by the rules of 5.3 compared with the engine: both recover damaged stores.

For each case a store written by 5.3.3, or by 4.9.8 before an upgrade, is copied and damaged by :mod:`tests.damage`; the
engine loads and starts one copy, rmqtool recovers another with ``exactly``. Then the engine opens rmqtool's result, and
must see the same.

A failure names its seed, the damage, and the directory of the damaged store.
"""

from pathlib import Path

import pytest

from tests import damage
from tests.amounts import every, whole_by_turns
from tests.interop.differential.bases import Base
from tests.interop.differential.judge import CASES, MARKS, Pool, assert_agreement

pytestmark = [*MARKS, whole_by_turns(1, 3)]


@pytest.mark.parametrize("verb", every(4, list(damage.VERBS), 1))
def test_recovery_agrees_with_5_3_3(
    verb: str, stores_of_4: list[Base], stores_of_5: list[Base], pool: Pool, tmp_path: Path
) -> None:
    assert_agreement("5.3.3", verb, CASES // 2, stores_of_5 + stores_of_4, tmp_path, pool)
