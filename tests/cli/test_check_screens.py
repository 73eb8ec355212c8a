"""check at a terminal: widths, colours, and the question of recover."""

import re

import pytest

from rmqtool.cli.read.show_check import lines_of
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.reading.reading import Interpreter
from rmqtool.store.layout.paths import StoreLayout
from tests import goldens
from tests.amounts import by_turns
from tests.cli.terminal import at_terminal, plain
from tests.conftest import Unpacked
from tests.store.findings import check_store


@by_turns(2)
@pytest.mark.parametrize("case", [*goldens.cases(), *goldens.cases_of_5()])
def test_lines_fit(case: str, golden: Unpacked) -> None:
    """Except commands, which must stay whole for copying, and text without spaces."""
    reader, situation = Interpreter(), Situation()
    for finding in check_store(StoreLayout(str(golden(case))), situation=situation):
        reader.take(finding)
    for line in lines_of(reader.reading(situation), 80, situation.log, colour=False):
        assert len(line) <= 80 or re.match(r"\d+\. ", line) or " " not in line.strip()


def test_colours_are_left_out_on_demand(golden_copy: Unpacked) -> None:
    store = golden_copy("size-field-negative")
    code, coloured = at_terminal("check", store)
    assert (code, coloured.splitlines()[0]) == (1, "\x1b[1;31mDo not start a broker on this store.\x1b[0m")
    assert "\x1b[31mlog-damage\x1b[0m: " in coloured
    without = at_terminal("check", store, NO_COLOR="1")[1]
    assert "\x1b" not in without
    assert without == plain(coloured)


def test_fewer_places_and_worse_findings_on_demand(golden_copy: Unpacked) -> None:
    store = golden_copy("clean-exit-consumequeue-deleted")
    assert at_terminal("check", store, "--limit-per-code", "1")[1].count("queue offset") == 1
    told = at_terminal("check", golden_copy("size-field-negative"), "--severity", "error")[1]
    assert "What was found: 2 errors" in told


@by_turns(2)
@pytest.mark.parametrize("answer", ["", "n\n", "no\n"])
def test_recover_asks_with_the_loss_in_sight(answer: str, golden_copy: Unpacked) -> None:
    store = golden_copy("size-field-negative")
    code, told = at_terminal("recover", store, typed=answer or "\x04")
    text = " ".join(plain(told).split())
    assert "39 intact messages after the end of the log are cut off" in text
    assert f"rmqtool salvage {store} NEWSTORE keeps 39 of them" in text
    first = "salvage, run before this, keeps them in a new store. "
    assert f"{first}Recover all the same, and cut off 39 intact messages? [y/N]:" in text
    assert code == 4
