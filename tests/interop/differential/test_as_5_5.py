"""Recovery by the rules of 5.5 compared with the engines of 5.5.0 and 5.5.1.

See :mod:`tests.interop.differential.test_as_5_3`. All stores were written by 5.5.0: one of an older release becomes a
5.5 store only at its first start.
"""

from pathlib import Path

import pytest

from tests import damage
from tests.amounts import every, whole_by_turns
from tests.interop.differential.bases import Base
from tests.interop.differential.judge import CASES, MARKS, Pool, assert_agreement

pytestmark = [*MARKS, whole_by_turns(2, 3)]


@pytest.mark.parametrize("verb", every(4, list(damage.VERBS), 2))
def test_recovery_agrees_with_5_5_0(verb: str, stores_of_newest: list[Base], newest_pool: Pool, tmp_path: Path) -> None:
    assert_agreement("5.5.0", verb, CASES // 2, stores_of_newest, tmp_path, newest_pool)


@whole_by_turns(1, 3)
@pytest.mark.parametrize("verb", sorted({"other-blank-size", *every(8, list(damage.VERBS), 5)}))
def test_recovery_agrees_with_5_5_1(verb: str, stores_of_newest: list[Base], latest_pool: Pool, tmp_path: Path) -> None:
    assert_agreement("5.5.1", verb, CASES // 2, stores_of_newest, tmp_path, latest_pool)
