"""Consumer offsets: files of a real broker and a real client, and what the admin tool does to them."""

import shutil
from pathlib import Path
from random import Random
from time import sleep

import pytest

from formats.config.files import ConsumerOffsets
from rmqtool import Store
from rmqtool.rules.releases import RELEASES
from rmqtool.services.consumers import offset_plan
from rmqtool.services.consumers.offset_plan import OffsetTarget, Planner, clone, reset
from rmqtool.services.lookup.query_time import offset_by_time_v4, offset_by_time_v5
from rmqtool.services.offsets.files import BrokerFile, ClientFile
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import open_queue
from tests.cli.running import rmqtool
from tests.interop.broker import Broker
from tests.interop.sides import SETTINGS, places, seen_at, stored
from tests.services.build import never

pytestmark = pytest.mark.interop

FILE = "config/consumerOffset.json"
RESET = 222  # request code INVOKE_BROKER_TO_RESET_OFFSET
NOT_ONLINE = 206
Offsets = dict[tuple[str, str, int], int]


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf(SETTINGS))


def offsets(store: Path) -> Offsets:
    entries = ConsumerOffsets.parse((store / FILE).read_bytes()).entries()
    return {(entry.topic, entry.group, entry.queue_id): entry.offset for entry in entries}


def test_the_file_that_a_broker_writes(broker: Broker, tmp_path: Path) -> None:
    """After commits by consumers, and after setting many groups, so that the order of the table shows."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    broker.boot(theirs, SETTINGS)
    for topic in ("Orders", "Payments"):
        broker.ask("topic", topic=topic)
        for n in range(6):
            broker.ask("send", topic=topic, keys=f"{topic}-{n}", queueId=n % 3)
        broker.ask("consume", group=f"readers-{topic}", topic=topic, failures=0, most=16, level=0)
    pick = Random(7)
    for n in range(120):
        group, queue_id = f"group-{pick.randrange(60)}", pick.randrange(4)
        broker.ask("setOffset", group=group, topic="Orders", queueId=queue_id, offset=n)
    seen = broker.wait_for(lambda rows: len(rows) >= 12)
    broker.stop()
    for topic in ("Orders", "Payments"):
        assert seen_at(seen, f"readers-{topic}") == places(stored(theirs, topic))
    known = offsets(theirs)
    assert {key: known["Orders", "readers-Orders", key] for key in range(3)} == {0: 2, 1: 2, 2: 2}
    rows = sorted(known.items())
    pick.shuffle(rows)
    store = Store.create(ours, broker_conf=SETTINGS, release=RELEASES[broker.engine])
    state = BrokerState(store, never)
    for (topic, group, number), offset in rows:
        state.set_offset(topic, group, number, offset)
    state.persist()
    store.close()
    written, made = [(side / FILE).read_bytes() for side in (theirs, ours)]
    if broker.engine == "5.3":  # a version before the table counts the commits
        written, made = [data[data.index(b'"offsetTable"') :] for data in (written, made)]
    assert written == made


def set_ours(store: Path, planner: Planner) -> None:
    layout = layout_of(store)
    offset_plan.apply(layout, BrokerFile, planner, command="group-reset")


def test_resets_as_the_admin_tool_does_them(broker: Broker, tmp_path: Path) -> None:
    """To the beginning, the end, an offset and a time.

    If no message has exactly that time the versions differ: 4.9 takes the nearest message, and the last one for a later
    time; 5.3 and we take the first that is not older, or the end.
    """
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    broker.boot(theirs, SETTINGS)
    broker.ask("topic", topic="Orders")
    for n in range(12):
        broker.ask("send", topic="Orders", keys=f"order-{n}", queueId=0)
        sleep(0.05)
    times = [record.store_timestamp for record in stored(theirs, "Orders")]
    exact = {f"at-{n}": times[n] for n in (0, 5, 11)}
    between = {
        "before": times[0] - 1000,
        "soon-after": times[3] + 1,
        "soon-before": times[8] - 1,
        "after": times[11] + 9,
    }
    groups = ("earliest", "latest", "offset", "by-broker", *exact, *between)
    for group in groups:
        for queue_id, offset in enumerate((4, 0, 0, 0)):
            broker.ask("setOffset", group=group, topic="Orders", queueId=queue_id, offset=offset)
    broker.stop()
    shutil.copytree(theirs, ours)
    broker.boot(theirs, SETTINGS)
    for group, time in ({"earliest": 0, "latest": -1} | exact | between).items():
        broker.ask("reset", group=group, topic="Orders", timestamp=time)
    broker.ask("setOffset", group="offset", topic="Orders", queueId=0, offset=7)
    fields = {"topic": "Orders", "group": "by-broker", "timestamp": times[5], "isForce": "true", "queueId": -1}
    code = broker.ask("request", code=RESET, fields={name: str(value) for name, value in fields.items()})["code"]
    assert code == (NOT_ONLINE if broker.engine == "4.9" else 0)  # only 5.3 does it by itself
    broker.stop()
    targets = {
        "earliest": OffsetTarget("earliest"),
        "latest": OffsetTarget("latest"),
        "offset": OffsetTarget("offset", 7),
    }
    targets |= {group: OffsetTarget("time", time) for group, time in exact.items()}
    if not code:
        targets["by-broker"] = OffsetTarget("time", times[5])
    for group, target in targets.items():
        set_ours(ours, reset(group, ["Orders"], [0], target))
    log = CommitLog(layout_of(theirs))
    queue = open_queue(layout_of(theirs), "Orders", 0)
    assert queue is not None
    moved_to = offsets(theirs)
    for group, time in between.items():
        rule = offset_by_time_v4 if broker.engine == "4.9" else offset_by_time_v5
        assert moved_to["Orders", group, 0] == rule(log, queue, time), group
        set_ours(ours, reset(group, ["Orders"], [0], OffsetTarget("time", time)))
        assert offsets(ours)["Orders", group, 0] == sum(stamp < time for stamp in times)
        set_ours(ours, reset(group, ["Orders"], [0], OffsetTarget("offset", moved_to["Orders", group, 0])))
    assert moved_to == offsets(ours)


def boot_with_orders(broker: Broker, tmp_path: Path) -> Path:
    """Start a broker on a new store with two messages in each of four queues."""
    store = tmp_path / "store"
    broker.boot(store, SETTINGS)
    broker.ask("topic", topic="Orders")
    for n in range(8):
        broker.ask("send", topic="Orders", keys=f"order-{n}", queueId=n % 4)
    return store


def test_the_file_of_a_client_that_broadcasts(broker: Broker, tmp_path: Path) -> None:
    """Read, set at the broker for a group, and written back for a client, which continues from there."""
    store = boot_with_orders(broker, tmp_path)
    broker.ask("consume", group="everyone", topic="Orders", failures=0, most=16, level=0, broadcast=True)
    seen = broker.wait_for(lambda rows: len(rows) >= 8)
    broker.stop()
    assert seen_at(seen, "everyone") == places(stored(store, "Orders"))
    [path] = broker.offsets.glob("*/everyone/offsets.json")
    file = ClientFile(str(path), "lab-a")
    assert file.offsets == {("Orders", "everyone", n): 2 for n in range(4)}
    assert file.build({}) == path.read_bytes()
    args = ["group", "clone", store, "everyone", "cluster", "--broadcast", path, "--yes"]
    assert rmqtool(*args).code == 0
    assert {key: at for key, at in offsets(store).items() if key[1] == "cluster"} == {
        ("Orders", "cluster", n): 2 for n in range(4)
    }
    set_ours(store, reset("cluster", ["Orders"], [1, 2], OffsetTarget("shift", -1)))
    path.unlink()
    back = ["group", "clone", store, "cluster", "everyone", "--to-broadcast", path, "--yes"]
    assert rmqtool(*back).code == 2  # which broker?
    assert rmqtool(*back, "--broker", "lab-a").code == 0
    broker.boot(store, SETTINGS)
    broker.ask("consume", group="everyone", topic="Orders", failures=0, most=16, level=0, broadcast=True)
    broker.ask("send", topic="Orders", keys="order-8", queueId=0)
    wanted = {"order-5", "order-6", "order-8"}
    seen = broker.wait_for(lambda rows: {row["keys"] for row in rows} == wanted)
    broker.stop()
    assert {row["keys"] for row in seen} == wanted
    after = ClientFile(str(path), None)
    assert after.offsets == {("Orders", "everyone", n): 2 + (n == 0) for n in range(4)}
    shutil.rmtree(path.parent)


@pytest.mark.xdist_group("broker-4.9.8")
def test_groups_are_cloned_as_planned(broker_4: Broker, tmp_path: Path) -> None:
    """A consumer of the new group continues where the other was."""
    store = boot_with_orders(broker_4, tmp_path)
    for n in range(4):
        broker_4.ask("setOffset", group="first", topic="Orders", queueId=n, offset=n % 2 + 1)
    broker_4.stop()
    set_ours(store, clone("first", "second", None))
    broker_4.boot(store, SETTINGS)
    broker_4.ask("consume", group="second", topic="Orders", failures=0, most=16, level=0)
    wanted = {"order-4", "order-6"}
    seen = broker_4.wait_for(lambda rows: {row["keys"] for row in rows} == wanted)
    broker_4.stop()
    assert {row["keys"] for row in seen} == wanted
