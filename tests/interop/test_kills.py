"""What is delivered twice when a broker is killed, or when the clock steps back: a real broker and ours go through the
same, and ours delivers everything, once.

By hand, with any number of messages: ``python -m tests.interop.timer_kills``, ``tests.interop.transaction_kills``.
"""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from formats.message.properties import UNIQ_KEY
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.services.serving.run_loop import RunLoop
from tests.amounts import by_turns
from tests.interop import broker as brokers
from tests.interop import timer_kills, transaction_kills
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.engine import NEWEST
from tests.interop.serving import Serving

pytestmark = pytest.mark.interop
_ALL = (*brokers.VERSIONS, NEWEST)


@pytest.fixture(params=_ALL)
def version(request: pytest.FixtureRequest) -> str:
    if reason := brokers.available(request.param):
        pytest.skip(reason)
    chosen: str = request.param
    return chosen


def ours(version: str) -> str:
    return f"serve-{version[:3]}"


def folder(path: Path, side: str) -> Path:
    """The place of a side's store, in a directory of its own."""
    (path / side).mkdir()
    return path / side / "store"


@by_turns(29)
@pytest.mark.parametrize("level", [False, True], ids=["timer", "level"])
def test_delayed_messages(version: str, level: bool, tmp_path: Path) -> None:
    """Killed twice while it delivers what is due in one second."""
    if not level and version[0] == "4":
        return  # it has no timer
    real, own = (
        asyncio.run(timer_kills.go_through(folder(tmp_path, side), side, level=level, messages=800))
        for side in (version, ours(version))
    )
    assert len(real) == len(own) == 800
    assert set(own.values()) == {1}
    if not level:
        assert max(real.values()) > 1, "the kills came too late"


@by_turns(29)
def test_half_messages(version: str, tmp_path: Path) -> None:
    """Killed three times while it checks them."""
    real, own = (
        asyncio.run(transaction_kills.go_through(folder(tmp_path, side), side, messages=20, kills=3))
        for side in (version, ours(version))
    )
    assert len(real.delivered) == 20
    assert sorted(own.delivered.values()) == [1] * 20
    assert own.halves <= real.halves


@by_turns(29)
@pytest.mark.parametrize("version", [v for v in _ALL if v[0] == "5"], indirect=True)
def test_a_timer_after_the_clock_stepped_back(version: str, tmp_path: Path) -> None:
    """A store whose timer ran an hour ahead, with its senders: a broker's wheel waits until the clock has caught up."""
    ahead, wait = 3_600_000, 8_000
    conf = {**SMALL_FILES, "timerWheelEnable": "true"}
    made = tmp_path / "made"
    release = RELEASES[version[:3]]
    with Store.create(made, broker_conf=conf, release=release, clock=lambda: int(time.time() * 1000) + ahead) as store:
        due = str(int(time.time() * 1000) + ahead + wait)
        for number in range(4):
            asked = {"TIMER_DELIVER_MS": due} if number == 3 else {"TIMER_DELAY_MS": str(wait)}
            properties = {**asked, UNIQ_KEY: f"{number}"}
            assert store.append(NewMessage(topic="Orders", body=b"%d" % number, properties=properties)).ok
        RunLoop(store, lambda _text: None).run(lambda _millis: None, once=True)  # into the wheel
    shutil.copytree(made, tmp_path / "real")
    (tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in conf.items()))

    def delivered(store: Path) -> int:
        with Store(store, broker_conf=conf) as opened:
            return len(opened.get("Orders", 0, 0).messages)

    with Broker(version) as real, Serving(made, "--broker-conf", str(tmp_path / "broker.conf")) as serving:
        real.boot(tmp_path / "real", dict(conf))
        end = time.monotonic() + 3 * wait / 1000
        while delivered(made) < 4 and time.monotonic() < end:
            time.sleep(0.2)
        assert delivered(made) == 4
        assert delivered(tmp_path / "real") == 0
        real.stop()
        assert serving.end()[0] == 0
