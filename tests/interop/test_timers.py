"""A whole real broker of 5.3.3 with its timer: what waits in its store, and its start on a timer that we made."""

from pathlib import Path
from time import sleep, time
from typing import Any

import pytest

from rmqtool.services.waiting.timers import Timers
from rmqtool.store.check import check_store, is_problem
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.repair.rebuild import rebuild
from tests.interop.broker import Broker
from tests.interop.sides import SETTINGS
from tests.services.build import log_of, never

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]


def keys_of(seen: list[dict[str, Any]]) -> list[str]:
    return sorted(row["keys"] for row in seen)


def test_a_real_broker_delivers_from_a_timer_that_was_made_anew(broker_5: Broker, tmp_path: Path) -> None:
    store = tmp_path / "store"
    config = {**SETTINGS, "timerWheelEnable": True, "mappedFileSizeTimerLog": 520}
    broker_5.boot(store, config)
    broker_5.ask("topic", topic="Timed")
    begin = int(time() * 1000)
    late = [f"late-{number}" for number in range(30)]
    for number in range(5):
        broker_5.ask("send", topic="Timed", keys=f"soon-{number}", properties={"TIMER_DELAY_MS": "1500"})
    for number, key in enumerate(late):
        deliver = str(begin + 45_000 + 500 * number)
        broker_5.ask("send", topic="Timed", keys=key, properties={"TIMER_DELIVER_MS": deliver})
    broker_5.ask("consume", group="timed", topic="Timed", failures=0, most=3, level=0)
    seen = broker_5.wait_for(lambda rows: len(rows) >= 5)
    sleep(2)
    broker_5.stop()
    assert keys_of(seen) == [f"soon-{number}" for number in range(5)]

    assert [found for found in check_store(StoreLayout(str(store))) if is_problem(found)] == []
    waiting = sorted(row.keys or "" for row in Timers(log_of(store), begin, never).pending())
    assert waiting == sorted(late)
    (store / "timerwheel").unlink()
    for path in (store / "timerlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert rebuild(StoreLayout(str(store)), ("timer",)).queueEntries == 30
    assert sorted(row.keys or "" for row in Timers(log_of(store), begin, never).pending()) == waiting

    broker_5.boot(store, config)
    broker_5.ask("consume", group="timed", topic="Timed", failures=0, most=3, level=0)
    broker_5.wait_for(lambda rows: len(rows) >= 30)
    sleep(3)
    seen = broker_5.ask("seen")
    broker_5.stop()
    assert keys_of(seen) == sorted(late)
