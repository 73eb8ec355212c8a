"""``recover --dry-run`` on damaged RocksDB stores, compared with the engines.

Random damage is a separate program: :mod:`tests.interop.rocks_recovery`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amounts import by_turns, every
from tests.interop.engine import NEWEST, Engine
from tests.interop.rocks_recovery import DAMAGES, hold_against, killed_store, stopped_store

pytestmark = [pytest.mark.interop]
# after a crash all is dispatched anew from the start file on, so what became of single units does not matter
OF_A_CRASH = [name for number, name in enumerate(DAMAGES) if not number % 3]


@pytest.fixture(scope="module")
def stopped(engine_5: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("rocks") / "stopped"
    stopped_store(engine_5, store)
    return store


@pytest.fixture(scope="module")
def killed(engine_5: Engine, stopped: Path) -> Path:
    store = stopped.with_name("killed")
    killed_store(engine_5, stopped, store)
    return store


@by_turns(11)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_stopped_broker(damage: str, engine_5: Engine, stopped: Path, tmp_path: Path) -> None:
    report = hold_against(engine_5, stopped, DAMAGES[damage], tmp_path)
    assert not report.abort
    assert damage != "none" or not report.actions


@by_turns(23)
@pytest.mark.parametrize("damage", OF_A_CRASH)
def test_a_killed_broker(damage: str, engine_5: Engine, killed: Path, tmp_path: Path) -> None:
    report = hold_against(engine_5, killed, DAMAGES[damage], tmp_path)
    assert report.abort
    assert damage != "none" or report.messagesRedispatched > 0


@pytest.fixture(scope="module")
def newest() -> Iterator[Engine]:
    with Engine(NEWEST) as engine:
        yield engine


@pytest.fixture(scope="module")
def of_newest(newest: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores with more than the ten log files that 5.5 examines, by how the broker ended."""
    folder = tmp_path_factory.mktemp("newest")
    stores = {"stopped": folder / "stopped", "killed": folder / "killed"}
    stopped_store(newest, stores["stopped"], 900)
    killed_store(newest, stores["stopped"], stores["killed"])
    return stores


@by_turns(23)
@pytest.mark.parametrize("ended", ["stopped", "killed"])
@pytest.mark.parametrize("damage", every(4, list(DAMAGES)))
def test_a_broker_of_5_5(damage: str, ended: str, newest: Engine, of_newest: dict[str, Path], tmp_path: Path) -> None:
    report = hold_against(newest, of_newest[ended], DAMAGES[damage], tmp_path)
    assert report.engine == "5.5"
