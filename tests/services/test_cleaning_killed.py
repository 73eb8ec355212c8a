"""What a served store removes when it is told to, killed at every step: what is in the log is in its queues."""

import shutil
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.opened import read_store
from rmqtool.services.serving.cleaning import Cleaning
from tests.amounts import by_turns
from tests.services.build import TIME, never
from tests.services.run_samples import errors
from tests.store.crashes import Killed, Seam

CONF = {
    "mappedFileSizeCommitLog": "4096", "mappedFileSizeConsumeQueue": "200", "maxHashSlotNum": "10", "maxIndexNum": "20",
    "fileReservedTime": "0",
}  # fmt: skip


def append(store: Store, topic: str, count: int) -> None:
    for n in range(count):
        assert store.append(NewMessage(topic=topic, body=b"x" * 100, keys=f"{topic}{n}")).ok


def prepare(path: Path) -> None:
    with Store.create(path, broker_conf=CONF, clock=lambda: TIME) as store:
        append(store, "Old", 15)
        append(store, "Orders", 60)
        state = BrokerState(store, never)
        state.set_offset("Old", "G", 0, 15)
        state.persist()


def serve(path: Path) -> list[tuple[str, int]]:
    """Clean, and store more; returns the queues that were removed."""
    with Store(path, write=True, broker_conf=CONF, sync_flush=True, mend=True, clock=lambda: TIME + 1) as store:
        append(store, "Orders", 5)
        state = BrokerState(store, lambda _text: None)
        cleaning = Cleaning(store, state, read_store(store), lambda _topic: False, lambda *_place: None)
        cleaning.remove_expired_files()
        removed = cleaning.remove_expired_queues()
        append(store, "Old", 2)
    return removed


def look(path: Path) -> None:
    """Everything from the log's beginning on is in the queues, and the group passes over none of it."""
    with Store(path, write=True, broker_conf=CONF, mend=True, clock=lambda: TIME + 2) as store:
        stored: dict[str, list[int]] = {}
        for message in store.messages():
            stored.setdefault(message.topic, []).append(message.physical_offset)
        for topic, offsets in stored.items():
            queued = [message.physical_offset for message in store.queue_messages(topic, 0)]
            assert queued == offsets, topic
        own = BrokerState(store, lambda _text: None).offset("Old", "G", 0) or 0
        seen = [message.queue_offset for message in store.queue_messages("Old", 0)]
        assert not seen or own <= seen[0] or own == 15
    assert errors(path, CONF) == []


@by_turns(2)
@pytest.mark.parametrize("ending", ["killed", "power cut"])
def test_what_is_in_the_log_is_in_its_queues(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seam, original = Seam(monkeypatch), tmp_path / "original"
    prepare(original)
    steps, stop, path = None, 0, tmp_path / "store"
    while steps is None:
        stop += 5 if ending == "killed" else 11
        shutil.rmtree(path, ignore_errors=True)
        seam.begin()
        shutil.copytree(original, path)
        seam.begin_with(path, stop)
        try:
            assert serve(path) == [("Old", 0)]
            steps = stop
        except Killed:
            pass
        seam.end(ending, path, stop)
        look(path)
    assert steps > 40
