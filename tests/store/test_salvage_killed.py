"""Salvage killed at every step: the new store is complete or missing, and running it again finishes."""

from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.errors import Refused
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.salvage.carve import Salvage
from tests.amounts import some
from tests.store.crashes import Killed, Seam
from tests.store.helpers import content

pytestmark = pytest.mark.slow

SIZES = {
    "mappedFileSizeCommitLog": "2048",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "7",
    "maxIndexNum": "40",
}


def salvage(store: Path, new: Path) -> dict[str, str]:
    Salvage(StoreLayout(str(store), BrokerConf(SIZES)), str(new)).run()
    return content(new)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # who is killed closes no file
def test_killed_anywhere_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    with Store.create(store, broker_conf=SIZES) as made:
        made.append_many(
            [
                NewMessage(topic="ab"[n % 2], queue_id=0, body=b"x" * n, keys=f"k{n}", born_timestamp=n)
                for n in range(30)
            ]
        )
    with open(store / "commitlog" / f"{2048:020d}", "r+b") as file:
        file.seek(500)
        file.write(b"\xff" * 100)
    seam = Seam(monkeypatch)
    expected = salvage(store, tmp_path / "whole")
    steps, there = seam.count, 0
    assert steps > 50
    assert "lost+found/manifest.json" in expected
    for stop in [*range(1, steps - 6, some(9, 1)), *range(steps - 6, steps + 1)]:
        new = tmp_path / str(stop)
        seam.begin(stop)
        with pytest.raises(Killed):
            salvage(store, new)
        seam.begin()
        there += new.exists()
        state = content(new) if new.exists() else salvage(store, new)
        assert state == expected, f"killed at step {stop} of {steps}"
        assert not Path(f"{new}.salvaging").exists()
    assert 0 < there < 5  # its name is the last thing that it gets


def test_what_lies_where_the_new_store_is_made_is_not_removed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Store.create(store, broker_conf=SIZES) as made:
        made.append(NewMessage(topic="a", body=b"x"))
    folder = tmp_path / "new.salvaging"
    folder.mkdir()
    (folder / "diary").write_text("mine")
    with pytest.raises(Refused, match="no interrupted run has left it"):
        salvage(store, tmp_path / "new")
    assert (folder / "diary").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary").write_text("mine")
    (tmp_path / "link.salvaging").symlink_to(tmp_path / "other")
    with pytest.raises(Refused, match="no interrupted run has left it"):
        salvage(store, tmp_path / "link")
    assert (tmp_path / "other" / "diary").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.salvaging", "new.salvaging", "other", "store"]
