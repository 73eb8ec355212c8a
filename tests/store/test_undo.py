"""Undo restores a recovered store byte for byte, even if killed anywhere."""

import os

import pytest

from rmqtool.errors import Refused
from rmqtool.store.changes.undo import plan_undo, undo
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import recover
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.helpers import NO_LOG, conf_of, tree
from tests.store.test_change import Killed, Seam

LOADED = [c for c in goldens.cases() if goldens.has(c, "recovered.json") and goldens.has(c, "messages.ndjson.gz")]


@by_turns(3)
@pytest.mark.parametrize("case", LOADED)
def test_a_recovered_store_is_put_back(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    directories = {path for path in store.rglob("*") if path.is_dir()}
    before = tree(store)
    recover(StoreLayout(str(store), conf_of(case)), exactly=case == NO_LOG)
    recovered = tree(store)
    assert recovered != before
    planned = plan_undo(str(store))
    assert planned.conflicts == []
    assert tree(store) == recovered
    done = undo(str(store))
    assert done.applied
    assert done.actions == planned.actions
    assert tree(store) == before
    assert {path for path in store.rglob("*") if path.is_dir()} == directories
    assert undo(str(store)).backup is None
    # and all of it can be done again
    recover(StoreLayout(str(store), conf_of(case)), exactly=case == NO_LOG)
    assert {n: d for n, (_t, d) in tree(store).items() if not n.startswith("index/")} == {
        n: d for n, (_t, d) in recovered.items() if not n.startswith("index/")
    }


@by_turns(3)
def test_killed_anywhere_and_run_again(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    case = "torn-last-record"
    seam = Seam(monkeypatch)
    whole = golden_copy(case)
    before = tree(whole)
    recover(StoreLayout(str(whole), conf_of(case)))
    seam.count = 0
    undo(str(whole))
    steps = seam.count
    assert steps > 10
    for stop in range(1, steps + 1):
        store = golden_copy(case)
        recover(StoreLayout(str(store), conf_of(case)))
        seam.count, seam.stop_at = 0, stop
        with pytest.raises(Killed):
            undo(str(store))
        seam.stop_at, seam.dead = -1, False
        undo(str(store))
        assert tree(store) == before, f"killed at step {stop} of {steps}"


def test_a_store_that_has_changed_since_is_left_alone(golden_copy: Unpacked) -> None:
    store = golden_copy("torn-last-record")
    recover(StoreLayout(str(store)))
    (store / "checkpoint").write_bytes(bytes(4096))
    now = tree(store)
    assert plan_undo(str(store)).conflicts == [str(store / "checkpoint")]
    with pytest.raises(Refused, match="has changed since"):
        undo(str(store))
    assert tree(store) == now
    assert undo(str(store), force=True).applied


def test_an_interrupted_undo_stops_other_writers(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_copy("torn-last-record")
    recover(StoreLayout(str(store)))
    seam = Seam(monkeypatch)
    seam.stop_at = 8
    with pytest.raises(Killed):
        undo(str(store))
    seam.stop_at, seam.dead = -1, False
    with pytest.raises(Refused, match="an undo was interrupted here"):
        recover(StoreLayout(str(store)))
    undo(str(store))
    assert os.path.exists(store / "abort")
