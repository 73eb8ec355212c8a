"""Bringing queues and index up to date with an intact log."""

import shutil
from pathlib import Path

import pytest

from rmqtool.errors import Refused
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import dispatch
from tests.conftest import Unpacked
from tests.store.crashes import Killed, Seam
from tests.store.helpers import conf_of, content, tree
from tests.store.test_truncate import layout_of, made


def test_queues_and_index_are_built(tmp_path: Path) -> None:
    store = made(tmp_path / "s", 60)
    whole = content(store)
    assert dispatch(layout_of(store)).clean
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    report = dispatch(layout_of(store), dry_run=True)
    assert not (store / "consumequeue").exists()
    assert report.messagesRedispatched == 60
    assert dispatch(layout_of(store)).applied
    assert {name: digest for name, digest in content(store).items() if name != "checkpoint"} == {
        name: digest for name, digest in whole.items() if name != "checkpoint"
    }


def test_nothing_is_cut(golden_copy: Unpacked) -> None:
    store = golden_copy("clean-exit-torn-last-record")
    before = tree(store)
    with pytest.raises(Refused, match="zero bytes"):
        dispatch(StoreLayout(str(store), conf_of("clean-exit-torn-last-record")))
    assert tree(store) == before


def test_a_store_that_was_not_closed_is_recovered_first(golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    before = tree(store)
    with pytest.raises(Refused, match="not stopped cleanly"):
        dispatch(StoreLayout(str(store), conf_of("crash")))
    assert tree(store) == before


def test_a_dry_run_says_that_a_run_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = made(tmp_path / "s", 60), made(tmp_path / "o", 60)
    for path in (store, other):
        shutil.rmtree(path / "consumequeue")
    seam = Seam(monkeypatch)
    dispatch(layout_of(other))
    seam.begin(seam.count - 6)
    with pytest.raises(Killed):
        dispatch(layout_of(store))
    seam.begin()
    before = tree(store)
    assert dispatch(layout_of(store), dry_run=True).actions[0].startswith("finish the interrupted run")
    assert tree(store) == before
