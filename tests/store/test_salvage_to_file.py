"""All intact messages of a damaged store in one file, complete or not at all, with unreadable ranges beside it."""

import json
import os
import signal
from pathlib import Path

import pytest

from rmqtool.analytics.dump.salvaged import write_parquet
from rmqtool.cli.repair.salvage import write_ndjson
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.salvage.lost_found import LostFound
from rmqtool.store.salvage.to_file import ReportDamage, WriteAll, salvage_to_file
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.helpers import conf_of, tree

WITH_LOG = [case for case in goldens.cases() if case != "commitlog-deleted"]
FORMS: dict[str, WriteAll] = {"ndjson": write_ndjson, "parquet": write_parquet}
DAMAGED = "body-bit-flip-first-file-no-checkpoint"


@by_turns(3)
@pytest.mark.parametrize("case", WITH_LOG)
def test_ndjson_is_what_commitlog_dump_prints(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store, out = golden(case), tmp_path / "out.ndjson"
    before = tree(store)
    dumped = rmqtool("commitlog", "dump", store, "-o", "ndjson")
    result = rmqtool("salvage", store, out, "--to", "ndjson")
    assert result.code == dumped.code
    assert out.read_bytes() == dumped.out.encode()
    assert len(dumped.out.splitlines()) >= 40
    piped = rmqtool("salvage", store, "-", "--to", "ndjson")
    assert (piped.code, piped.out) == (dumped.code, dumped.out)
    assert tree(store) == before
    assert sorted(os.listdir(tmp_path)) == ["out.ndjson"] + ["out.ndjson.lost+found"] * result.code


@by_turns(3)
@pytest.mark.parametrize("case", WITH_LOG)
def test_parquet_has_the_same_messages(case: str, golden: Unpacked, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from rmqtool.analytics.table.schema import MESSAGE_SCHEMA

    layout = StoreLayout(str(golden(case)), conf_of(case))
    report = salvage_to_file(layout, str(tmp_path / "out.parquet"), "parquet", write_parquet)
    lines = salvage_to_file(layout, str(tmp_path / "out.ndjson"), "ndjson", write_ndjson)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema == MESSAGE_SCHEMA
    rows = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert table.num_rows == len(rows) == report.messages == lines.messages
    for name in ("topic", "queueId", "queueOffset", "physicalOffset", "msgId", "tags", "keys", "bodyLength"):
        assert table.column(name).to_pylist() == [row[name] for row in rows]
    assert [(lost.at, lost.length) for lost in report.lostRanges] == [
        (lost.at, lost.length) for lost in lines.lostRanges
    ]


@pytest.mark.parametrize("form", FORMS)
def test_what_could_not_be_read_is_kept_beside_it(form: str, golden: Unpacked, tmp_path: Path) -> None:
    store = golden(DAMAGED)
    out = tmp_path / "messages"
    result = rmqtool("salvage", store, out, "--to", form, "-o", "json")
    assert result.code == 1
    told = json.loads(result.out)
    assert (told["messages"], told["lostBytes"], told["lostFound"]) == (499, 574, f"{out}.lost+found")
    (lost,) = told["lostRanges"]
    raw = Path(lost["file"]).read_bytes()[lost["at"] : lost["at"] + lost["length"]]
    assert (tmp_path / lost["copy"]).read_bytes() == raw
    manifest = json.loads((tmp_path / "messages.lost+found" / "manifest.json").read_text())
    assert manifest["ranges"] == [lost]
    assert manifest["source"] == str(store)
    assert manifest["reasons"] == {lost["reason"]: 1}


def test_targets_that_are_refused(golden: Unpacked, tmp_path: Path) -> None:
    layout = StoreLayout(str(golden(DAMAGED)))
    (tmp_path / "there").touch()
    (tmp_path / "other.lost+found").mkdir()
    for target in ("there", "missing/out", "other"):
        with pytest.raises(Refused):
            salvage_to_file(layout, str(tmp_path / target), "ndjson", write_ndjson)
    with pytest.raises(Refused, match="lies in the store"):
        salvage_to_file(layout, str(golden(DAMAGED) / "out"), "ndjson", write_ndjson)
    with pytest.raises(UnreadableStore, match="no commit log"):
        salvage_to_file(StoreLayout(str(golden("commitlog-deleted"))), str(tmp_path / "x"), "ndjson", write_ndjson)
    assert sorted(os.listdir(tmp_path)) == ["other.lost+found", "there"]
    assert rmqtool("salvage", layout.root, "-", "--to", "parquet").code == 2


def test_a_failure_leaves_nothing_and_a_killed_run_is_begun_anew(golden: Unpacked, tmp_path: Path) -> None:
    layout, out = StoreLayout(str(golden(DAMAGED))), tmp_path / "out"

    def full(log: CommitLog, path: str, tell: ReportDamage) -> int:
        write_ndjson(log, path, tell)
        raise OSError(28, "No space left on device")

    with pytest.raises(Refused, match="No space left"):
        salvage_to_file(layout, str(out), "ndjson", full)
    assert os.listdir(tmp_path) == []

    for step in ("writing", "moving"):
        kill_export(layout, out, step)
        left = {"out.rmqtool-part", "out.rmqtool-part.mark"} | ({"out.lost+found"} if step == "moving" else set())
        assert set(os.listdir(tmp_path)) == left
    report = salvage_to_file(layout, str(out), "ndjson", write_ndjson)
    assert sorted(os.listdir(tmp_path)) == ["out", "out.lost+found"]
    assert report.messages == len(out.read_text().splitlines()) == 499
    assert len(os.listdir(tmp_path / "out.lost+found")) == 2


def kill_export(layout: StoreLayout, out: Path, step: str) -> None:
    """Run a process that writes the file and is killed before it is complete, or after the ranges are published."""
    child = os.fork()
    if not child:
        rename = os.rename

        def killed(log: CommitLog, path: str, tell: ReportDamage) -> int:
            done = write_ndjson(log, path, tell)
            if step == "writing":
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        def moved(source: str, target: str) -> None:
            rename(source, target)
            os.kill(os.getpid(), signal.SIGKILL)

        os.rename = moved
        salvage_to_file(layout, str(out), "ndjson", killed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("step", ["writing", "moving"])
def test_what_others_put_in_the_way_is_not_removed(golden: Unpacked, tmp_path: Path, step: str) -> None:
    layout, out = StoreLayout(str(golden(DAMAGED))), tmp_path / "out"
    kill_export(layout, out, step)
    folder = tmp_path / ("out.rmqtool-part" if step == "writing" else "out.lost+found")
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    (folder / "diary").write_text("mine")
    with pytest.raises(Refused, match="exists"):
        salvage_to_file(layout, str(out), "ndjson", write_ndjson)
    assert (folder / "diary").read_text() == "mine"
    assert not out.exists()


def test_two_exports_at_once_do_not_remove_each_other(golden: Unpacked, tmp_path: Path) -> None:
    layout, out = StoreLayout(str(golden(DAMAGED))), tmp_path / "out"

    def meanwhile(log: CommitLog, path: str, tell: ReportDamage) -> int:
        with pytest.raises(Refused, match="another run is at work"):
            salvage_to_file(layout, str(out), "ndjson", write_ndjson)
        return write_ndjson(log, path, tell)

    assert salvage_to_file(layout, str(out), "ndjson", meanwhile).messages == 499
    assert sorted(os.listdir(tmp_path)) == ["out", "out.lost+found"]


def test_ranges_that_meet_become_one(tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_bytes(bytes(range(100)))
    lost = LostFound("store", str(tmp_path / "lost+found"))
    for at in (10, 20, 30, 60):
        lost.keep(str(source), at, 1000 + at, 10, "repeated record")
    lost.keep(str(source), 70, 1070, 10, "another")
    lost.close()
    assert [(lost_range.at, lost_range.physicalOffset, lost_range.length) for lost_range in lost.ranges] == [
        (10, 1010, 30), (60, 1060, 10), (70, 1070, 10),
    ]  # fmt: skip
    assert (lost.count, lost.bytes) == (3, 50)
    assert (tmp_path / lost.ranges[0].copy).read_bytes() == bytes(range(10, 40))
    manifest = json.loads((tmp_path / "lost+found" / "manifest.json").read_text())
    assert manifest["reasons"] == {"repeated record": 2, "another": 1}


def test_damage_is_told_in_order(golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(DAMAGED))))
    told: list[Damage] = []
    assert write_ndjson(log, os.devnull, told.append) == 499
    assert [item.at for item in told] == [24198]
