"""Brokers that go, lie, run full and lose their store: nothing is lost, passed over, or copied twice."""

from pathlib import Path

import pytest

from tests.amounts import by_turns, some
from tests.model.live.play import play


@by_turns(3)
@pytest.mark.parametrize("seed", range(1, some(2, 21)))
def test_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    _counts, failure = play(seed, some(16, 40), tmp_path / "live")
    assert failure is None, str(failure)
