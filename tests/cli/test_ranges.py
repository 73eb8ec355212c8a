"""An empty range, an offset without a record, and a reached limit are reported on stderr; rows are unaffected."""

import pytest

from rmqtool.cli.startup.quick import parse
from tests.cli.running import rmqtool
from tests.cli.test_no_match import ARGUMENTS, LIVE, words_of
from tests.cli.test_options import OPTIONS
from tests.conftest import Unpacked
from tests.services.test_popped import without_progress

LIMITED = sorted(
    name
    for name in OPTIONS["--limit"]
    if not name.startswith("report ") and name not in LIVE | {"commitlog hexdump", "query-key", "why"}
)
TIMED = sorted(
    name
    for name in OPTIONS["--since"]
    if not name.startswith("report ") and name not in LIVE | {"dump-to-parquet", "redact"}
)


@pytest.mark.parametrize("option", ["--offset", "--queue-offset"])
@pytest.mark.parametrize("text", ["7:7", "9:3", "0:0"])
@pytest.mark.parametrize("name", ["commitlog dump", "consumequeue dump", "index dump"])
def test_an_empty_range(name: str, option: str, text: str, golden: Unpacked) -> None:
    if name not in OPTIONS[option]:
        return
    result = rmqtool(*name.split(), golden("broker"), option, text, "-o", "ndjson")
    assert (result.code, result.out) == (1, "")
    assert f"{option} {text}: an empty range\n" in result.err


def test_an_empty_range_is_told_once(golden: Unpacked) -> None:
    """Byte 5 is inside a record, which does not matter for an empty range."""
    dumped = rmqtool("commitlog", "dump", golden("broker"), "--offset", "5:1")
    assert (dumped.code, dumped.out) == (1, "")
    assert dumped.err == "--offset 5:1: an empty range\nnothing matches the selection\n"
    shown = rmqtool("commitlog", "hexdump", golden("broker"), "--offset", "5:1")
    assert shown == (1, "", "--offset 5:1: an empty range\n")


@pytest.mark.parametrize("name", TIMED)
def test_an_empty_time(name: str, golden: Unpacked) -> None:
    args = [*words_of(name, golden("broker")), "-o", "ndjson"]
    result = rmqtool(*args, "--since", "2026-11-21", "--until", "2026-11-21")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("--until is not later than --since: an empty range\n")
    assert "empty range" not in rmqtool(*args, "--since", "2026-11-20", "--until", "2026-11-21").err


@pytest.mark.parametrize("name", [name for name in LIMITED if name != "query-id"])
def test_a_limit_that_cuts_says_so(name: str, golden: Unpacked, golden_copy: Unpacked) -> None:
    popped = name == "group inflight"  # 4.9 has no POP
    store = without_progress(golden_copy("broker-5.3.3")) if popped else golden("broker")
    args = [*words_of(name, store), "-o", "ndjson"]
    if name == "topic latest":
        args = ["topic", "latest", golden("compaction-5.3.3"), "Prices", "-o", "ndjson"]
    args += ["--all"] if name in ("group diff", "delay due") else []
    whole = rmqtool(*args)
    rows = whole.out.splitlines()
    if not rows:
        assert name == "delay due"  # nothing waits in a store that is months old
        return
    for limit in {1, len(rows) - 1, len(rows), len(rows) + 1} - {0}:
        result = rmqtool(*args, "--limit", limit)
        assert result.out.splitlines() == rows[:limit]
        if limit < len(rows):
            assert f"stopped after {limit} {'row' if limit == 1 else 'rows'} (--limit)\n" in result.err
        elif limit > len(rows):
            assert "stopped" not in result.err


def test_a_limit_of_a_look_up(golden: Unpacked) -> None:
    args = ["query-key", golden("broker"), *ARGUMENTS["query-key"], "-o", "ndjson"]
    rows = rmqtool(*args).out.splitlines()
    assert len(rows) > 1
    for limit in (1, len(rows) - 1, len(rows)):
        assert parse([str(word) for word in [*args, "--limit", limit]]) is not None
        result = rmqtool(*args, "--limit", limit)
        assert result.out.splitlines() == rows[:limit]
        assert result.err == (
            "" if limit == len(rows) else f"stopped after {limit} {'row' if limit == 1 else 'rows'} (--limit)\n"
        )


def test_an_offset_inside_a_record(golden: Unpacked) -> None:
    store = golden("broker")
    rows = rmqtool("commitlog", "dump", store, "-o", "csv", "--limit", 3).out.splitlines()
    second, third = (int(row.split(",")[3]) for row in rows[2:])
    for offset in (f"{second + 1}:", f"{second + 5}:{third + 1}"):
        result = rmqtool("commitlog", "dump", store, "--offset", offset, "--limit", 1, "-o", "csv")
        assert int(result.out.splitlines()[1].split(",")[3]) == third
        assert f"no record begins at {offset.split(':')[0]}: records that begin after it are shown" in result.err
    alone = rmqtool("commitlog", "dump", store, "--offset", second + 1, "-o", "ndjson")
    assert (alone.code, alone.out) == (1, "")
    assert alone.err.startswith(f"no record begins at {second + 1}: ")
    exact = rmqtool("commitlog", "dump", store, "--offset", f"{second}:{third}", "-o", "ndjson")
    assert (exact.code, exact.err, exact.out.count("\n")) == (0, "", 1)


def test_bytes_inside_a_record(golden: Unpacked) -> None:
    assert (
        rmqtool("commitlog", "hexdump", golden("broker"), "--offset", 1).err
        == "no record begins at 1: 64 bytes are shown\n"
    )
    assert rmqtool("commitlog", "hexdump", golden("broker"), "--offset", 0).err == ""
    assert "stopped after 2000" not in rmqtool("commitlog", "hexdump", golden("broker"), "--offset", "0:100").err
