"""Light queues in a salvaged store: their messages are contiguous, and consumer offsets move with them."""

import json
from pathlib import Path

from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.salvage.carve import Salvage
from tests.conftest import Unpacked
from tests.store.findings import check_store, write
from tests.store.helpers import conf_of
from tests.whole import wrong_entries

LIGHT = "%LMQ%alpha"


def entries_of(layout: StoreLayout) -> dict[int, int]:
    (queue,) = [queue for queue in every_queue(layout) if queue.topic == LIGHT]
    return {entry.queue_offset: entry.physical_offset for entry in queue.entries(0)}


def test_later_messages_move_down_and_offsets_with_them(golden_copy: Unpacked, tmp_path: Path) -> None:
    store, new = golden_copy("lmq"), tmp_path / "new"
    conf = BrokerConf({**conf_of("lmq").values, "enableLmq": "true", "enableMultiDispatch": "true"})
    before = entries_of(StoreLayout(str(store), conf))
    read = min(before) + 20  # messages of the group that is looked at
    offsets = {f"{LIGHT}@%LMQ%g": read}
    (store / "config" / "lmqConsumerOffset.json").write_text(json.dumps({"lmqOffsetTable": offsets, "offsetTable": {}}))
    lost = before[min(before) + 5]
    for name in sorted((store / "commitlog").iterdir()):
        if int(name.name) <= lost < int(name.name) + name.stat().st_size:
            write(name, lost - int(name.name) + 4, bytes(4))

    report = Salvage(StoreLayout(str(store), conf), str(new)).run()

    layout = StoreLayout(str(new), conf)
    assert [finding for finding in check_store(layout) if is_problem(finding)] == []
    assert list(wrong_entries(layout)) == []
    assert sorted(entries_of(layout)) == list(range(len(before) - 1))
    assert (LIGHT, 0, 1) in [(queue.topic, queue.queueId, queue.lost) for queue in report.renumbered]
    moved = json.loads((new / "config" / "lmqConsumerOffset.json").read_text())["lmqOffsetTable"]
    assert moved == {f"{LIGHT}@%LMQ%g": read - 1}
    old = CommitLog(StoreLayout(str(store), conf)).read(before[read])
    located = CommitLog(layout).read(entries_of(layout)[read - 1])
    assert old is not None
    assert located is not None
    assert located.record.body == old.record.body
