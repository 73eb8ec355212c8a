"""Recovery by the rules of 4.9 compared with the engine: both recover damaged stores.

For each case a store written by 4.9.8 is copied and damaged by :mod:`tests.damage`; the engine loads and starts one
copy, rmqtool recovers another with ``exactly``. Then both releases open rmqtool's result, and must see the same.

A failure names its seed, the damage, and the directory of the damaged store.
"""

from pathlib import Path

import pytest

from tests import damage
from tests.amounts import every, whole_by_turns
from tests.interop.differential.bases import Base
from tests.interop.differential.judge import CASES, MARKS, Pool, assert_agreement

pytestmark = [*MARKS, whole_by_turns(0, 3)]


@pytest.mark.parametrize("verb", every(4, list(damage.VERBS), 0))
def test_recovery_agrees_with_4_9_8(verb: str, stores_of_4: list[Base], pool: Pool, tmp_path: Path) -> None:
    assert_agreement("4.9.8", verb, CASES // 2, stores_of_4, tmp_path, pool)
