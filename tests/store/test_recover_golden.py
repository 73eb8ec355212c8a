"""Recovery compared with the real 4.9.8 on crashed and damaged stores; 5.3.3 agrees on many."""

from pathlib import Path

import pytest

from rmqtool.rules.releases import RELEASES
from rmqtool.store.disk import files
from rmqtool.store.dispatch import reading
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues import builder as queue_builder
from rmqtool.store.recovery import dispatcher
from rmqtool.store.recovery.command import plan, recover
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.helpers import NO_LOG, conf_of, content, entries_of, key_hits, state_from, state_of, tree

DAMAGED = [case for case in goldens.cases() if goldens.has(case, "recovered.json")]
CLEAN = [case for case in goldens.cases() if case not in DAMAGED]
LOADED = [case for case in DAMAGED if goldens.has(case, "messages.ndjson.gz")]


def layout_of(store: Path, case: str) -> StoreLayout:
    return StoreLayout(str(store), conf_of(case))


def test_there_are_damaged_cases() -> None:
    assert len(DAMAGED) >= 20


@by_turns(2)
@pytest.mark.parametrize("case", DAMAGED)
def test_the_plan_tells_the_engines_state_and_changes_nothing(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = tree(store.parent)
    answer = goldens.recovered(case)
    exactly = not answer["loadOk"] or case == NO_LOG  # else what the engine refuses is mended
    report = plan(layout_of(store, case), exactly=exactly)
    assert report.loadOk is answer["loadOk"]
    assert state_from(report.afterLoad) == state_of(answer["afterLoad"])
    if "afterStart" in answer:
        assert report.afterStart is not None
        assert state_from(report.afterStart) == state_of(answer["afterStart"])
    assert tree(store.parent) == before


@by_turns(13)
@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@pytest.mark.parametrize("case", LOADED)
def test_a_recovered_store_holds_what_the_engine_then_reads(case: str, engine: str, golden_copy: Unpacked) -> None:
    """5.3.3 reads the same messages in all of these (verified in tests/interop)."""
    store = golden_copy(case)
    layout = layout_of(store, case)
    planned = plan(layout, release=RELEASES[engine], exactly=True).to_dict()
    done = recover(layout_of(store, case), release=RELEASES[engine], exactly=True).to_dict()
    for name in ("actions", "applied", "backup"):
        planned.pop(name)
        done.pop(name)
    assert planned == done

    layout = layout_of(store, case)
    expected = [
        (r["cqTopic"], r["cqQueueId"], r["cqOffset"], r["cqPhysicalOffset"], r["cqSize"], r["cqTagsCode"])
        for r in goldens.messages(case)
    ]
    assert entries_of(layout) == sorted(expected)
    for query in goldens.queries(case):
        assert key_hits(layout, query["topic"], query["key"]) == query["physicalOffsets"], query
    assert plan(layout, release=RELEASES[engine], exactly=True).actions == []


@by_turns(2)
@pytest.mark.parametrize("case", LOADED)
def test_the_same_files_survive(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    recover(layout_of(store, case), exactly=case == NO_LOG)

    def named(size: int, name: str) -> tuple[int, str]:
        return size, "index/*" if name.startswith("index/") else name

    # config files are the business of the broker's start, not of its recovery
    expected = sorted(named(*f) for f in goldens.files_after(case) if not f[1].startswith("config/"))
    files = [p for p in store.rglob("*") if p.is_file() and "config" not in p.parts]
    assert sorted(named(p.stat().st_size, str(p.relative_to(store))) for p in files) == expected


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@pytest.mark.parametrize("case", CLEAN)
def test_a_healthy_store_is_not_touched(case: str, engine: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = tree(store.parent)
    report = recover(layout_of(store, case), release=RELEASES[engine])
    assert report.clean
    assert not report.applied
    assert tree(store.parent) == before


@by_turns(2)
@pytest.mark.parametrize("case", LOADED)
def test_nothing_that_goes_is_lost(case: str, golden_copy: Unpacked) -> None:
    """The original store can be reassembled from the recovered store and the backup."""
    store = golden_copy(case)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    report = recover(layout_of(store, case), exactly=case == NO_LOG)
    assert report.backup is not None
    backup = Path(report.backup)
    kept = {p.relative_to(backup / "before"): p.read_bytes() for p in (backup / "before").rglob("*") if p.is_file()}
    zeroed = {
        (store / a["path"], a["start"]): kept[Path(a["kept"]).relative_to("before")]
        for a in _manifest(backup)["actions"]
        if a["do"] == "zero"
    }
    for path, data in before.items():
        now = kept.get(path.relative_to(store))
        if now is None:
            now = path.read_bytes()
            for (name, start), piece in zeroed.items():
                if name == path:
                    now = now[:start] + piece + now[start + len(piece) :]
        assert now == data, path


def test_queues_write_what_they_have_gathered(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end, at a limit per queue, at a limit for all queues: the same files."""
    case = "consumequeue-deleted-no-checkpoint"
    contents, calls = [], []
    real = files.File.write_early
    monkeypatch.setattr(reading, "BATCH_RECORDS", 20)
    for of_one, of_all in ((1 << 20, 1 << 20), (100, 1 << 20), (1 << 20, 1000)):
        monkeypatch.setattr(queue_builder, "_BUFFER", of_one)
        monkeypatch.setattr(dispatcher, "_MOST_HELD", of_all)
        sizes: list[int] = []

        def write_early(file: files.File, at: int, data: memoryview, sizes: list[int] = sizes) -> None:
            sizes.append(len(data))
            real(file, at, data)

        monkeypatch.setattr(files.File, "write_early", write_early)
        store = golden_copy(case)
        recover(layout_of(store, case))
        contents.append(content(store / "consumequeue"))
        calls.append(len(sizes))
    assert contents[0] == contents[1] == contents[2]
    assert 0 < calls[0] < min(calls[1:])


def test_a_refused_store_is_left_alone(golden_copy: Unpacked) -> None:
    store = golden_copy("short-last-file")
    before = tree(store.parent)
    report = recover(layout_of(store, "short-last-file"), exactly=True)
    assert not report.loadOk
    assert "bytes long, not 49152" in report.refusals[0]
    assert tree(store.parent) == before


@pytest.mark.parametrize("case", ["crash", "torn-last-record", "consumequeue-deleted-no-checkpoint"])
def test_sizes_are_found_without_a_conf(case: str, golden_copy: Unpacked) -> None:
    with_conf, without = golden_copy(case), golden_copy(case)
    recover(layout_of(with_conf, case))
    recover(StoreLayout(str(without)))
    if case == "consumequeue-deleted-no-checkpoint":
        # nothing left tells the size of queue files: the entries agree, in files of the default size
        assert entries_of(StoreLayout(str(without))) == entries_of(StoreLayout(str(with_conf)))
    else:
        assert content(without) == content(with_conf)


def test_losses_are_counted(golden: Unpacked) -> None:
    report = plan(layout_of(golden("body-bit-flip-last-file"), "body-bit-flip-last-file"))
    assert report.stop is not None
    assert (report.stop.ending, report.stop.at) == ("damaged", 19325)
    assert sum(loss.messages for loss in report.lost) == 26
    assert report.bytesCut == 9084


def _manifest(backup: Path) -> dict[str, list[dict[str, object]]]:
    import json

    manifest: dict[str, list[dict[str, object]]] = json.loads((backup / "manifest.json").read_text())
    return manifest
