"""A complete 5.3.3 broker with its timer: waiting messages in its store, and its start on a timer made by us."""

import shutil
from collections import Counter
from pathlib import Path
from time import sleep, time

import pytest

from formats.message.properties import parse
from formats.variants import timer
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V5_3
from rmqtool.services.serving.run_loop import RunLoop, RunReport
from rmqtool.services.timers.timers import Timers
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.command import recover, truncate
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.store.salvage.carve import Salvage
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.sides import SETTINGS, records
from tests.services.build import log_of, never
from tests.store.findings import check_store

CONFIG = {**SETTINGS, "timerWheelEnable": True, "mappedFileSizeTimerLog": 520}
CONF = {name: str(value).lower() for name, value in CONFIG.items()}
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]


WAITING = {f"{number}" for number in range(30)} - {"7"}  # which is recalled
CUT = 15  # the first that goes with a truncation


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf(CONF))


def problems(store: Path) -> list[str]:
    return [finding.code for finding in check_store(layout_of(store)) if is_problem(finding)]


def recovered(store: Path) -> tuple[Path, set[str]]:
    """Two units were lost, and a slot points to them; recovered."""
    last = max((store / "timerlog").iterdir())
    data = last.read_bytes()
    units = [at for at, unit in timer.units(data) if isinstance(unit, timer.LogUnit)]
    assert len(units) > 2
    last.write_bytes(data[: units[-2]].ljust(len(data), b"\0"))
    (store / "abort").touch()
    report = recover(layout_of(store))
    assert any("timerwheel" in action for action in report.actions)
    return store, WAITING


def made_anew(store: Path) -> tuple[Path, set[str]]:
    """Wheel and timer log were lost; rebuilt."""
    (store / "timerwheel").unlink()
    for path in (store / "timerlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert rebuild(layout_of(store), ("timer",)).queueEntries == 31
    return store, WAITING


def cut_short(store: Path) -> tuple[Path, set[str]]:
    """The log is cut in the middle of them; further messages take their place."""
    first = next(record for record in records(store) if parse(record.properties).get("KEYS") == f"{CUT}")
    assert truncate(layout_of(store), first.physical_offset).applied
    return store, {key for key in WAITING if int(key) < CUT} | MORE


def salvaged(store: Path) -> tuple[Path, set[str]]:
    """Bytes in the middle of the log are damaged, everything else is salvaged."""
    record = next(record for record in records(store) if parse(record.properties).get("KEYS") == "20")
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[record.physical_offset + 4 : record.physical_offset + 8] = b"oops"
    path.write_bytes(data)
    new = store.with_name(f"{store.name}-new")
    Salvage(layout_of(store), str(new)).run()
    return new, WAITING - {"20"}


MORE = {f"{number}" for number in range(40, 44)}


def written_by(broker: Broker, folder: Path) -> tuple[Path, int]:
    """A store with thirty messages in the wheel and a mark that recalls one, and its start time in ms."""
    for seconds in (20, 120):  # a busy machine may not be through before the first of them is due
        store = folder / f"written-{seconds}"
        broker.boot(store, CONFIG)
        broker.ask("topic", topic="Timed")
        begin = int(time() * 1000)
        for number in range(30):
            deliver = {timer.DELIVER_MS: str(begin + 1000 * seconds + 100 * number)}
            sent = broker.ask("send", topic="Timed", keys=f"{number}", properties=deliver)
            if number == 7:
                mark = {**deliver, timer.DELETE_KEY: f"Timed+{sent['msgId']}"}
                broker.ask("send", topic="Timed", keys="mark", properties=mark)
        for _look in range(300):  # until all is in the wheel, and that on the disk
            point = TimerFiles(layout_of(store)).checkpoint
            if point is not None and point.last_timer_queue_offset == 31:
                break
            sleep(0.1)
        broker.stop()
        if time() * 1000 < begin + 1000 * seconds:
            break
    return store, begin


@by_turns(23)
def test_a_real_broker_delivers_once_from_what_we_made(broker_5: Broker, tmp_path: Path) -> None:
    """Timer files recovered, rebuilt, cut and salvaged: waiting messages are delivered, once."""
    written, begin = written_by(broker_5, tmp_path)
    assert problems(written) == []
    assert {row.keys for row in Timers(log_of(written), begin, never).pending() if not row.recalled} == WAITING

    for make in (recovered, made_anew, cut_short, salvaged):
        store, wanted = make(Path(shutil.copytree(written, tmp_path / make.__name__)))
        assert problems(store) == [], make
        before = Counter(parse(record.properties)["KEYS"] for record in records(store) if record.topic == b"Timed")
        assert not before, make
        broker_5.boot(store, CONFIG)
        if make is cut_short:
            for key in MORE:
                broker_5.ask("send", topic="Timed", keys=key, properties={timer.DELAY_MS: "1500"})
        broker_5.ask("consume", group="timed", topic="Timed", failures=0, most=3, level=0)
        broker_5.wait_for(lambda rows, wanted=wanted: wanted <= {row["keys"] for row in rows})  # type: ignore[misc]
        broker_5.stop()
        keys = Counter(parse(record.properties)["KEYS"] for record in records(store) if record.topic == b"Timed")
        assert keys == Counter(dict.fromkeys(wanted, 1)), make
        assert problems(store) == [], make


@by_turns(11)
def test_the_same_sends_are_stored_alike(broker_5: Broker, tmp_path: Path) -> None:
    config = {**SETTINGS, "timerWheelEnable": True, "timerStopEnqueue": True, "timerStopDequeue": True}
    far = int(time() * 1000) // 1000 * 1000 + 7_200_000
    asked: list[dict[str, str]] = [
        {timer.DELIVER_MS: str(far)},
        {timer.DELIVER_MS: str(far + 1)},
        {timer.DELIVER_MS: str(far + 999)},
        {timer.DELIVER_MS: str(far - 86_400_000)},
        {timer.DELIVER_MS: str(far + 3 * 86_400_000)},
        {timer.DELIVER_MS: "soon"},
        {timer.DELAY_SEC: "-1"},
        {timer.DELAY_SEC: "1.5"},
        {timer.DELAY_SEC: str(2**63 // 1000)},
        {timer.DELAY_MS: "0"},
        {timer.DELAY_MS: str(2**63)},
        {timer.DELAY_MS: "x", timer.DELAY_SEC: "0"},
        {timer.DELIVER_MS: str(far), timer.OUT_MS: str(far)},
        {timer.DELIVER_MS: str(far), timer.DELETE_KEY: "Timed+A"},
        {timer.DELIVER_MS: str(far - 86_400_000), timer.DELETE_KEY: "Timed+A"},
        {timer.DELIVER_MS: str(far), "DELAY": "18"},
    ]
    broker_5.boot(tmp_path / "theirs", config)
    broker_5.ask("topic", topic="Timed")
    refused = set()
    for number, properties in enumerate(asked):
        try:
            broker_5.ask("send", topic="Timed", queueId=0, keys=str(number), properties=properties)
        except AssertionError as err:
            if "CODE: 13  DESC: timer message illegal" not in str(err):
                raise
            refused.add(number)
    broker_5.stop()
    theirs = {parse(record.properties)["KEYS"]: record for record in records(tmp_path / "theirs")}
    assert len(theirs) + len(refused) == len(asked)
    with Store.create(tmp_path / "ours", broker_conf=SETTINGS, release=V5_3) as store:
        for number, properties in enumerate(asked):
            result = store.append(NewMessage(topic="Timed", body=b"x", keys=str(number), properties=properties))
            assert result.ok == (number not in refused), (number, result)
    for record in records(tmp_path / "ours"):
        own, other = parse(record.properties), theirs[parse(record.properties)["KEYS"]]
        properties = parse(other.properties)
        assert (record.topic, record.queue_id) == (other.topic, other.queue_id), own
        assert own == {name: value for name, value in properties.items() if name in {*own, *timer.REQUESTS}}


def run_for(store: Path, seconds: float) -> RunReport:
    """Run our own service for ``seconds``."""
    with Store(store, write=True, broker_conf=CONF) as opened:
        loop = RunLoop(opened, never)
        return loop.run(lambda millis: sleep(millis / 1000), until=int((time() + seconds) * 1000))


@by_turns(23)
def test_a_real_broker_and_ours_take_turns(broker_5: Broker, tmp_path: Path) -> None:
    """Theirs sends and delivers, ours continues, then theirs again; each message is delivered once."""
    store = tmp_path / "store"
    broker_5.boot(store, CONFIG)
    broker_5.ask("topic", topic="Timed")
    begin = int(time() * 1000)

    def send(key: str, deliver: int, **properties: str) -> str:
        sent = broker_5.ask("send", topic="Timed", keys=key, properties={timer.DELIVER_MS: str(deliver), **properties})
        return str(sent["msgId"])

    for number in range(12):
        send(f"first-{number}", begin + 1_000 + 250 * number)
    broker_5.ask("consume", group="timed", topic="Timed", failures=0, most=3, level=0)
    broker_5.wait_for(lambda rows: len(rows) >= 12)
    now = int(time() * 1000)
    later = now + max(6_000, 2 * (now - begin))  # as far ahead as this machine is slow today
    ids = {number: send(f"later-{number}", later + 300 * number) for number in range(40)}
    # what a broker stores of a recall: two are taken back, one by each side
    send("mark-7", later + 300 * 7, TIMER_DEL_UNIQKEY=f"Timed+{ids[7]}")
    broker_5.stop()

    with Store(store, write=True, broker_conf=CONF) as opened:
        own = {timer.DELIVER_MS: str(later + 300 * 33), "KEYS": "ours"}
        assert opened.append(NewMessage(topic="Timed", body=b"x", properties=own)).topic == timer.TOPIC
        own = {timer.DELIVER_MS: str(later + 300 * 35), timer.DELETE_KEY: f"Timed+{ids[35]}"}
        assert opened.append(NewMessage(topic="Timed", body=b"x", properties=own)).topic == timer.TOPIC
        assert opened.append(
            NewMessage(topic="Timed", body=b"x", properties={timer.DELAY_MS: "1", "KEYS": "at-once"})
        ).ok
    report = run_for(store, max(later / 1000 + 5 - time(), 2))
    assert report.delivered > 2
    assert [finding for finding in check_store(StoreLayout(str(store))) if is_problem(finding)] == []

    broker_5.boot(store, CONFIG)
    wanted = {f"later-{number}" for number in range(40) if number not in (7, 35)} | {"ours", "at-once"}
    broker_5.ask("consume", group="timed", topic="Timed", failures=0, most=3, level=0)
    broker_5.wait_for(lambda rows: wanted <= {row["keys"] for row in rows})
    sleep(3)
    broker_5.stop()
    keys = Counter(parse(record.properties)["KEYS"] for record in records(store) if record.topic == b"Timed")
    assert keys == Counter(dict.fromkeys(wanted | {f"first-{number}" for number in range(12)}, 1))
    delivered = [record for record in records(store) if record.topic == b"Timed"]
    names = [
        frozenset(parse(record.properties)) - {"MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT"} for record in delivered
    ]
    assert len({name for name in names if "KEYS" in name and "UNIQ_KEY" in name}) == 1  # theirs and ours
    assert [f for f in check_store(StoreLayout(str(store))) if is_problem(f)] == []
    assert run_for(store, 2).delivered == 0
