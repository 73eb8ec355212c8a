"""A queue whose entries are addresses of its extension is as whole as any, that of delayed messages too."""

from pathlib import Path

import pytest

from rmqtool import Message, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan

CONF = {"enableConsumeQueueExt": "true", "mappedFileSizeCommitLog": str(1 << 20)}


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_a_healthy_store_with_extensions_is_left_alone(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Store.create(path, broker_conf=CONF, release=RELEASES[engine]) as store:
        for number in range(20):
            delayed = {"DELAY": "18"} if number % 2 else {}
            store.append(Message(topic="T", body=b"x", tags="a", properties=delayed))
    assert (path / "consumequeue_ext" / "SCHEDULE_TOPIC_XXXX").exists()
    assert plan(StoreLayout(str(path), BrokerConf(CONF))).clean
