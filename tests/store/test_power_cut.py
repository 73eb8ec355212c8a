"""A power cut at any step of a change leaves the old store, or one that says what to do."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import recover
from rmqtool.store.repair.expiry import clean
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.crashes import Killed, Medium
from tests.store.helpers import conf_of, content

pytestmark = pytest.mark.slow

STEPS = 24  # at which the power is cut, of each command


def lose(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "TopicA")
    shutil.rmtree(store / "index")


def nothing(_store: Path) -> None:
    """Do nothing: the store already needs the command."""


COMMANDS: dict[str, tuple[str, Callable[[Path], None], Callable[[StoreLayout], object]]] = {
    "recover": ("torn-last-record", nothing, recover),
    "rebuild": ("clean", lose, lambda layout: rebuild(layout, ("consumequeue", "index", "checkpoint"))),
    "clean": ("clean", nothing, lambda layout: clean(layout, reserved_hours=0)),
    "delete": ("clean", nothing, lambda layout: clean(layout, reserved_hours=0, delete=True)),
}


@by_turns(13)
@pytest.mark.parametrize("command", COMMANDS)
def test_cut_anywhere(
    command: str, golden: Unpacked, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, damage, run = COMMANDS[command]
    conf = conf_of(case)
    golden(case)
    medium = Medium(monkeypatch)
    whole = golden_copy(case)
    damage(whole)
    (whole / "lock").touch()
    before = content(whole)
    medium.begin_on(whole.parent)
    run(StoreLayout(str(whole), conf))
    steps, expected = medium.count, content(whole)
    for number in range(STEPS + 1):
        stop = 1 + number * steps // STEPS  # the last one is behind the end
        store = golden_copy(case)
        damage(store)
        (store / "lock").touch()
        medium.begin_on(store.parent, stop)
        with suppress(Killed):
            run(StoreLayout(str(store), conf))
        medium.begin()
        again, back = tmp_path / f"again-{stop}", tmp_path / f"back-{stop}"
        medium.left(again)
        medium.left(back)
        if command != "delete" and content(again / "store") != before:
            undo(str(back / "store"))
            kept = {name: digest for name, digest in content(back / "store").items() if name != ".rmqtool-pending"}
            assert kept == before, f"cut at step {stop} of {steps}"
        run(StoreLayout(str(again / "store"), conf))
        assert content(again / "store") == expected, f"cut at step {stop} of {steps}"
        shutil.rmtree(again)
        shutil.rmtree(back)
