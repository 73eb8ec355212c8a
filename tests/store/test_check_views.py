"""The findings of `check` do not depend on how many records it reads at once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.store.check.log import log as check_log
from rmqtool.store.layout.paths import StoreLayout
from tests.store.findings import check_store

CONF = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "400",
    "maxIndexNum": "64",
    "maxHashSlotNum": "16",
}
SIZES = (1, 2, 3, 7, 1 << 15)


def findings(store: Path) -> list[tuple[object, ...]]:
    return sorted(
        (f.code, f.severity, f.file or "", f.offset or 0, f.count or 0, str(f.actual))
        for f in check_store(StoreLayout(str(store)))
    )


def overlap(store: Path) -> None:
    """Make the first log file as long as two, with the content of the second."""
    first, second = (store / "commitlog" / f"{base:020d}" for base in (0, 4096))
    first.write_bytes(first.read_bytes() + second.read_bytes())


def nothing(_store: Path) -> None:
    """Leave the store unchanged."""


@pytest.mark.parametrize("damage", [overlap, nothing])
def test_findings_are_the_same_by_every_size_of_a_batch(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with Store.create(store, broker_conf=CONF) as made:
        for n in range(60):
            made.append(NewMessage(topic="T", body=bytes(150 + n), keys=f"key-{n}"))
    damage(store)
    told = []
    for size in SIZES:
        monkeypatch.setattr(check_log, "BATCH_RECORDS", size)
        told.append(findings(store))
    assert all(each == told[0] for each in told), told
    assert bool(told[0]) == (damage is overlap)
