"""The log as a row of blocks: each byte counts for the block that it is in."""

from itertools import pairwise
from random import Random

import pytest

from rmqtool.cli.read.show_log import blocks_of, lines_of_log
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.run import check_store
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.shape import DamagedRange, FileSpan, LogShape
from tests.cli.running import rmqtool
from tests.cli.terminal import at_terminal
from tests.conftest import Unpacked


def kind_of(shape: LogShape, at: int) -> str:
    """The block for one byte."""
    if any(each.physical_offset <= at < each.physical_offset + each.length for each in shape.damaged):
        return "✗"
    if not any(file.base <= at < file.end for file in shape.files):
        return "·"
    if at >= shape.end:
        return "░"
    return "▒" if shape.cut is not None and at >= shape.cut else "█"


@pytest.mark.parametrize("seed", range(200))
def test_a_block_shows_the_worst_of_its_bytes(seed: int) -> None:
    rng = Random(seed)
    files = [FileSpan(f"f{number}", number * 50, 50) for number in range(6) if number in (0, 5) or rng.random() < 0.7]
    end = rng.randrange(1, 301)
    damaged = sorted(
        DamagedRange(rng.randrange(end), rng.randrange(1, 30), "log-damage") for _ in range(rng.randrange(3))
    )
    cut = rng.choice([None, *(each.physical_offset for each in damaged)])
    shape = LogShape(files, end, damaged, cut)
    count = rng.choice([1, 7, 13, 64, 300])
    edges = [300 * at // count for at in range(count + 1)]
    wanted = ""
    for start, stop in pairwise(edges):
        kinds = {kind_of(shape, at) for at in range(start, stop)}
        wanted += next(kind for kind in "✗▒█░·" if kind in kinds)
    assert blocks_of(shape, count) == wanted


def test_many_files_and_none() -> None:
    files = [FileSpan(str(number), number << 30, 1 << 30) for number in range(2000)]
    assert blocks_of(LogShape(files, 1000 << 30), 64) == "█" * 32 + "░" * 32
    assert blocks_of(LogShape(), 64) == ""
    assert [*lines_of_log(LogShape(), 80, colour=True)] == []


@pytest.mark.parametrize("width", [20, 80, 120])
def test_it_fits(width: int, golden: Unpacked) -> None:
    situation = Situation()
    for _finding in check_store(StoreLayout(str(golden("magic-broken-last-file"))), situation=situation):
        pass
    assert situation.log is not None
    row, meanings = lines_of_log(situation.log, width, colour=False)
    assert len(row) == min(width, 5 + 64)
    assert {*row.removeprefix("Log  ")} <= {"█", "✗", "▒", "░"}
    assert "✗ damaged" in meanings
    coloured = next(lines_of_log(situation.log, width, colour=True))
    assert "\x1b[31m✗\x1b[0m" in coloured


def test_check_shows_it_to_people_alone(golden: Unpacked) -> None:
    store = golden("magic-broken-last-file")
    shown = rmqtool("check", store).out.splitlines()
    (row,) = [line for line in shown if line.startswith("Log  ")]
    assert row.index("✗") < row.index("▒") < row.index("░")
    assert "\n     █ messages   ✗ damaged   ▒ cut off by the next start   ░ unused\n" in "\n".join(shown)
    assert "▒" in at_terminal("check", store)[1]
    for form in ("table", "json", "ndjson", "csv"):
        assert "▒" not in rmqtool("check", store, "-o", form).out
    clean = rmqtool("check", golden("broker")).out
    assert clean.startswith("Clean: nothing was found.\n\nLog  █")
    assert "▒" not in clean
