"""Salvage keeps at least 99.9 % of the intact messages of every damaged store; the table: ``tests.bench.salvage``."""

from pathlib import Path

import pytest

from tests.amounts import by_turns, some
from tests.bench.salvage import Kept, golden_cases, seeded_cases, short_of, table
from tests.damage import VERBS

# what the real 4.9.8 kept where it does not keep all; each lost message lies behind one that is damaged
BROKER_KEEPS = {
    "body-bit-flip-first-file-no-checkpoint": 70,
    "body-bit-flip-last-file": 473,
    "magic-broken-last-file": 446,
    "size-field-negative": 460,
    "short-last-file": None,
}


@by_turns(3)
def test_golden_stores(tmp_path: Path) -> None:
    kept = {case.case: case for case in golden_cases(tmp_path)}
    assert not short_of(list(kept.values())), table(list(kept.values()))
    assert {
        case: salvaged_case.broker
        for case, salvaged_case in kept.items()
        if salvaged_case.broker != salvaged_case.intact
    } == BROKER_KEEPS
    assert sum(case.intact for case in kept.values()) > 10_000
    assert kept["commitlog-deleted"].intact == 0
    assert kept["torn-last-record"].intact == 499


@by_turns(13)
@pytest.mark.slow
def test_every_way_of_damage(tmp_path: Path) -> None:
    bases = some(1, 2)
    kept = list(seeded_cases(tmp_path, seed=20261121, rounds=1, bases=bases))
    assert len(kept) == bases * len(VERBS)
    assert not short_of(kept), table(kept)
    intact, broker = sum(case.intact for case in kept), sum(case.broker or 0 for case in kept)
    assert broker < 0.95 * intact  # these are damages that cost a broker messages


def test_the_table_tells_what_is_missing() -> None:
    kept = [Kept("a", "", 1000, 999, 500), Kept("a", "", 1000, 1000, None), Kept("b", "", 0, 0, 0)]
    assert short_of(kept) == []
    assert short_of([Kept("c", "", 1000, 998, 1000)])
    lines = table(kept).splitlines()
    assert lines[1].split() == ["a", "2", "2000", "1999", "500", "refuses", "1", "of", "2"]
    assert lines[-1] == "salvage keeps 99.9500% of the intact messages, the broker 25.0%"
