"""Which store a run belongs to and may change: copies, moves, shared backup directories, hostile manifests."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import CorruptFile, Refused, RmqError
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.undo import plan_undo, undo
from rmqtool.store.changes.writing import pending_runs
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.store.dying import killed, run_folder
from tests.store.helpers import content, tree
from tests.store.test_change_between import MARKER, bodies, conf, fill, layout_of, torn

__all__ = ["conf", "torn"]


def twin(store: Path, name: str) -> Path:
    return shutil.copytree(store, store.parent / name)


def test_a_shared_place_for_backups(torn: Path, tmp_path: Path) -> None:
    other, kept = twin(torn, "other"), str(tmp_path / "kept")
    before = tree(other)
    recover(layout_of(torn), backup=kept)
    recovered = tree(torn)
    recover(layout_of(other), backup=kept)
    assert undo(str(torn), kept).applied
    assert tree(torn) != recovered
    assert undo(str(torn), kept).backup is None
    assert undo(str(other), kept).applied
    assert {**tree(other), "lock": None} == {**before, "lock": None}


def test_what_another_store_prepares_is_not_swept(torn: Path, conf: Path, tmp_path: Path) -> None:
    other, kept = twin(torn, "other"), tmp_path / "kept"
    killed(-12, "recover", other, "--yes", "--backup", kept, "--broker-conf", conf)
    folder = run_folder(kept)
    assert not (folder / "manifest.json").exists()
    (kept / "20200101T000000Z-somebodys").mkdir()
    recover(layout_of(torn), backup=str(kept))
    assert folder.is_dir()
    recover(layout_of(other), backup=str(kept))
    # one of the same second may have got its name
    assert not folder.is_dir() or (folder / "manifest.json").exists()
    assert (kept / "20200101T000000Z-somebodys").is_dir()


def test_a_copy_with_its_copied_folder_acts_on_itself(torn: Path, conf: Path) -> None:
    before = tree(torn)
    killed(4, "recover", torn, "--yes", "--broker-conf", conf)
    half = tree(torn)
    copy = twin(torn, "copy")
    shutil.copytree(f"{torn}.rmqtool", f"{copy}.rmqtool")
    assert undo(str(copy)).applied
    assert {**tree(copy), "lock": None} == {**before, "lock": None}
    assert tree(torn) == half
    assert recover(layout_of(torn)).store == str(torn)
    assert bodies(torn, "old") == 39
    assert not (torn / "abort").exists()
    assert (copy / "abort").exists()


def test_a_copy_without_its_folder_leaves_the_original_s_alone(torn: Path, conf: Path) -> None:
    killed(4, "recover", torn, "--yes", "--broker-conf", conf)
    copy, home = twin(torn, "copy"), tree(Path(f"{torn}.rmqtool"))
    with pytest.raises(Refused, match="seems to be a copy"):
        recover(layout_of(copy))
    assert tree(Path(f"{torn}.rmqtool")) == home
    assert rmqtool("undo", copy, "--forget", "--yes").code == 0
    recover(layout_of(copy))
    assert tree(Path(f"{torn}.rmqtool")) == home
    recover(layout_of(torn))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_moved_store_goes_on(elsewhere: bool, torn: Path, conf: Path, tmp_path: Path) -> None:
    kept = ["--backup", tmp_path / "kept"] if elsewhere else []
    killed(4, "recover", torn, "--yes", *kept, "--broker-conf", conf)
    moved = tmp_path / "new place" / "moved 'ü"
    moved.parent.mkdir()
    torn.rename(moved)
    if not elsewhere:
        Path(f"{torn}.rmqtool").rename(f"{moved}.rmqtool")
    assert recover(layout_of(moved)).store == str(moved)
    assert pending_runs(Places(str(moved))) == []
    assert undo(str(moved), str(tmp_path / "kept") if elsewhere else None).applied
    assert (moved / "abort").exists()


def half_done(torn: Path, conf: Path) -> tuple[Path, dict[str, Any]]:
    killed(4, "recover", torn, "--yes", "--broker-conf", conf)
    manifest = run_folder(Path(f"{torn}.rmqtool")) / "manifest.json"
    return manifest, json.loads(manifest.read_text())


def every(manifest: dict[str, Any], name: str, value: Any) -> None:
    for action in manifest["actions"]:
        if name in action or name == "extra":
            action[name] = value


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "absolute": (lambda m: every(m, "path", "/etc/victim"), "path"),
    "up": (lambda m: every(m, "path", "../victim"), "path"),
    "up within": (lambda m: every(m, "path", "commitlog/../../victim"), "path"),
    "dot": (lambda m: every(m, "path", "./abort"), "path"),
    "the lock": (lambda m: every(m, "path", "lock"), "path"),
    "the mark": (lambda m: every(m, "path", MARKER), "path"),
    "other log": (lambda m: every(m, "path", [7, "victim"]), "path"),
    "named": (lambda m: every(m, "path", {"named": "/etc/victim"}), "path"),
    "by a link": (lambda m: every(m, "path", "out/victim"), "path"),
    "no text": (lambda m: every(m, "path", 5), "path"),
    "long": (lambda m: every(m, "path", "x" * 300), "path"),
    "nul": (lambda m: every(m, "path", "a\0b"), "path"),
    "staged elsewhere": (lambda m: every(m, "staged", "../../victim"), "staged"),
    "staged absolute": (lambda m: every(m, "staged", "/etc/passwd"), "staged"),
    "staged from what is kept": (lambda m: every(m, "staged", "before/000000.bytes"), "staged"),
    "kept elsewhere": (lambda m: every(m, "kept", "../victim"), "kept"),
    "made elsewhere": (lambda m: every(m, "made", ["config"]), "made"),
    "made no list": (lambda m: every(m, "made", "config"), "made"),
    "unknown field": (lambda m: every(m, "extra", 1), "extra"),
    "unknown action": (lambda m: every(m, "do", "chmod"), "do"),
    "huge": (lambda m: every(m, "stop", 10**30), "stop"),
    "negative": (lambda m: every(m, "start", -1), "start"),
    "true": (lambda m: every(m, "start", True), "start"),
    "backwards": (lambda m: every(m, "stop", 1), "start, stop"),
    "twice": (lambda m: m["actions"].append(m["actions"][0]), "twice"),
    "state": (lambda m: m.update(state="xx"), "state"),
    "format": (lambda m: m.update(format=3), "format"),
    "run": (lambda m: m.update(run=7), "run"),
    "store": (lambda m: m.update(store="/x"), "store"),
    "top": (lambda m: m.update(more=1), "more"),
    "log": (lambda m: m["log"].update(files=[["../x", 1]]), "log"),
    "actions": (lambda m: m.update(actions={}), "actions"),
}


@pytest.fixture(scope="module")
def half_done_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an interrupted run, to be copied."""
    folder = tmp_path_factory.mktemp("half")
    (conf := folder / "conf").write_text("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n")
    store = torn.__wrapped__(folder)  # type: ignore[attr-defined]
    killed(4, "recover", store, "--yes", "--broker-conf", conf)
    return folder


@by_turns(3)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_manifest_that_lies(name: str, half_done_store: Path, tmp_path: Path) -> None:
    shutil.copytree(half_done_store, tmp_path / "here", symlinks=True)
    store, outside = tmp_path / "here" / "store", tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    (store / "out").symlink_to(outside)
    change, field = HOSTILE[name]
    manifest = run_folder(Path(f"{store}.rmqtool")) / "manifest.json"
    value = json.loads(manifest.read_text())
    change(value)
    manifest.write_text(json.dumps(value))
    everything = tree(tmp_path)
    for act in (recover, undo, plan_undo):
        kind, reason = (Refused, "lies outside") if name == "named" else (CorruptFile, "not a manifest of this store")
        with pytest.raises(kind, match=f"manifest.json: .*{reason}.*{'' if name == 'named' else field}"):
            act(layout_of(store) if act is recover else str(store))  # type: ignore[operator]
    (told,) = pending_runs(Places(str(store)))
    assert told.problem is not None
    assert str(manifest) in told.problem
    planned = plan(layout_of(store))
    assert any("manifest.json" in text for text in planned.warnings)
    assert rmqtool("check", store).code in (1, 3)
    assert tree(tmp_path) == everything
    assert rmqtool("undo", store, "--forget", "--yes").code == 0
    assert recover(layout_of(store)).applied
    assert (outside / "victim").read_text() == "precious"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\0", b"[]", b"[" * 100_000, b'{"format": 2}', b"null"])
def test_what_is_no_manifest(data: bytes, half_done_store: Path, tmp_path: Path) -> None:
    shutil.copytree(half_done_store, tmp_path / "here")
    store = tmp_path / "here" / "store"
    (run_folder(Path(f"{store}.rmqtool")) / "manifest.json").write_bytes(data)
    before = tree(tmp_path)
    with pytest.raises(RmqError):
        recover(layout_of(store))
    assert pending_runs(Places(str(store)))[0].problem
    assert plan(layout_of(store)).warnings
    assert tree(tmp_path) == before


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"[" * 100_000, b'{"format":1,"run":"x","folder":"../x"}', b"\xff"])
def test_what_is_no_marker(data: bytes, torn: Path) -> None:
    (torn / MARKER).write_bytes(data)
    before = tree(torn)
    with pytest.raises(CorruptFile, match=MARKER):
        recover(layout_of(torn))
    assert MARKER in (pending_runs(Places(str(torn)))[0].problem or "")
    assert {**tree(torn), "lock": None} == {**before, "lock": None}
    assert rmqtool("undo", torn, "--forget", "--yes").code == 0
    assert recover(layout_of(torn)).applied


@pytest.mark.parametrize("folder", ["after", "before"])
def test_a_run_s_own_folder_leads_nowhere_else(folder: str, half_done_store: Path, tmp_path: Path) -> None:
    shutil.copytree(half_done_store, tmp_path / "here")
    store, outside = tmp_path / "here" / "store", tmp_path / "outside"
    own = run_folder(Path(f"{store}.rmqtool")) / folder
    own.rename(outside)
    own.symlink_to(outside)
    before = tree(outside), tree(store)
    with pytest.raises(RmqError, match="symbolic link leads out"):
        recover(layout_of(store))
    assert (tree(outside), tree(store)) == before


def as_format_1(folder: Path, store: Path) -> None:
    """The manifest in the format of earlier versions."""
    value = json.loads((folder / "manifest.json").read_text())
    known = {"do", "path", "staged", "bytes", "mtime_ns", "kept", "made", "start", "stop"}
    actions = [{name: one[name] for name in one if name in known} for one in value["actions"]]
    for action in actions:
        action["path"] = f"{store}/{action['path']}"
        if "made" in action:
            action["made"] = [f"{store}/{path}" for path in action["made"]]
    old = {"format": 1, "state": value["state"], "store": str(store), "actions": actions}
    (folder / "manifest.json").write_text(json.dumps(old))
    (folder / "run.json").unlink()
    (store / MARKER).unlink(missing_ok=True)


@by_turns(3)
@pytest.mark.parametrize("act", ["recover", "undo", "undo-done", "between", "outside"])
def test_runs_of_earlier_versions(act: str, torn: Path, conf: Path) -> None:
    before = tree(torn)
    if act == "undo-done":
        recover(layout_of(torn))
    else:
        killed(4, "recover", torn, "--yes", "--broker-conf", conf)
    folder = run_folder(Path(f"{torn}.rmqtool"))
    as_format_1(folder, torn)
    if act == "outside":
        text = (folder / "manifest.json").read_text().replace(f"{torn}/abort", f"{torn.parent}/victim")
        (folder / "manifest.json").write_text(text)
        with pytest.raises(Refused, match="lies outside the store"):
            recover(layout_of(torn))
    elif act == "between":
        path = torn / "commitlog" / f"{0:020d}"
        os.truncate(path, 60_000)
        with pytest.raises(Refused, match="cannot be finished"):
            recover(layout_of(torn))
        assert path.stat().st_size == 60_000
    elif act == "recover":
        recover(layout_of(torn))
        assert pending_runs(Places(str(torn))) == []
        assert not (torn / "abort").exists()
        assert undo(str(torn)).applied
    else:
        assert undo(str(torn)).applied
    if act.startswith("undo") or act == "recover":
        assert {**tree(torn), "lock": None} == {**before, "lock": None}


def test_a_store_whose_parts_are_links_elsewhere(torn: Path, tmp_path: Path) -> None:
    other = tmp_path / "disk"
    other.mkdir()
    for name in ("commitlog", "consumequeue", "index"):
        (torn / name).rename(other / name)
        (torn / name).symlink_to(other / name)
    before = tree(other)
    assert recover(StoreLayout(str(torn), layout_of(torn).conf)).applied
    assert undo(str(torn)).applied
    assert tree(other) == before


def test_a_lost_queue_of_a_store_whose_queues_are_a_link_elsewhere(torn: Path, tmp_path: Path) -> None:
    """Its directory must be created there, and removed again by undo."""
    recover(StoreLayout(str(torn), layout_of(torn).conf))
    other = tmp_path / "disk"
    other.mkdir()
    (torn / "consumequeue").rename(other / "consumequeue")
    (torn / "consumequeue").symlink_to(other / "consumequeue")
    before = content(other)
    topic = sorted((other / "consumequeue").iterdir())[0]
    shutil.rmtree(topic)
    assert rebuild(StoreLayout(str(torn), layout_of(torn).conf), ("consumequeue",)).applied
    assert content(other) == before
    assert undo(str(torn)).applied
    assert not topic.exists()


@pytest.mark.parametrize("through", ["done", "undone"])
def test_a_copy_that_was_made_in_the_middle_is_not_taken_for_whole(through: str, torn: Path, conf: Path) -> None:
    """The original was continued since, so its run is done; this copy of the store is not."""
    args = ["recover", torn, "--yes", "--broker-conf", conf]
    if through == "done":
        recover(layout_of(torn))
        args[:2] = ["rebuild", torn, "consumequeue"]
        for path in (torn / "consumequeue").glob("*/*/*"):
            path.write_bytes(b"\1" * 2000)
    before = tree(torn)
    killed(20 if through == "done" else 6, *args)
    copy = twin(torn, "copy")
    half = tree(copy)
    if through == "done":
        assert rmqtool(*args).code == 0
    else:
        assert rmqtool("undo", torn, "--yes", "--broker-conf", conf).code == 0
    assert half not in (before, tree(torn))
    shutil.rmtree(torn)
    copy.rename(torn)
    for more in (["recover", torn, "--yes"], ["undo", torn, "--yes"], ["clean", torn, "--hours", "0", "--yes"]):
        result = rmqtool(*more, "--broker-conf", conf)
        assert result.code == 4, result
        assert "half changed when this copy of it was made" in result.err
        assert f"rmqtool undo {torn} --forget" in result.err
    with pytest.raises(Refused, match="a change of it was interrupted"):
        fill(torn, "new", 1)
    assert rmqtool("recover", torn, "--dry-run", "--broker-conf", conf).code == 1
    assert tree(torn) == half
    assert rmqtool("undo", torn, "--forget", "--yes", "--broker-conf", conf).code == 0
    assert rmqtool(*args).code == 0
    assert rmqtool("recover", torn, "--dry-run", "--broker-conf", conf).code == 0
    assert bodies(torn, "old") == 39


@pytest.mark.parametrize("part", ["commitlog", "consumequeue/t0", "index/kept", "config", "link", "log-elsewhere/x"])
def test_nothing_is_kept_among_a_broker_s_own_files(part: str, torn: Path, conf: Path, tmp_path: Path) -> None:
    """A broker refuses a foreign directory in its commit log, and takes one in its queues for a topic."""
    (torn / "link").symlink_to(torn / "commitlog")
    if part.startswith("log"):
        (torn / "commitlog").rename(tmp_path / "log-elsewhere")
        (torn / "commitlog").symlink_to(tmp_path / "log-elsewhere")
    home = (tmp_path if part.startswith("log") else torn) / part
    before = tree(torn)
    for arguments in (
        ["recover", torn, "--yes"],
        ["clean", torn, "--hours", "0", "--yes"],
        ["group", "reset", torn, "g", "--topic", "t0", "--to-earliest", "--yes"],
    ):
        result = rmqtool(*arguments, "--backup", home, "--broker-conf", conf)
        assert result.code == 4, result
        if arguments[0] != "group":  # it is refused before: the store was not closed
            assert f"{home}: lies in {torn}" in result.err
    assert tree(torn) == before
    assert rmqtool("recover", torn, "--yes", "--backup", torn / "kept", "--broker-conf", conf).code == 0
    assert rmqtool("recover", torn, "--dry-run", "--broker-conf", conf).code == 0
