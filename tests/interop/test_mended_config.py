"""Real brokers read repaired config files, and refuse unrepaired ones."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.read import loads
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.engine import Engine, golden_config, unpack_golden
from tests.store.helpers import conf_of

pytestmark = pytest.mark.interop
NAMES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json")


def tear(store: Path) -> None:
    """Truncate every config file and its .bak."""
    for path in (store / "config").iterdir():
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * 3 // 5] + bytes(len(data) // 5))


def read(store: Path) -> dict[str, Any]:
    return {name: loads((store / "config" / name).read_bytes()) for name in NAMES}


def mend(store: Path) -> None:
    assert rebuild(StoreLayout(str(store), conf_of("broker")), ("config",)).applied


def test_the_engine_loads_delay_offsets_again(engine_4: Engine, tmp_path: Path) -> None:
    store = unpack_golden("broker", tmp_path)
    tear(store)
    assert not engine_4.open(shutil.copytree(store, tmp_path / "torn"), golden_config("broker"), start=False)["loadOk"]
    mend(store)
    answer = engine_4.open(store, golden_config("broker"))
    assert answer["loadOk"], answer
    assert read(store)["delayOffset.json"]["offsetTable"] == {1: 13, 2: 3, 3: 8, 4: 8}


def kept_as(entry: Any, kept: Any) -> bool:
    """Whether an entry is preserved; 5.x adds fields to topics and groups."""
    return kept == entry or (isinstance(kept, dict) and entry.items() <= kept.items())


@by_turns(11)
def test_a_broker_boots_with_them_and_keeps_every_entry(broker: Broker, tmp_path: Path) -> None:
    store = unpack_golden("broker", tmp_path)
    whole = read(store)
    tear(store)
    mend(store)
    mended = read(store)
    broker.boot(store, golden_config("broker"))
    broker.stop()
    kept = read(store)
    for name, table in (
        ("topics.json", "topicConfigTable"),
        ("subscriptionGroup.json", "subscriptionGroupTable"),
        ("consumerOffset.json", "offsetTable"),
        ("delayOffset.json", "offsetTable"),
    ):
        assert all(kept_as(entry, kept[name][table][key]) for key, entry in mended[name][table].items()), name
        assert mended[name][table].items() <= whole[name][table].items(), name
        assert len(mended[name][table]) >= len(whole[name][table]) // 3


def test_a_broker_does_not_boot_with_the_torn_ones(broker: Broker, tmp_path: Path) -> None:
    store = unpack_golden("broker", tmp_path)
    tear(store)
    with pytest.raises(AssertionError):
        broker.boot(store, golden_config("broker"))
