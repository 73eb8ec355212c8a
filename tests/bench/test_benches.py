"""The benches run, on little; nothing is timed here."""

from pathlib import Path

import pytest

from formats.message.read import Record, read
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan
from tests.amounts import by_turns, only_in_all
from tests.bench import (
    aggregate,
    append,
    cold_sql,
    commands,
    dump,
    first_use,
    growing,
    lookup,
    parted,
    recover,
    replicas,
    rocks,
    scan,
    search,
    serve_start,
    source,
    waiting,
)
from tests.bench.make_log import BLOCK, write_log
from tests.conftest import Unpacked
from tests.interop.engine import available

pytestmark = by_turns(3)


def test_made_logs_are_what_a_broker_could_have_written(tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = write_log(store / "commitlog", body=128, file_size=1 << 16, messages=5 * BLOCK)
    assert made == 5 * BLOCK
    files = sorted((store / "commitlog").iterdir())
    assert [file.name for file in files] == [f"{i << 16:020d}" for i in range(len(files))]
    assert len(files) == 2
    ordinals: dict[tuple[bytes, int], int] = {}
    ids = set()
    for number, file in enumerate(files):
        raw, at = file.read_bytes(), 0
        while isinstance(record := read(raw, at, len(raw)), Record):
            queue = (record.topic, record.queue_id)
            assert record.queue_offset == ordinals.get(queue, 0)
            ordinals[queue] = record.queue_offset + 1
            assert record.physical_offset == number * len(raw) + at
            ids.add(record.properties)
            at += record.total_size
    assert sum(ordinals.values()) == len(ids) == made

    recover.crash(store)
    told = plan(StoreLayout(str(store)))
    assert (told.messagesRedispatched, told.indexEntriesAdded) == (made, 2 * made)
    assert not told.warnings


def test_a_block_must_fit_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="larger files"):
        write_log(tmp_path, body=128, file_size=1 << 12)


def test_the_scan_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = scan.report(tmp_path, 128, 1 << 20, 2)
    assert len(figures["scan"]) == len(figures["crc"]) == 2
    assert "ratio" in capsys.readouterr().out


def test_the_recover_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (figures,) = recover.report(tmp_path, 1000, 1 << 20, 1, 2)
    assert figures["keys"] == 2 * figures["messages"]
    assert len(figures["seconds"]) == 2
    assert "peak memory" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["query-id", "append"])
def test_the_bench_of_commands_runs(
    name: str, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "RUNS", 1)
    assert all(seconds > 0 for seconds in commands.measure(commands.COMMANDS[name], golden_copy("broker"), tmp_path))


def test_the_bench_of_growing_tables_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {kind: len(parts) for kind, parts in growing.report(tmp_path, 20, 2).items()} == {"topics": 10, "groups": 10}
    assert "the last takes" in capsys.readouterr().out


@pytest.mark.slow
@only_in_all
def test_the_first_use_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert first_use.report(tmp_path, 1000, 128, 1 << 20, 1).keys() == first_use.COMMANDS.keys()
    assert "first" in capsys.readouterr().out


@pytest.mark.slow
@only_in_all
def test_the_parted_dump_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = parted.report(tmp_path, 3000, 600, 1)
    assert [figures[way][0]["files"] for way in ("topics", "floor")] == [600, 600]
    assert all(figures[way][0]["peak_rss"] > 0 for way in ("unparted", "topics"))
    assert "as long as the files alone" in capsys.readouterr().out


def test_the_append_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = append.report(tmp_path, 1000, 128, 100, 1, beside=False)
    assert ours > 0 == theirs
    assert "messages/s" in capsys.readouterr().out


def test_the_lookup_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lookup.report(tmp_path, 2000, 100, 2)) == 2
    assert "best" in capsys.readouterr().out


def test_the_dump_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    messages = write_log(store / "commitlog", body=128, file_size=1 << 20, files=1)
    assert dump.run("writer", store, messages)["rows"] == messages
    content = (store / "commitlog" / f"{0:020d}").read_bytes()
    assert sum(1 for _message in dump.messages_in(content)) == messages


@pytest.mark.spark
@pytest.mark.slow
@only_in_all
def test_the_dump_bench_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = dump.report(tmp_path, 128, 1 << 20, 1, 1 << 20)
    assert {way: len(each) for way, each in figures.items()} == {"dump": 1, "writer": 1, "udf": 1}
    assert "times as long" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
@only_in_all
def test_the_aggregate_bench_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = aggregate.report(tmp_path, 128, 1 << 20, 1, 2)
    assert {way: len(each) for way, each in figures.items()} == dict.fromkeys(aggregate.NAMES, 1)
    assert sum(row[2] for row in figures["whole"][0]["rows"]) > 1 << 18
    assert capsys.readouterr().out.count("times as long warm") == 2


@pytest.mark.spark
@pytest.mark.slow
@only_in_all
def test_the_bench_of_the_source_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {len(each) for each in source.report(tmp_path, 2 * BLOCK, 100, 1).values()} == {1}
    assert capsys.readouterr().out.count("by the clock") == 4


@pytest.mark.spark
@pytest.mark.slow
@only_in_all
def test_the_bench_of_cold_queries_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [len(each) for each in cold_sql.report(tmp_path, 1).values()] == [1, 1]
    assert "of the time, target 0.6" in capsys.readouterr().out


@pytest.mark.interop
@pytest.mark.slow
@only_in_all
def test_the_rocksdb_bench_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := available("5.3.3"):
        pytest.skip(reason)
    figures = rocks.report(tmp_path, 2000, 1)
    assert {*rocks.WAYS} < figures.keys()
    assert "of its start" in capsys.readouterr().out


def test_the_bench_of_idle_consumers_runs(tmp_path: Path) -> None:
    assert 0 < serve_start.idle(tmp_path, 20) >> 10 < serve_start.MOST_MEMORY


def test_the_bench_of_what_waits_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert waiting.report(tmp_path, 320, 200, 1, beside=False).keys() == {"recover", "list"}
    assert "processor" in capsys.readouterr().out


def test_the_bench_of_searching_finds_what_the_other_program_finds(tmp_path: Path) -> None:
    other = f"another {search.other_grep()[0]}"
    assert search.report(tmp_path, 128, 1 << 20, 1).keys() == {"grep", "du", "diff", "cmp", other}


def test_the_bench_of_replicas_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = replicas.report(tmp_path, 1 << 20, 1 << 18, 256)
    assert figures.keys() == {"compare", "one", "merged", "union"}
    assert all(each["seconds"] > 0 and each["peak_rss"] > 0 for each in figures.values())
    assert "of one (target 1.5)" in capsys.readouterr().out
