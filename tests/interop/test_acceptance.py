"""The real engines' recovery keeps every acknowledged message, whatever its content, and all later ones."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool import Store
from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns
from tests.interop.engine import Engine
from tests.store.test_acceptance import REFUSED, TAKEN, message

pytestmark = pytest.mark.interop

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 61,
    "maxIndexNum": 5000,
}
LIGHT: dict[str, Any] = {"enableLmq": True, "enableMultiDispatch": True}


@by_turns(2)
@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("release", ["4.9", "5.3"])
def test_five_hundred_behind_them_survive(release: str, light: bool, engine: Engine, tmp_path: Path) -> None:
    config = SIZES | (LIGHT if light else {})
    ours = {name: str(value).lower() for name, value in config.items()}
    path = tmp_path / "store"
    with Store.create(path, broker_conf=ours, release=RELEASES[release]) as store:
        count = 0
        for fields in [*REFUSED, *TAKEN]:
            sent = message(**fields)
            results = [store.append(sent), *store.append_many([message(), sent, message()])]
            count += sum(result.ok for result in results)
        last = [store.append(message(topic="Last", body=b"%d" % n)) for n in range(500)]
        count += sum(result.ok for result in last)
        end = store.live.end
    for aborted in (True, False):
        copy = shutil.copytree(path, tmp_path / f"aborted-{aborted}")
        if aborted:
            (copy / "abort").touch()
        seen = engine.open(copy, config, messages=False, gets=[("Last", 0, 499, 1)])
        assert seen["loadOk"], seen
        assert "error" not in seen, seen
        assert seen["afterStart"]["maxPhyOffset"] == end
        queues = {(q["topic"], q["queueId"]): q["maxOffset"] for q in seen["afterStart"]["queues"]}
        assert queues["Last", 0] == 500
        layout = StoreLayout(str(copy), BrokerConf(ours))
        assert sum(isinstance(item, LocatedRecord) for item in CommitLog(layout).walk()) == count
