"""Random sequences of commands, kills, damages, moves and real engines: nothing that was acknowledged is lost."""

from pathlib import Path

import pytest

from tests.interop.engine import VERSIONS, Engine, available
from tests.model.play import play


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    _taken, failure = play(seed, 45, tmp_path / "world")
    assert failure is None, str(failure)


@pytest.mark.interop
@pytest.mark.xdist_group("model-engines")
@pytest.mark.parametrize("seed", range(101, 105))
def test_nothing_is_lost_with_real_engines_in_between(seed: int, tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    with Engine(VERSIONS[0]) as old, Engine(VERSIONS[1]) as new:
        _taken, failure = play(seed, 40, tmp_path / "world", (old, new))
    assert failure is None, str(failure)
