"""``recover --dry-run`` of DLedger logs against the DLedger library: damaged, planned, and every answer compared.

More at random is a program of its own: :mod:`tests.interop.dledger_recovery`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import roles
from tests.amounts import by_turns, some
from tests.interop.dledger_recovery import MEMBERS, at_random, hold_against
from tests.interop.engine import NEWEST, Engine, available

pytestmark = pytest.mark.interop
CASES = some(10, 30)
LIBRARIES = {"0.3.1.2": "4.9.8", "0.3.2": NEWEST}


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A release of the broker that has this version of the library."""
    release = LIBRARIES[request.param]
    if reason := available(release):
        pytest.skip(reason)
    with Engine(release) as engine:
        yield engine


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[roles.Node]:
    return [roles.unpack(case, node, tmp_path_factory.mktemp(node)) for case, node in MEMBERS]


def test_a_member_as_it_was_killed(library: Engine, nodes: list[roles.Node], tmp_path: Path) -> None:
    for number, ((case, node), member) in enumerate(zip(MEMBERS, nodes, strict=True)):
        report = hold_against(library, member, lambda _member: None, tmp_path / str(number))
        last = roles.entries_of(case, node)[-1]
        assert report.dledger is not None
        assert (report.dledger.endIndex, report.dledger.endTerm) == (last["index"], last["term"])
        assert report.dledger.endPosition == last["pos"] + last["size"]
        assert report.clean


@by_turns(11)
@pytest.mark.parametrize("turn", range(3))
def test_a_damaged_member(turn: int, library: Engine, nodes: list[roles.Node], tmp_path: Path) -> None:
    seeds = range(20261128 + turn * CASES, 20261128 + (turn + 1) * CASES)
    starts = [at_random(seed, nodes, library, tmp_path / str(seed)) for seed in seeds]
    assert any(starts)
