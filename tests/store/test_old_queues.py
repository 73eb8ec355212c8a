"""A queue whose messages have all expired keeps its end, the next offset, in rebuild and recover."""

import shutil
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import tree

SETTINGS = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400"}
CONF = BrokerConf(SETTINGS)
OLD = 25  # messages of the topic that has expired: more than one queue file


def make_expired(path: Path, engine: str) -> StoreLayout:
    """A store whose log begins after all messages of topic Old."""
    with Store.create(path, broker_conf=SETTINGS, release=RELEASES[engine]) as store:
        for number in range(OLD):
            store.append(NewMessage(topic="Old", body=b"x" * 100, keys=str(number)))
        for number in range(200):
            store.append(NewMessage(topic="New", body=b"x" * 100, keys=str(number)))
    first = next(iter(sorted((path / "commitlog").iterdir())))
    first.unlink()
    (path / "consumequeue/Old/0" / f"{0:020d}").unlink()
    for file in (path / "index").iterdir():
        file.unlink()
    layout = StoreLayout(str(path), CONF)
    rebuild(layout, ("index",))
    return layout


def ends(layout: StoreLayout) -> dict[tuple[str, int], int]:
    return {(queue.topic, queue.queue_id): queue.max_offset for queue in every_queue(StoreLayout(layout.root, CONF))}


def zero_a_unit(path: Path) -> None:
    """Zero the second unit of the expired queue's last file."""
    with next((path / "consumequeue/Old/0").iterdir()).open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_rebuild_leaves_its_files(engine: str, tmp_path: Path) -> None:
    layout = make_expired(tmp_path / "store", engine)
    before = tree(tmp_path / "store/consumequeue/Old")
    assert ends(layout)["Old", 0] == OLD
    rebuild(StoreLayout(layout.root, CONF), ("consumequeue",))
    assert ends(layout)["Old", 0] == OLD
    assert tree(tmp_path / "store/consumequeue/Old") == before


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@pytest.mark.parametrize("command", ["rebuild", "recover"])
def test_a_damaged_one_ends_with_a_unit_that_a_broker_passes_over(command: str, engine: str, tmp_path: Path) -> None:
    layout = make_expired(tmp_path / "store", engine)
    zero_a_unit(tmp_path / "store")
    if command == "rebuild":
        rebuild(StoreLayout(layout.root, CONF), ("consumequeue",))
    else:
        recover(StoreLayout(layout.root, CONF), release=RELEASES[engine])
    assert ends(layout)["Old", 0] == OLD
    (queue,) = [queue for queue in every_queue(StoreLayout(layout.root, CONF)) if queue.topic == "Old"]
    low = CommitLog(layout).min_offset
    last = queue.entry(OLD - 1)
    assert last is not None
    # behind a filler unit a broker takes all messages below 2 GiB for such that the queue has
    assert 0 <= last.physical_offset < last.physical_offset + last.size <= low
    assert not any(map(is_problem, check_store(StoreLayout(layout.root, CONF))))
    assert plan(StoreLayout(layout.root, CONF), release=RELEASES[engine]).clean
    with Store(layout.root, write=True, broker_conf=SETTINGS) as store:
        assert store.append(NewMessage(topic="Old", body=b"new")).queue_offset == OLD
    assert ends(layout)["Old", 0] == OLD + 1


@pytest.mark.parametrize("deleted", [False, True])
def test_a_compacted_topic_goes_on_after_its_own_log(deleted: bool, golden_copy: Unpacked) -> None:
    """The commit log has no messages of Users; its compaction log has them up to queue offset 19."""
    store = golden_copy("compaction-5.3.3")
    layout = StoreLayout(str(store))
    before = ends(layout)
    assert before["Users", 0] == 20
    if deleted:
        shutil.rmtree(store / "consumequeue/Users/0")
    report = rebuild(StoreLayout(str(store)), ("consumequeue",))
    assert not any(action.startswith("remove") for action in report.actions)
    assert ends(layout) == before
    assert not any(map(is_problem, check_store(StoreLayout(str(store)))))
