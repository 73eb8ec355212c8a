"""Recovery of stores whose files are links, directories or pipes, or have names between those of others.

What can be mended is, and is restored by ``undo``; everything else is refused before anything is changed.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.errors import Refused
from rmqtool.rules.releases import RELEASES
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from tests import damage
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import conf_of, tree
from tests.store.walked import Walk, walk_from
from tests.whole import ENGINES, faults_of

CONF = conf_of("crash")


def layout_of(store: Path, conf: BrokerConf = CONF) -> StoreLayout:
    return StoreLayout(str(store), conf)


def queue_of(store: Path) -> Path:
    """A queue with several files."""
    return max((path.parent for path in damage.queue_files(store)), key=lambda path: len(list(path.iterdir())))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("moved", [1, 7, 20])
def test_a_queue_file_with_a_name_between_others(moved: int, engine: str, golden_copy: Unpacked) -> None:
    """A broker does not find the entries at its beginning."""
    store = golden_copy("crash")
    recover(layout_of(store), release=RELEASES[engine])
    file = sorted(queue_of(store).iterdir())[-1]
    misnamed = file.rename(file.with_name(f"{int(file.name) + moved:020d}"))
    before = tree(store)
    assert "file-misnamed" in {finding.code for finding in check_store(layout_of(store))}
    recover(layout_of(store), release=RELEASES[engine])
    assert (file.exists(), misnamed.exists()) == (True, False)
    assert faults_of(store, CONF, engine) == []
    undo(str(store))
    assert tree(store) == before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_copy_of_a_queue_file_with_a_name_after_the_others(engine: str, golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    recover(layout_of(store), release=RELEASES[engine])
    file = sorted(queue_of(store).iterdir())[-1]
    copy = Path(shutil.copy(file, file.with_name(f"{int(file.name) + file.stat().st_size + 7:020d}")))
    recover(layout_of(store), release=RELEASES[engine])
    assert not copy.exists()
    assert faults_of(store, CONF, engine) == []


def test_a_checkpoint_that_is_too_long(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    path = store / "checkpoint"
    whole = path.read_bytes()
    path.write_bytes(whole * 2)
    recover(layout_of(store, conf_of("clean")))
    assert path.stat().st_size == len(whole)
    assert faults_of(store, conf_of("clean"), "4.9") == []


def lead_nowhere(queue: Path) -> None:
    shutil.rmtree(queue)
    queue.symlink_to("../nowhere")


def put_a_directory_there(queue: Path) -> None:
    file = min(queue.iterdir())
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lead_nowhere, "is a link to ../nowhere, which is not there: move it away; nothing was changed"),
        (put_a_directory_there, "is neither a file nor a link: move it away; nothing was changed"),
    ],
)
def test_what_is_in_the_way_is_named_before_anything_changes(
    spoil: Callable[[Path], None], why: str, golden_copy: Unpacked
) -> None:
    store = golden_copy("crash")
    recover(layout_of(store), release=RELEASES["5.3"])
    spoil(queue_of(store))
    before = tree(store)
    with pytest.raises(Refused, match=why):
        recover(layout_of(store), release=RELEASES["5.3"])
    assert tree(store) == before


def make_a_file(queue: Path) -> None:
    shutil.rmtree(queue)
    queue.write_bytes(b"")


def make_the_topic_a_file(queue: Path) -> None:
    make_a_file(queue.parent)


@pytest.mark.parametrize("spoil", [lead_nowhere, make_a_file, make_the_topic_a_file])
def test_check_advises_to_move_first_what_is_in_the_way(spoil: Callable[[Path], None], golden_copy: Unpacked) -> None:
    store, conf = golden_copy("clean"), conf_of("clean")
    queue = queue_of(store)
    spoil(queue)
    place = queue.parent if spoil is make_the_topic_a_file else queue
    walk = Walk(store, store.parent, conf)
    problems, _advised = walk.check()
    (finding,) = (problem for problem in problems if problem.code == "file-foreign")
    assert (finding.file, [step.does for step in finding.steps]) == (
        str(place.relative_to(store)), [f"move {place} out of the store: a directory belongs there"],
    )  # fmt: skip
    place.unlink()
    assert walk.arrive() == []
    assert faults_of(store, conf, "4.9") == []


def test_a_place_for_backups_that_cannot_be_one(golden_copy: Unpacked) -> None:
    """No run was interrupted, so there is none to give up."""
    store = golden_copy("crash")
    Path(f"{store}.rmqtool").write_bytes(b"")
    before = tree(store)
    with pytest.raises(Refused, match=r"no place for a backup \(see --backup\)$"):
        recover(layout_of(store))
    assert tree(store) == before


def test_a_pipe_among_queue_files_is_moved_by_hand(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    pipe = queue_of(store) / f"{10**6:020d}"
    os.mkfifo(pipe)
    layout = layout_of(store, conf_of("clean"))
    (result,) = (finding for finding in check_store(layout) if finding.code == "file-foreign")
    wanted = f"move {pipe} out of the store"
    assert [step.does.startswith(wanted) for step in result.steps if not step.command] == [True]
    assert not [step for step in result.steps if step.command]
    report = plan(layout, release=RELEASES["5.3"])
    assert any(step.startswith(wanted) for step in report.nextSteps)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_directory_with_the_name_of_an_index_file_is_moved_by_hand(engine: str, golden_copy: Unpacked) -> None:
    store, conf = golden_copy("clean"), conf_of("clean")
    folder = store / "index" / "20201231235959999"
    folder.mkdir()
    (finding,) = check_store(layout_of(store, conf), release=RELEASES[engine])
    wanted = f"move the directory {folder} out of the store"
    assert (finding.code, [step.does.startswith(wanted) for step in finding.steps]) == ("file-foreign", [True])
    report = plan(layout_of(store, conf), release=RELEASES[engine])
    assert not report.loadOk
    assert any(step.startswith(wanted) for step in report.nextSteps)


def test_a_log_file_that_is_a_link_to_another_name(golden_copy: Unpacked, tmp_path: Path) -> None:
    """What is behind the log's end would be zeroed outside of the store, in a file of any name."""
    store = golden_copy("torn-last-record")
    stop = plan(layout_of(store, conf_of("torn-last-record"))).stop
    assert stop is not None
    last = store / stop.file
    elsewhere = Path(shutil.move(last, tmp_path / "elsewhere"))
    last.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with pytest.raises(Refused, match="a symbolic link leads out of the store"):
        recover(layout_of(store, conf_of("torn-last-record")))
    assert elsewhere.read_bytes() == before


def test_a_log_file_twice_as_long_is_cut(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    first, *_ = damage.log_files(store)
    length = first.stat().st_size
    os.truncate(first, 2 * length)
    before = tree(store)
    (result,) = (finding for finding in check_store(layout_of(store, conf_of("clean"))) if finding.code == "file-size")
    assert [step.command for step in result.steps] == [("rmqtool", "rebuild", "STORE", "files")]
    assert rmqtool("rebuild", store, "files", "--yes").code == 0
    assert first.stat().st_size == length
    assert faults_of(store, conf_of("clean"), "4.9") == []
    undo(str(store))
    assert tree(store) == before


def test_an_index_with_tags_stays_one(golden_copy: Unpacked) -> None:
    """Brokers of 5.4 and later index tags; nothing else may show that one has written the store."""
    store, conf = golden_copy("clean"), conf_of("clean")
    shutil.rmtree(store / "index")
    (store / "abort").touch()
    recover(layout_of(store, conf), release=RELEASES["5.5"])
    assert faults_of(store, conf, "5.5") == []
    assert plan(layout_of(store, conf)).clean
    entries = [index.read_bytes() for index in sorted((store / "index").iterdir())]
    shown = rmqtool("rebuild", store, "index", "--yes")
    assert shown.code == 0, shown.err
    assert [index.read_bytes() for index in sorted((store / "index").iterdir())] == entries


def put_a_file_at(place: Path) -> None:
    shutil.rmtree(place)
    place.write_bytes(b"?")


def put_a_directory_at(place: Path) -> None:
    place.unlink(missing_ok=True)
    place.mkdir()


def put_a_pipe_at(place: Path) -> None:
    place.unlink(missing_ok=True)
    os.mkfifo(place)


@pytest.mark.parametrize(
    ("name", "put"),
    [
        ("config", put_a_file_at), ("consumequeue", put_a_file_at), ("index", put_a_file_at),
        ("checkpoint", put_a_directory_at), ("checkpoint", put_a_pipe_at), ("abort", put_a_directory_at),
        ("config/topics.json", put_a_directory_at), ("config/topics.json", put_a_pipe_at),
    ],
)  # fmt: skip
def test_a_file_for_a_directory_and_a_directory_for_a_file(
    name: str, put: Callable[[Path], None], golden_copy: Unpacked
) -> None:
    """Everything says what to move away, and afterwards the advice leads to a clean store."""
    store = golden_copy("broker")
    place = store / name
    put(place)
    wanted = f"move {place} out of the store: a {'directory' if put is put_a_file_at else 'file'} belongs there"
    result = [finding for finding in check_store(StoreLayout(str(store))) if finding.code == "file-foreign"]
    assert [(finding.file, [step.does for step in finding.steps]) for finding in result] == [(name, [wanted])]
    shown = rmqtool("recover", store, "--dry-run", "-o", "json")
    warned = [json.loads(shown.out)["warnings"]] if shown.code < 3 else [[shown.err]]
    assert [wanted in warning for warning in warned[0]].count(True) == 1
    before = tree(store)
    refused = rmqtool("recover", store, "--yes", "--accept-loss")
    assert refused.code > 2
    assert str(place) in refused.err
    assert "move" in refused.err
    assert tree(store) == before
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert walk_from(["recover", "STORE"], store, store.parent, None) == []
    assert not [finding for finding in check_store(StoreLayout(str(store))) if finding.code == "file-foreign"]


def test_a_directory_among_queue_files_is_moved_by_hand(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    file = sorted(queue_of(store).iterdir())[0]
    put_a_directory_at(file)
    wanted = f"move the directory {file} out of the store"
    for args in (["--dry-run"], ["--yes", "--accept-loss"]):
        report = json.loads(rmqtool("recover", store, *args, "-o", "json").out)
        assert not report["loadOk"]
        assert [step.startswith(wanted) for step in report["nextSteps"]] == [True, False]


@pytest.mark.parametrize(("link", "target"), [("Orders/1", "0"), ("Orders/0", "1"), ("Payments", "Orders")])
def test_two_queues_with_one_directory_are_refused(link: str, target: str, golden_copy: Unpacked) -> None:
    """Each was written over the other, by turns."""
    store = golden_copy("broker")
    place = store / "consumequeue" / link
    shutil.rmtree(place)
    place.symlink_to(target)
    before = tree(store)
    outcome = [finding for finding in check_store(StoreLayout(str(store))) if finding.code == "file-foreign"]
    ((step,),) = (finding.steps for finding in outcome)
    assert step.does.startswith(f"move the link {place} out of the store")
    for args in (
        ["recover", store, "--dry-run"],
        ["recover", store, "--yes"],
        ["rebuild", store, "consumequeue", "--yes"],
    ):
        result = rmqtool(*args)
        assert result.code == 4
        assert f"{step.does}" in result.err
    assert tree(store) == before
    place.unlink()
    assert walk_from(["recover", "STORE"], store, store.parent, None) == []
