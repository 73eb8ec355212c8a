"""Random sequences of commands, kills, damage, moves and real engines: no acknowledged message is lost."""

from pathlib import Path

import pytest

from rmqtool.cli.commands import COMMANDS
from tests.amounts import by_turns, some
from tests.interop.engine import VERSIONS, Engine, available
from tests.model.covered import NOT_TAKEN, STEPS
from tests.model.play import WEIGHTS, play


@by_turns(13)
@pytest.mark.parametrize("seed", range(1, some(2, 7)))
def test_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    _taken, _counts, failure = play(seed, 45, tmp_path / "disk")
    assert failure is None, str(failure)


@by_turns(13)
@pytest.mark.interop
@pytest.mark.xdist_group("model-engines")
@pytest.mark.parametrize("seed", range(101, some(102, 105)))
def test_nothing_is_lost_with_real_engines_in_between(seed: int, tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    with Engine(VERSIONS[0]) as old, Engine(VERSIONS[1]) as new:
        _taken, _counts, failure = play(seed, 40, tmp_path / "disk", (old, new))
    assert failure is None, str(failure)


def test_every_command_that_writes_is_in_the_model() -> None:
    assert STEPS.keys() | NOT_TAKEN.keys() == {
        name for name, command in COMMANDS.items() if command.writes or command.marked
    }
    assert not STEPS.keys() & NOT_TAKEN.keys()
    assert set(STEPS.values()) <= WEIGHTS.keys()
    assert all(WEIGHTS[step] > 0 for step in STEPS.values())
    assert all(len(why) > 40 for why in NOT_TAKEN.values())
