"""Rebuilding and cutting batch queues of a real 5.3.3 store."""

import shutil
from pathlib import Path

import pytest

from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.queues.batch import batch_queues_of
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.store.findings import found_in

CASE, TOPIC = "broker-5.3.3", "BatchQueue"
CUT = 86231  # the first single message of queue 0; the batches are before it


def batch_files(store: Path) -> dict[str, bytes]:
    folder = store / BATCH_QUEUES
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("0*") if path.is_file()}


def places(store: Path) -> list[tuple[int, int, int]]:
    """(queue id, physical offset, messages) of each unit."""
    result = batch_queues_of(StoreLayout(str(store)))
    return [(q.queue_id, entry.physical_offset, entry.batch_num) for q in result for entry in q.entries()]


def test_a_healthy_store_is_left_as_it_is(tmp_path: Path) -> None:
    store = goldens.unpack(CASE, tmp_path)
    before = batch_files(store)
    result = rmqtool("recover", store, "--yes")
    assert (result.code, "Nothing to do" in result.out) == (0, True)
    assert batch_files(store) == before
    assert not (tmp_path / "store.rmqtool").exists()


@by_turns(2)
@pytest.mark.parametrize("damage", ["all gone", "one gone", "zeros", "noise"])
def test_rebuild_makes_them_as_the_broker_did(damage: str, tmp_path: Path) -> None:
    store = goldens.unpack(CASE, tmp_path)
    whole = batch_files(store)
    queue = store / BATCH_QUEUES / TOPIC / "0"
    if damage == "all gone":
        shutil.rmtree(store / BATCH_QUEUES)
    elif damage == "one gone":
        shutil.rmtree(queue)
    else:
        file = queue / f"{0:020d}"
        file.write_bytes((b"\0" if damage == "zeros" else b"\x5a") * file.stat().st_size)
    assert [finding for finding in found_in(store) if finding.code.startswith("bcq")]
    assert rmqtool("rebuild", store, "consumequeue", "--yes").code == 0
    made = batch_files(store)
    if damage == "all gone":  # nothing says how long the files were
        made, whole = ({name: data.rstrip(b"\0") for name, data in files.items()} for files in (made, whole))
    assert made == whole
    assert not [finding for finding in found_in(store) if finding.severity != "info"]


def test_truncate_cuts_them_and_undo_brings_them_back(tmp_path: Path) -> None:
    store = goldens.unpack(CASE, tmp_path)
    whole, before = batch_files(store), places(store)
    assert rmqtool("truncate", store, str(CUT), "--yes").code == 0
    kept = [place for place in before if place[1] < CUT]
    assert 4 < len(kept) < len(before)
    assert places(store) == kept
    assert not [finding for finding in found_in(store) if finding.code.startswith("bcq")]
    assert rmqtool("undo", store, "--yes").code == 0
    assert batch_files(store) == whole


def test_salvage_makes_them_as_the_broker_did(tmp_path: Path) -> None:
    store = goldens.unpack(CASE, tmp_path)
    conf = tmp_path / "broker.conf"  # nothing in a store says how long the files of its batch queues are
    conf.write_text("".join(f"{name}={value}\n" for name, value in goldens.about(CASE)["config"].items()))
    assert rmqtool("salvage", store, tmp_path / "new", "--broker-conf", conf).code == 0
    made, whole = batch_files(tmp_path / "new"), batch_files(store)
    assert {name: data.rstrip(b"\0") for name, data in made.items()} == {
        name: data.rstrip(b"\0") for name, data in whole.items()
    }
