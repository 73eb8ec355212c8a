"""Following the advice in order succeeds: no command advises another that refuses."""

from pathlib import Path
from random import Random

import pytest

from tests import goldens
from tests.amounts import by_turns, every, some
from tests.conftest import Unpacked
from tests.damage import log_files
from tests.store.helpers import conf_of
from tests.store.walked import ALL_VERBS, Walk, commands_in, run_case, starts, walk, walk_from
from tests.whole import VERBS, Base, make_bases

pytestmark = pytest.mark.slow


@by_turns(2)
@pytest.mark.parametrize("case", every(9, [*goldens.cases(), *goldens.cases_of_5()]))
def test_of_golden_stores(case: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    assert walk(golden_copy(case), tmp_path, conf_of(case)) == []


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    return make_bases(tmp_path_factory.mktemp("bases"))


@by_turns(13)
@pytest.mark.parametrize("seed", range(some(8, 400)))
def test_of_random_damages(seed: int, bases: list[Base], tmp_path: Path) -> None:
    """Damage beside the log, and in every second case to the log too; ``python -m tests.store.walked`` runs more."""
    rng = Random(f"1 {seed}")
    told = run_case(rng, rng.choice(bases), tmp_path, ALL_VERBS if seed % 2 else VERBS, every_start=False)
    assert not told, "\n".join(told)


@by_turns(13)
@pytest.mark.parametrize("case", ["crash", "short-last-file", "body-bit-flip-last-file"])
def test_from_any_command(case: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(case)
    problems, _ = Walk(store, tmp_path, conf_of(case)).check()
    for number, start in enumerate(starts(Random(1), store, conf_of(case), problems)):
        (room := tmp_path / str(number)).mkdir()
        assert walk_from(start, golden_copy(case), room, conf_of(case)) == []


def test_of_a_message_that_names_its_light_queue_no_more(golden_copy: Unpacked, tmp_path: Path) -> None:
    """The queue has a gap then, and nothing that a rebuild could put there."""
    store, conf = golden_copy("lmq"), conf_of("lmq")
    log, *_ = log_files(store)
    data = log.read_bytes()
    at = data.index(b"%LMQ%", len(data) // 2)
    log.write_bytes(data[:at] + b"x" + data[at + 1 :])
    problems, advised = Walk(store, tmp_path, conf).check()
    assert {"cq-other-message", "log-ordinal-gap"} <= {problem.code for problem in problems}
    assert "rebuild" not in {command[0] for command in advised}
    assert walk(store, tmp_path, conf) == []


def test_commands_are_found_in_words() -> None:
    text = (
        "x: was not stopped cleanly: run rmqtool recover /a/b --broker-conf /c first; rmqtool salvage STORE NEWSTORE."
    )
    assert list(commands_in(text)) == [["recover", "/a/b", "--broker-conf", "/c"], ["salvage", "STORE", "NEWSTORE"]]
