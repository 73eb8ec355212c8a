"""Salvage killed at every step of its writing: the new store is whole or not there, and the same run finishes."""

from pathlib import Path

import pytest

from rmqtool import Message, Store
from rmqtool.store.broker_conf import BrokerConf
from rmqtool.store.layout import StoreLayout
from rmqtool.store.salvage import Salvage
from tests.store.crashes import Killed, Seam
from tests.store.helpers import content

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
            [Message(topic="ab"[n % 2], queue_id=0, body=b"x" * n, keys=f"k{n}", born_timestamp=n) for n in range(30)]
        )
    with open(store / "commitlog" / f"{2048:020d}", "r+b") as file:
        file.seek(500)
        file.write(b"\xff" * 100)
    seam = Seam(monkeypatch)
    expected = salvage(store, tmp_path / "whole")
    steps, there = seam.count, 0
    assert steps > 50
    assert "lost+found/manifest.json" in expected
    for stop in range(1, steps + 1):
        new = tmp_path / str(stop)
        seam.begin(stop)
        with pytest.raises(Killed):
            salvage(store, new)
        seam.begin()
        there += new.exists()
        found = content(new) if new.exists() else salvage(store, new)
        assert found == expected, f"killed at step {stop} of {steps}"
        assert not Path(f"{new}.salvaging").exists()
    assert 0 < there < 5  # its name is the last thing that it gets
