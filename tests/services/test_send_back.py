"""Messages sent back: levels, counts, names, created topics and groups; dead letters sent back in turn."""

import json
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from formats.config.files import SubscriptionGroups, Topics
from formats.message.ids import offset_id
from formats.message.properties import parse
from formats.topics import DLQ_PREFIX, HALF, RETRY_PREFIX, SCHEDULE
from rmqtool import NewMessage, Store
from rmqtool.rules.sending import Rejected
from rmqtool.services.delays.delivery import Delivery
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.retries.requeue import REQUEUED_FROM, Requeued, requeue
from rmqtool.services.retries.retries import Retries
from rmqtool.services.retries.send_back import SendBackStore
from rmqtool.store.log.commit_log import CommitLog
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, rmqtool
from tests.conftest import Unpacked
from tests.services.build import TIME, never
from tests.services.live import Lab
from tests.store.crashes import Killed, Seam
from tests.store.helpers import conf_of, tree

GROUP = "G"
RETRY, DEAD = RETRY_PREFIX + GROUP, DLQ_PREFIX + GROUP


class Back(Lab):
    """A store with failing consumers."""

    def __init__(self, root: Path, **settings: str) -> None:
        super().__init__(root, **settings)
        self.back = SendBackStore(self.store, self.state, Random(1))

    def deliver(self, millis: int) -> int:
        self.now += millis
        return Delivery(self.store, self.state, never).deliver_due(self.now).delivered

    def place(self, topic: str) -> int:
        """The physical offset of a topic's last message."""
        return self.records(topic)[-1].physical_offset


def test_from_the_first_failure_to_the_dead_letter(tmp_path: Path) -> None:
    lab = Back(tmp_path)
    at = lab.send("a", queue_id=3, TAGS="t", KEYS="k")
    origin = offset_id(b"\x7f\0\0\1", 0, at)
    delays = lab.store.layout.conf.delay_levels
    for times in range(16):
        failed = at if times == 0 else lab.place(RETRY)
        result = lab.back.send_back(GROUP, failed)
        assert result is not None
        assert (result.topic, result.queue_id) == (SCHEDULE, times + 2)
        assert lab.deliver(delays[times + 2] - 1) == 0
        assert lab.deliver(1) == 1
        record, properties = lab.records(RETRY)[-1], lab.properties(RETRY)[-1]
        assert (record.reconsume_times, record.body, record.born_timestamp) == (times + 1, b"a", TIME)
        assert properties == {
            "UNIQ_KEY": "a", "TAGS": "t", "KEYS": "k", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": origin, "WAIT": "false",
            "DELAY": str(times + 3), "REAL_TOPIC": RETRY, "REAL_QID": "0",
        }  # fmt: skip
    result = lab.back.send_back(GROUP, lab.place(RETRY))
    assert result is not None
    assert (result.topic, result.queue_id) == (DEAD, 0)
    [dead] = lab.records(DEAD)
    assert dead.reconsume_times == 17
    assert lab.properties(DEAD)[0] == properties | {"DELAY": "0"}
    lab.state.persist()
    topics = Topics.parse((lab.path / "config" / "topics.json").read_bytes())
    assert {name: (t.read_queue_nums, t.write_queue_nums, t.perm) for name, t in topics.topics.items()} == {
        RETRY: (1, 1, 6), DEAD: (1, 1, 6)
    }  # fmt: skip
    groups = SubscriptionGroups.parse((lab.path / "config" / "subscriptionGroup.json").read_bytes())
    assert [(name, g.retry_max_times, g.retry_queue_nums) for name, g in groups.groups.items()] == [(GROUP, 16, 1)]
    # and our own reading side tells the same
    log = CommitLog(lab.store.layout)
    [(letter, _found)] = Retries(log, lab.now, never).dead_letters()
    assert (letter.originMsgId, letter.originTopic, len(letter.retryTimestamps)) == (origin, "T", 16)


@pytest.mark.parametrize(
    ("engine", "times", "most", "locked", "dead"),
    [("4.9", 2, 3, False, False), ("4.9", 3, 3, False, True), ("4.9", 2, 3, True, False),
     ("4.9", 15, None, False, False), ("4.9", 16, None, False, True), ("5.3", 3, 3, False, False),
     ("5.3", 4, 3, False, True), ("5.3", 0, 3, True, True)],
)  # fmt: skip
@pytest.mark.parametrize("level", [0, 5])
def test_sent_to_the_retry_topic(
    engine: str, times: int, most: int | None, locked: bool, dead: bool, level: int, tmp_path: Path
) -> None:
    """As in real brokers, see tests/interop/test_sending.py."""
    lab = Lab(tmp_path, engine=engine)
    back = SendBackStore(lab.store, lab.state)
    named = {"RETRY_TOPIC": "T", "RECONSUME_TIME": str(times), **({"DELAY": str(level)} if level else {})}
    sent = NewMessage(topic=RETRY, tags="t", properties=named, reconsume_times=times)
    result = back.send_to_retry(sent, most, locked=locked)
    waits = level and not (dead and engine == "5.3")
    assert result.topic == (SCHEDULE if waits else DEAD if dead else RETRY)
    [properties] = lab.properties(result.topic)
    assert properties["TAGS"] == "t"
    assert properties.get("DELAY") == ("-1" if dead and engine == "5.3" else str(level) if level else None)
    assert properties.get("REAL_TOPIC") == ((DEAD if dead else RETRY) if waits else None)
    assert lab.records(result.topic)[0].reconsume_times == times
    assert (lab.state.topic(DEAD) is not None) == dead
    assert lab.state.topic(RETRY) is not None
    log = CommitLog(lab.store.layout)
    letters = [(letter.state, letter.topic) for letter, _found in Retries(log, lab.now, never).dead_letters()]
    assert letters == ([("scheduled", SCHEDULE) if waits else ("dead", DEAD)] if dead else [])
    # what is not dead yet cannot be given back
    assert len(list(requeue(lab.store, GROUP, None, "retry", never))) == (dead and not waits)


def test_nobody_retries_without_a_group(tmp_path: Path) -> None:
    lab = Lab(tmp_path, autoCreateSubscriptionGroup="false")
    with pytest.raises(Rejected) as refused:
        SendBackStore(lab.store, lab.state).send_to_retry(NewMessage(topic=RETRY))
    assert refused.value.code == 26


@pytest.mark.parametrize(
    ("times", "level", "most", "group_most", "goes"),
    [(0, 0, None, 16, 3), (0, 5, None, 16, 5), (0, -1, None, 16, None), (2, 0, 2, 16, None), (2, 0, 3, 2, 5),
     (2, 0, None, 2, None), (0, 0, 0, 16, None), (0, 99, None, 16, 18)],
)  # fmt: skip
def test_levels_and_limits(
    times: int, level: int, most: int | None, group_most: int, goes: int | None, tmp_path: Path
) -> None:
    lab = Back(tmp_path)
    table = {"subscriptionGroupTable": {GROUP: {"groupName": GROUP, "retryMaxTimes": group_most, "retryQueueNums": 3}}}
    (lab.path / "config" / "subscriptionGroup.json").write_text(json.dumps(table))
    lab.again()
    back = SendBackStore(lab.store, lab.state, Random(3))
    put = lab.store.append(NewMessage(topic="T", body=b"x", reconsume_times=times))
    result = back.send_back(GROUP, put.physical_offset, delay_level=level, max_reconsume_times=most)
    assert result is not None
    assert (result.topic, result.queue_id) == ((DEAD, 0) if goes is None else (SCHEDULE, goes - 1))
    if goes is not None:
        assert lab.properties(SCHEDULE)[0]["REAL_QID"] in "012"
        assert lab.state.ensure_topic(RETRY).write_queue_nums == 3


def test_what_is_refused(tmp_path: Path) -> None:
    lab = Back(tmp_path, autoCreateSubscriptionGroup="false")
    at = lab.send("a")
    with pytest.raises(Rejected) as caught:
        lab.back.send_back(GROUP, at)
    assert caught.value.code == 26
    assert lab.back.send_back("CID_RMQ_SYS_x", at) is not None
    table = {name: {"groupName": name, "retryQueueNums": nums} for name, nums in (("silent", 0), ("ro", 1), (GROUP, 1))}
    (lab.path / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": table}))
    read_only = {"%RETRY%ro": {"topicName": "%RETRY%ro", "perm": 4}, "%DLQ%G": {"topicName": "%DLQ%G", "perm": 4}}
    (lab.path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": read_only}))
    lab.again()
    back = SendBackStore(lab.store, lab.state)
    end = lab.store.live.end
    assert back.send_back("silent", at) is None
    for group, offset, level, code, text in (
        ("ro", at, 0, 16, "%RETRY%ro"),
        (GROUP, at, -1, 16, "%DLQ%G"),
        (GROUP, at + 4, 0, 1, f"look message by offset failed, {at + 4}"),
        (GROUP, 1 << 50, 0, 1, "look message"),
    ):
        with pytest.raises(Rejected, match=text) as caught:
            back.send_back(group, offset, delay_level=level)
        assert caught.value.code == code
    assert lab.store.live.end == end


def test_the_tables_stay_in_the_order_of_the_brokers_own(golden_copy: Unpacked) -> None:
    """A topic and a group removed from the golden files and created again end up at their old places."""
    store = golden_copy("broker")
    conf = conf_of("broker").values
    for name, key, made in (
        ("topics.json", "topicConfigTable", "%RETRY%lab-consumer"),
        ("topics.json", "topicConfigTable", "%DLQ%lab-consumer"),
        ("subscriptionGroup.json", "subscriptionGroupTable", "lab-consumer"),
    ):
        path = store / "config" / name
        wanted = json.loads(path.read_text())
        less = {**wanted, key: {k: v for k, v in wanted[key].items() if k != made}}
        path.write_text(json.dumps(less))
        with Store(store, write=True, broker_conf=conf, clock=lambda: 77) as opened:
            state = BrokerState(opened, never)
            if key == "topicConfigTable":
                state.ensure_topic(made)
            else:
                state.ensure_group(made)
            assert state.persist()
        written = json.loads(path.read_text())
        assert list(written[key]) == list(wanted[key])
        assert written[key] == wanted[key]
        assert written["dataVersion"] == {"counter": wanted["dataVersion"]["counter"] + 1, "timestamp": 77}
        assert json.loads((store / "config" / f"{name}.bak").read_text()) == less


# -- requeue ----------------------------------------------------------------------------------------------------------

ORDER_0 = "FD0000000000000000000000000000020FB630946E09664343CD0000"


def requeued(store: Path, ids: list[str] | None, target: str) -> list[Requeued]:
    with Store(store, write=True, broker_conf=conf_of("broker").values) as opened:
        return list(requeue(opened, "lab-consumer", ids, target, never))


def test_all_dead_letters_to_the_group(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    configs = {path: path.read_bytes() for path in (store / "config").iterdir()}
    rows = requeued(store, None, "retry")
    assert [row.state for row in rows] == ["done"] * 16
    assert [row.targetQueueOffset for row in rows] == list(range(20, 36))
    with Store(store, broker_conf=conf_of("broker").values) as opened:
        for row in rows:
            assert row.targetTopic is not None
            assert row.targetQueueOffset is not None
            [stored] = opened.get(row.targetTopic, 0, row.targetQueueOffset, 1).messages
            properties = parse(stored.record.properties)
            assert stored.record.reconsume_times == 0
            assert properties[REQUEUED_FROM] == row.deadLetterId
            assert properties["RETRY_TOPIC"] == "Orders"
            assert not {"DELAY", "REAL_TOPIC", "REAL_QID", "WAIT"} & properties.keys()
            [dead] = opened.query_id(row.deadLetterId)
            assert (dead.record.body, dead.record.topic) == (stored.record.body, b"%DLQ%lab-consumer")
            assert dead.record.born_timestamp == stored.record.born_timestamp
    assert {path: path.read_bytes() for path in (store / "config").iterdir()} == configs
    before = tree(store)
    assert [row.state for row in requeued(store, None, "retry")] == ["before"] * 16
    assert tree(store) == before


@pytest.mark.parametrize("which", ["msgId", "originMsgId", "deadLetterId"])
def test_one_dead_letter_to_where_it_came_from(which: str, golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    name = {"msgId": ORDER_0, "originMsgId": "7F000001000078BF0000000000000000"}.get(which)
    name = name or "7F000001000078BF0000000000022879"
    [row] = requeued(store, [name], "origin")
    assert (row.state, row.targetTopic, row.targetQueueId, row.targetQueueOffset) == ("done", "Orders", 1, 106)
    with Store(store, broker_conf=conf_of("broker").values) as opened:
        [stored] = opened.get("Orders", 1, 106).messages
        first = opened.get("Orders", 1, 0, 1).messages[0]
    assert parse(stored.record.properties) == parse(first.record.properties) | {REQUEUED_FROM: row.deadLetterId}
    assert stored.record.body == first.record.body
    assert [row.state for row in requeued(store, [name], "origin")] == ["before"]
    [again] = requeued(store, [name], "retry")  # the group has it already, as all groups of the topic
    assert (again.state, again.reason) == ("before", "it was given back to Orders")


def test_dead_letters_without_a_past(tmp_path: Path) -> None:
    lab = Back(tmp_path)
    lab.send("nothing known", topic=DEAD)
    lab.send("odd", topic=DEAD, RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="x")
    lab.send("bad name", topic=DEAD, RETRY_TOPIC="a/b")
    rows = list(requeue(lab.store, GROUP, None, "origin", never))
    assert [(row.state, row.targetQueueId) for row in rows] == [("refused", None), ("done", 0), ("refused", 0)]
    assert [bool(row.reason) for row in rows] == [True, False, True]
    assert lab.bodies() == ["odd"]
    assert [row.state for row in requeue(lab.store, GROUP, None, "retry", never)] == ["done", "before", "done"]
    assert [row.state for row in requeue(lab.store, GROUP, None, "origin", never)] == ["before"] * 3
    assert json.loads((lab.path / "config" / "topics.json").read_text())["topicConfigTable"].keys() == {RETRY}
    # it fails again: a new dead letter with the old name in it is another one
    at = lab.place(RETRY)
    assert lab.back.send_back(GROUP, at, delay_level=-1) is not None
    assert [row.state for row in requeue(lab.store, GROUP, None, "retry", never)] == ["before"] * 3 + ["done"]


def test_the_command(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    before = tree(store)
    result = rmqtool("dlq", "requeue", store, "lab-consumer", "--dry-run", "-o", "ndjson")
    assert result.code == 1
    assert {json.loads(line)["state"] for line in result.out.splitlines()} == {"to-do"}
    assert result.err == "16 would be given back\n"
    assert rmqtool("dlq", "requeue", store, "lab-consumer").code == 4  # nobody is there to be asked
    assert tree(store) == before
    conf = store.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in conf_of("broker").values.items()))
    args = ("dlq", "requeue", store, "lab-consumer", "--broker-conf", conf)
    result = rmqtool(*args, "--yes", "--id", ORDER_0, "-o", "json")
    assert (result.code, result.err) == (0, "1 given back\n")
    result = rmqtool(*args, "--yes")
    assert (result.code, result.err) == (0, "15 given back, 1 given back before\n")
    assert rmqtool(*args, "--dry-run").code == 0
    assert rmqtool(*args, "--yes", "--id", "none").code == 1
    assert rmqtool(*args, "--to", "x", "--yes").code == 2
    assert rmqtool("run", store, "--once", "--broker-conf", conf).code == 0  # what waits there is long due
    assert rmqtool("check", store, "--broker-conf", conf).code == 0


@by_turns(3)
def test_killed_at_every_step_none_is_given_back_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seam = Seam(monkeypatch)
    stop, done = 0, False
    while not done:
        stop += 1
        seam.begin()
        lab = Lab(tmp_path / str(stop))
        for n in range(5):
            lab.send(str(n), topic=DEAD, RETRY_TOPIC="T")
        lab.store.close()
        seam.begin(stop)
        try:
            with Store(lab.path, write=True, broker_conf=lab.settings, mend=True) as store:
                list(requeue(store, GROUP, None, "retry", never))
            done = True
        except Killed:
            pass
        seam.begin()
        with Store(lab.path, write=True, broker_conf=lab.settings, mend=True) as store:
            rows = list(requeue(store, GROUP, None, "retry", never))
            given = store.get(RETRY, 0, 0).messages
        assert {row.state for row in rows} <= {"before", "done"}, stop
        assert [stored.record.body for stored in given] == [b"0", b"1", b"2", b"3", b"4"], stop
        topics = Topics.parse((lab.path / "config" / "topics.json").read_bytes())
        # a table that was half written is restored, with the topic of the dead letters, which has messages
        assert {*topics.topics} - {DEAD} == {RETRY}, stop
    assert stop > 10


NOT_TAKEN = {
    "SCHEDULE_TOPIC_XXXX": "broker itself",
    HALF: "broker itself",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": "broker itself",
    "TRANS_CHECK_MAX_TIME_TOPIC": "broker itself",
    "OFFSET_MOVED_EVENT": "broker itself",
    "rmq_sys_wheel_timer": "broker itself",
    DEAD: "dead letters",
    "%DLQ%other": "dead letters",
    "%RETRY%other": "retries",
    "Gone": "gone",
    "Closed": "not writable",
    "a/b": "gone",
}


@pytest.mark.parametrize("topic", NOT_TAKEN)
def test_no_dead_letter_goes_where_nobody_reads_it(topic: str, tmp_path: Path) -> None:
    lab = Back(tmp_path)
    lab.send("before", topic="Gone")  # its queues may be there still
    lab.send("bad", topic=DEAD, RETRY_TOPIC=topic)
    lab.send("good", topic=DEAD, RETRY_TOPIC="T")
    topics = {name: {"topicName": name, "perm": perm} for name, perm in (("T", 6), ("Closed", 4), (DEAD, 6))}
    topics |= {name: {"topicName": name} for name in NOT_TAKEN if name not in ("Gone", "Closed", "a/b")}
    (lab.path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    rows = list(requeue(lab.store, GROUP, None, "origin", never))
    assert [row.state for row in rows] == ["refused", "done"]
    assert NOT_TAKEN[topic] in (rows[0].reason or "")
    assert lab.bodies() == ["good"]
    assert lab.bodies(topic) == {"Gone": ["before"], DEAD: ["bad", "good"]}.get(topic, [])


def test_a_dead_letter_goes_back_to_a_queue_that_there_is(tmp_path: Path) -> None:
    lab = Back(tmp_path)
    at = lab.send("a", queue_id=7)
    lab.send("a", topic=DEAD, RETRY_TOPIC="T", ORIGIN_MESSAGE_ID=offset_id(b"\x7f\0\0\1", 0, at))
    topics = {"T": {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4}}
    (lab.path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    [row] = requeue(lab.store, GROUP, None, "origin", never)
    assert (row.state, row.targetQueueId) == ("done", 0)  # it has four queues by now


@pytest.mark.parametrize("ways", [("retry", "origin"), ("origin", "retry"), ("retry", "origin", "retry")])
def test_given_back_is_given_back_wherever_to(ways: tuple[str, ...], tmp_path: Path) -> None:
    lab = Back(tmp_path)
    for n in range(3):
        lab.send(str(n), topic=DEAD, RETRY_TOPIC="T")
    for number, way in enumerate(ways):
        rows = list(requeue(lab.store, GROUP, None, way, never))
        assert [row.state for row in rows] == ["before" if number else "done"] * 3
        lab.again()
    assert sorted(lab.bodies() + lab.bodies(RETRY)) == ["0", "1", "2"]


@by_turns(3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_giving_back_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    lab = Back(tmp_path)
    for n in range(3000):
        lab.send(str(n), topic=DEAD, RETRY_TOPIC="T")
    lab.store.close()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in lab.settings.items()))
    args = [*RMQTOOL, "dlq", "requeue", lab.path, GROUP, "--yes", "--broker-conf", conf, "-o", "ndjson"]
    process = subprocess.Popen([str(word) for word in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (lab.path / "abort").exists():
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    done = sum(json.loads(line)["state"] == "done" for line in out.splitlines())
    assert (process.returncode, done < 3000) in ((128 + number, True), (0, False)), err
    assert not (lab.path / "abort").exists()
    assert rmqtool(*args[3:]).code == 0
    lab.again()
    assert sorted(lab.bodies(RETRY), key=int) == [str(n) for n in range(3000)]
