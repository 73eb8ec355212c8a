"""Recovery of queues with extensions, including the one of delayed messages."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.queues.consume import is_ext_address
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.recovery.command import plan, recover
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.helpers import conf_of, tree
from tests.whole import faults_of

FILE = "consumequeue_ext/TopicA/0/00000000000000000000"
CONF = {"enableConsumeQueueExt": "true", "mappedFileSizeCommitLog": str(1 << 20)}


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_a_healthy_store_with_extensions_is_left_alone(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Store.create(path, broker_conf=CONF, release=RELEASES[engine]) as store:
        for number in range(20):
            delayed = {"DELAY": "18"} if number % 2 else {}
            store.append(NewMessage(topic="T", body=b"x", tags="a", properties=delayed))
    assert (path / "consumequeue_ext" / "SCHEDULE_TOPIC_XXXX").exists()
    assert plan(StoreLayout(str(path), BrokerConf(CONF))).clean


def files_gone(store: Path) -> None:
    shutil.rmtree(store / "consumequeue_ext")


def cut_to(share: float) -> Callable[[Path], None]:
    def cut(store: Path) -> None:
        data = (store / FILE).read_bytes()
        (store / FILE).write_bytes(data[: int(len(data) * share)])

    return cut


def longer(store: Path) -> None:
    (store / FILE).write_bytes((store / FILE).read_bytes() + bytes(7))


def zeros(store: Path) -> None:
    data = (store / FILE).read_bytes()
    half = len(data.rstrip(b"\0")) // 2
    (store / FILE).write_bytes(data[:half] + bytes(len(data) - half))


def garbage(store: Path) -> None:
    """A broker ends the extension there, and overwrites the following units."""
    data = bytearray((store / FILE).read_bytes())
    half = len(bytes(data).rstrip(b"\0")) // 2
    data[half : half + 30] = b"\xa5" * 30
    (store / FILE).write_bytes(data)


def foreign(store: Path) -> None:
    (store / FILE).with_name("x.bak").write_bytes(b"?")


def empty_next(store: Path) -> None:
    (store / FILE).with_name("00000000000000065536").touch()


DAMAGES = [files_gone, cut_to(0.0), cut_to(0.01), cut_to(0.9), longer, zeros, garbage, foreign, empty_next]


@by_turns(3)
@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_no_entry_leads_where_no_unit_is(number: int, engine: str, golden_copy: Unpacked) -> None:
    store = golden_copy("queue-ext")
    DAMAGES[number](store)
    if number % 2:
        (store / "abort").touch()
    before = tree(store)
    assert recover(StoreLayout(str(store), conf_of("queue-ext")), release=RELEASES[engine]).applied
    assert faults_of(store, conf_of("queue-ext"), engine) == []
    undo(str(store))
    assert tree(store) == before


def test_units_in_front_of_damage_are_kept(golden_copy: Unpacked) -> None:
    def addresses(store: Path) -> int:
        queues = [
            queue for queue in every_queue(StoreLayout(str(store))) if (queue.topic, queue.queue_id) == ("TopicA", 0)
        ]
        return sum(is_ext_address(entry.tags_code) for queue in queues for entry in queue.entries(0))

    store = golden_copy("queue-ext")
    all_of_them = addresses(store)
    garbage(store)
    recover(StoreLayout(str(store), conf_of("queue-ext")))
    assert 0 < addresses(store) < all_of_them
