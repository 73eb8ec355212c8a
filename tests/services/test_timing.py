"""Timer messages of 5.x in the service loop: wheel, timer log and checkpoint as in a broker."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from formats.message.properties import parse
from formats.variants import timer
from rmqtool import NewMessage, Store
from rmqtool.errors import Refused
from rmqtool.rules.releases import V5_3
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.timers.delivery import TimerService
from rmqtool.services.timers.timers import Timers
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.files import TimerFiles
from tests.amounts import by_turns, some
from tests.services.build import TIME, never
from tests.services.live import Lab
from tests.store.crashes import Killed, Seam
from tests.store.findings import check_store

pytestmark = pytest.mark.slow

HOUR = 3_600_000
UNITS = 5
SETTINGS = {"mappedFileSizeTimerLog": str(52 * UNITS + 16)}


@pytest.fixture(autouse=True)
def _small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel of an hour and eight minutes: 128 KiB instead of 38 MB. tests/interop uses the real one."""
    monkeypatch.setattr(timer, "SLOTS", 4096)
    monkeypatch.setattr(timer, "WHEEL_SIZE", 4096 * timer.SLOT_SIZE)


class Loop(Lab):
    """A 5.3 store whose loop does not really wait."""

    def __init__(self, root: Path, **settings: str) -> None:
        super().__init__(root, engine="5.3", **(SETTINGS | settings))

    def wait(self, millis: int) -> None:
        self.now += millis

    def later(self, body: str, millis: int, topic: str = "T", **properties: str) -> int:
        """Store a message due in ``millis``; returns its physical offset."""
        return self.send(body, topic=topic, queue_id=1, TIMER_DELIVER_MS=str(self.now + millis), **properties)

    def run(self, **options: int | bool | None) -> dict[str, object]:
        """Run the loop; returns its report."""
        return RunLoop(self.store, self.warnings.append).run(self.wait, **options).to_dict()  # type: ignore[arg-type]

    def layout(self) -> StoreLayout:
        return StoreLayout(str(self.path), BrokerConf(self.settings))

    def waiting(self) -> list[str]:
        """Bodies of waiting messages, from the files."""
        timers = Timers(CommitLog(self.layout()), self.now, never)
        log = timers.log
        found = (log.read(row.physicalOffset) for row in timers.pending() if not row.recalled)
        return sorted(located.record.body.decode() for located in found if located is not None)

    def problems(self) -> list[str]:
        """Findings of check after closing the store."""
        self.store.close()
        return [finding.code for finding in check_store(self.layout()) if is_problem(finding)]


def test_a_message_goes_on_when_its_slot_is_over(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    lab.later("a", 5_300)
    report = lab.run(until_delivered=True)
    assert (report["delivered"], report["nextTimestamp"]) == (1, None)
    (record,) = lab.records("T")
    out = (TIME + 5_300) // 1000 * 1000
    assert out + 1000 <= record.store_timestamp <= out + 1100
    assert record.queue_id == 1
    assert parse(record.properties) == {
        "UNIQ_KEY": "a", "TIMER_DELIVER_MS": str(TIME + 5_300), "TIMER_OUT_MS": str(out), "REAL_TOPIC": "T",
        "REAL_QID": "1", "TIMER_ENQUEUE_MS": str(TIME // 1000 * 1000), "TIMER_DEQUEUE_MS": str(record.store_timestamp),
    }  # fmt: skip
    assert lab.problems() == []
    metrics = json.loads((lab.path / "config" / "timermetrics").read_text())
    assert metrics["timingCount"]["T"]["count"] == 0
    assert metrics["dataVersion"]["counter"] == 2


def test_many_over_files_and_starts(tmp_path: Path) -> None:
    lab, chosen = Loop(tmp_path), Random(1)
    times = {f"{n}": chosen.randrange(1_000, 60_000) for n in range(60)}
    for body, time in times.items():
        lab.later(body, time)
    end = lab.now + 70_000
    while lab.now < end:
        lab.run(until=min(lab.now + 9_000, end))
        lab.again()
        left = sorted(body for body in times if body not in lab.bodies())
        assert lab.waiting() == left
    assert sorted(lab.bodies()) == sorted(times)
    order = [times[body] // 1000 for body in lab.bodies()]
    assert order == sorted(order)
    assert len(list((lab.path / "timerlog").iterdir())) >= 12
    assert lab.problems() == []


def test_one_that_comes_when_it_is_due(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    lab.later("a", 500)
    lab.now += 2_000
    assert lab.run(once=True)["delivered"] == 1
    (properties,) = lab.properties("T")
    assert properties["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    assert not json.loads((lab.path / "config" / "timermetrics").read_text() if (
        lab.path / "config" / "timermetrics").exists() else "{}")  # fmt: skip
    for _ in range(3):
        lab.again()
        assert lab.run(once=True)["delivered"] == 0
    assert lab.bodies() == ["a"]
    assert lab.problems() == []


def test_far_ones_are_moved_on(tmp_path: Path) -> None:
    lab = Loop(tmp_path, timerRollWindowSlot="30")
    lab.later("near", 35_000)  # a short way behind the window: half of it first
    lab.later("far", 95_000)
    report = lab.run(until_delivered=True)
    assert (report["delivered"], report["rolled"]) == (2, 4)
    found = {properties["UNIQ_KEY"]: properties["TIMER_ROLL_TIMES"] for properties in lab.properties("T")}
    assert found == {"near": "1", "far": "3"}
    for record, millis in zip(lab.records("T"), (35_000, 95_000), strict=True):
        assert TIME + millis <= record.store_timestamp <= TIME + millis + 1_100
    assert lab.problems() == []


def test_a_mark_that_came_right_before_a_kill_counts_after_the_time_is_over(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    lab.later("a", 9_500)
    lab.later("b", 9_500)
    lab.run(until=lab.now + 1_000)
    lab.later("mark", 8_500, TIMER_DEL_UNIQKEY="T+a")
    lab.again()  # the wheel does not have it yet
    lab.now += 60_000
    report = lab.run(until_delivered=True)
    assert (report["delivered"], report["recalled"]) == (1, 1)
    assert lab.bodies() == ["b"]
    assert lab.problems() == []


def test_recalled_ones(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    for body in "abc":
        lab.later(body, 9_500)
    lab.later("other", 9_500, topic="U")
    for n, (key, time) in enumerate([("T+a", 9_500), ("T+b", 5_500), ("c", 9_500), ("T+other", 9_500)]):
        lab.later(f"mark{n}", time, TIMER_DEL_UNIQKEY=key)
    lab.run(until=lab.now + 1_000)
    lab.again()
    assert lab.waiting() == ["b", "c", "other"]
    report = lab.run(until_delivered=True)
    assert (report["delivered"], report["recalled"]) == (3, 1)
    assert (sorted(lab.bodies()), lab.bodies("U")) == (["b", "c"], ["other"])
    assert lab.problems() == []
    metrics = json.loads((lab.path / "config" / "timermetrics").read_text())["timingCount"]
    assert (metrics["T"]["count"], metrics["U"]["count"]) == (0, 0)


def test_a_message_that_cannot_be_taken_up_holds_up_what_follows(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    lab.later("a", 5_000)
    assert lab.store.append(NewMessage(topic=timer.TOPIC, body=b"bad", was_stored=True)).ok
    lab.later("b", 5_000)
    report = lab.run(until_delivered=True)
    assert (report["delivered"], report["stuck"]) == (1, [0])
    assert lab.bodies() == ["a"]
    assert "queue offset 1 cannot be taken up (TIMER_OUT_MS is missing)" in lab.warnings[0]


def test_messages_that_go_nowhere_are_passed_over(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    for topic in (timer.TOPIC, "SCHEDULE_TOPIC_XXXX", "a/b"):
        properties = {"TIMER_OUT_MS": str(lab.now // 1000 * 1000 + 3_000), "REAL_TOPIC": topic, "REAL_QID": "0"}
        assert lab.store.append(NewMessage(topic=timer.TOPIC, properties=properties)).ok
    lab.later("a", 5_000)
    report = lab.run(until_delivered=True)
    assert (report["delivered"], report["discarded"]) == (1, 3)
    assert len(lab.warnings) == 3


def test_a_stop_in_the_middle_of_a_slot(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    for n in range(20):
        lab.later(f"{n}", 5_000)
    loop = RunLoop(lab.store, never)
    loop.run(lab.wait, once=True)
    lab.now += 10_000
    asked = [0]

    def stop() -> bool:
        asked[0] += 1
        return asked[0] % 4 == 0

    loop.step(stop)
    assert 0 < len(lab.bodies()) < 20
    loop.finish()
    lab.again()
    lab.run(once=True)
    assert sorted(lab.bodies(), key=int) == [f"{n}" for n in range(20)]


def test_after_weeks_nothing_is_forgotten(tmp_path: Path) -> None:
    """A broker skips slots more than a week old."""
    lab = Loop(tmp_path)
    lab.later("a", 5_000)
    lab.run(once=True)
    lab.now += 30 * 86_400_000
    lab.later("b", 5_000)
    assert lab.run(until_delivered=True)["delivered"] == 2


def test_a_broker_without_a_timer_says_so(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    lab.later("a", 5_000)
    lab.store.close()
    with Store(lab.path, write=True, broker_conf=lab.settings | {"timerWheelEnable": "false"}, release=V5_3) as store:
        RunLoop(store, lab.warnings.append).run(lab.wait, once=True)
    assert "has no timer" in lab.warnings[0]
    assert not (lab.path / "timerwheel").exists()


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    for n in range(3):
        lab.later(f"{n}", 9_000)
    lab.run(once=True)
    (lab.path / "timerlog" / f"{0:020d}").write_bytes(bytes(52 * UNITS + 16))
    lab.again()
    with pytest.raises(Refused, match=f"rmqtool rebuild {lab.path} timer"):
        lab.run(once=True)
    (lab.path / "config" / "timercheck").unlink()
    lab.again()
    with pytest.raises(Refused, match="timercheck: missing"):
        lab.run(once=True)


# -- killed at every step ---------------------------------------------------------------------------------------------


def prepare(path: Path, conf: dict[str, str]) -> None:
    with Store.create(path, broker_conf=conf, release=V5_3, clock=lambda: TIME) as store:
        for n in range(12):
            asked = {"TIMER_DELIVER_MS": str(TIME + (1_500 + 400 * n if n != 6 else 15_000)), "UNIQ_KEY": f"k{n}"}
            assert store.append(NewMessage(topic="T", body=b"%d" % n, properties=asked)).ok
        mark = {"TIMER_DELIVER_MS": str(TIME + 15_000), "TIMER_DEL_UNIQKEY": "T+k6"}
        assert store.append(NewMessage(topic="T", body=b"mark", properties=mark)).ok


def serve(path: Path, conf: dict[str, str], start: int) -> int:
    now = [start]

    def wait(millis: int) -> None:
        now[0] += millis

    with Store(path, write=True, broker_conf=conf, release=V5_3, sync_flush=True, mend=True, clock=lambda: now[0]) as s:
        loop = RunLoop(s, lambda _text: None)
        loop.run(wait, until=start + 3_000)
        late = {"TIMER_DELIVER_MS": str(now[0] + 700), "UNIQ_KEY": "late"}
        if start == TIME and not s.query_key("T", "late") and not s.query_key(timer.TOPIC, "late"):
            assert s.append(NewMessage(topic="T", body=b"late", properties=late)).ok
        loop.run(wait, until=start + 20_000)
    return now[0]


@by_turns(13)
@pytest.mark.parametrize("ending", ["killed", "power cut", "power cut here and there"])
def test_each_is_delivered_once(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = Loop(tmp_path / "for-settings", timerRollWindowSlot="3").settings
    seam = Seam(monkeypatch)
    steps, stop = None, 0
    while steps is None:
        stop += 11 if ending == "killed" else 23
        path = tmp_path / f"s{stop}"
        seam.begin()
        prepare(path, conf)
        seam.begin_with(path, stop)
        try:
            serve(path, conf, TIME)
            steps = stop
        except Killed:
            pass
        seam.end(ending, path, stop)
        serve(path, conf, TIME + 4_000)
        serve(path, conf, TIME + 30_000)
        with Store(path, broker_conf=conf) as store:
            found = Counter(located.record.body.decode() for located in store.get("T", 0, 0, 1000).messages)
            assert found.keys() - {"late"} == {str(n) for n in range(12) if n != 6}, (stop, found)
        # a broker delivers again what it delivered since it last wrote its position
        assert max(found.values()) == 1, (stop, found)
        layout = StoreLayout(str(path), BrokerConf(conf))
        assert [finding.code for finding in check_store(layout) if finding.severity == "error"] == [], stop
        assert TimerFiles(layout).checkpoint is not None
    assert steps > 60


def test_a_kill_while_the_queue_is_read_again_after_a_kill(tmp_path: Path) -> None:
    """The timer log was ahead of its checkpoint; what it has must not come into the wheel once more."""
    lab = Loop(tmp_path)
    check = lab.path / "config" / "timercheck"
    lab.later("first", 1_000)
    lab.run(once=True)
    before = check.read_bytes()
    for n in range(6):
        lab.later(f"{n}", 5_000 + 1_000 * (n % 2))
    lab.run(once=True)
    lab.store.live.flush()
    lab.store.live.abandon()
    check.write_bytes(before)  # as if it had been killed before it was written
    lab.again(mend=True)
    timers, left = TimerService(lab.store, never), [2]

    def after_each() -> None:
        left[0] -= 1
        if not left[0]:
            timers.persist()
            raise Killed

    with pytest.raises(Killed):
        timers.step(lab.now, after_each=after_each)
    lab.store.live.abandon()
    lab.again(mend=True)
    lab.run(until=lab.now + 20_000)
    assert sorted(lab.bodies("T")) == sorted(["first", *map(str, range(6))])
    assert lab.problems() == []


# -- the clock is set back --------------------------------------------------------------------------------------------


def arrivals(lab: Loop, topic: str = "T") -> dict[str, int]:
    """When each message arrived, ms by the clock at that time."""
    return {record.body.decode(): record.store_timestamp for record in lab.records(topic)}


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_is_set_back_holds_up_no_timer(restart: bool, tmp_path: Path) -> None:
    """A delay of ten seconds lasts ten seconds; an absolute time refers to the clock at delivery."""
    lab = Loop(tmp_path)
    lab.send("passed", TIMER_DELAY_SEC="2")
    for seconds in (10, 20, 30):
        lab.send(f"after {seconds}", TIMER_DELAY_SEC=str(seconds))
    lab.send("milliseconds", TIMER_DELAY_MS="20000")
    named = NewMessage(
        topic="T", queue_id=1, body=b"named", born_timestamp=TIME - 2 * HOUR,
        properties={"TIMER_DELIVER_MS": str(TIME + 20_000)},
    )  # fmt: skip
    assert lab.store.append(named).ok
    loop = RunLoop(lab.store, lab.warnings.append)
    loop.run(lab.wait, until=TIME + 5000)
    begin = lab.now - HOUR // 2 - 5000  # when the messages were stored, by the new clock
    lab.now -= HOUR // 2
    if restart:
        lab.again()
        loop = RunLoop(lab.store, lab.warnings.append)
    loop.run(lab.wait, until=lab.now + 2000)
    lab.send("new", TIMER_DELAY_SEC="10")
    new = lab.now
    loop.run(lab.wait, until=begin + 60_000)
    came = arrivals(lab)
    assert lab.bodies("T").count("passed") == 1
    assert sorted(came) == ["after 10", "after 20", "after 30", "milliseconds", "new", "passed"]
    for body, wanted in (("after 10", begin + 10_000), ("after 20", begin + 20_000), ("after 30", begin + 30_000),
                         ("milliseconds", begin + 20_000), ("new", new + 10_000)):  # fmt: skip
        assert abs(came[body] - wanted) <= 3000, body
    loop.run(lab.wait, until=TIME + 30_000)
    assert arrivals(lab)["named"] >= TIME + 20_000
    assert Counter(lab.bodies("T")).most_common(1)[0][1] == 1
    assert lab.problems() == []


def test_the_sender_was_ahead_with_the_broker(tmp_path: Path) -> None:
    """Both clocks were an hour ahead, as on one machine: an absolute time was computed with them."""
    lab = Loop(tmp_path)
    lab.later("named", 10_000)
    loop = RunLoop(lab.store, lab.warnings.append)
    loop.run(lab.wait, until=TIME + 2000)
    lab.now -= HOUR // 2
    back = lab.now
    loop.run(lab.wait, until=back + 20_000)
    assert abs(arrivals(lab)["named"] - (back + 8000)) <= 3000


def test_what_is_not_taken_up_when_the_clock_is_set_back(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    lab.send("late", TIMER_DELAY_SEC="10")
    lab.now -= HOUR
    lab.again()
    back = lab.now
    RunLoop(lab.store, lab.warnings.append).run(lab.wait, until=back + 30_000)
    assert abs(arrivals(lab)["late"] - (back + 10_000)) <= 3000


def test_a_recall_finds_what_was_moved(tmp_path: Path) -> None:
    """Both a mark waiting with its message, and one that arrives after the clock is back."""
    lab = Loop(tmp_path)
    for name in ("early", "afterwards", "kept"):
        lab.send(name, TIMER_DELAY_SEC="20")
    loop = RunLoop(lab.store, lab.warnings.append)

    def recall(name: str) -> None:
        mark = {"TIMER_DEL_UNIQKEY": f"T+{name}", "TIMER_DELIVER_MS": str(TIME + 20_000)}
        lab.send(f"mark of {name}", **mark)  # type: ignore[arg-type]

    recall("early")
    loop.run(lab.wait, until=TIME + 3000)
    lab.now -= HOUR // 2
    back = lab.now
    loop.run(lab.wait, until=back + 3000)
    recall("afterwards")
    loop.run(lab.wait, until=back + 30_000)
    assert lab.bodies("T") == ["kept"]
    loop.run(lab.wait, until=TIME + 30_000)
    assert lab.bodies("T") == ["kept"]
    assert lab.problems() == []


def test_a_clock_that_is_set_back_and_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost or held up; nothing is delivered twice."""
    seam = Seam(monkeypatch)
    stop, ended, seen = 0, False, 0
    while not ended:
        stop += some(41, 1)
        seam.begin()
        lab = Loop(tmp_path / str(stop))
        for n in range(3):
            lab.send(f"passed {n}", TIMER_DELAY_SEC=str(1 + n))
        for n in range(8):
            lab.send(f"waits {n}", TIMER_DELAY_SEC=str(20 + n))
        loop = RunLoop(lab.store, lab.warnings.append)
        loop.run(lab.wait, until=TIME + 6000)
        lab.now -= HOUR // 2
        back = lab.now
        seam.begin(stop)
        try:
            loop.run(lab.wait, until=back + 2000)
            lab.send("new", TIMER_DELAY_SEC="5")
            loop.run(lab.wait, until=back + 30_000)
            ended = True
        except Killed:
            seen += 1
        seam.begin()
        lab.again(mend=True)
        RunLoop(lab.store, lab.warnings.append).run(lab.wait, until=back + 60_000)
        came = Counter(lab.bodies("T"))
        wanted = {f"passed {n}" for n in range(3)} | {f"waits {n}" for n in range(8)}
        assert came.keys() - {"new"} == wanted, (stop, came)
        assert all(came[f"passed {n}"] == 1 for n in range(3)), (stop, came)
        assert lab.problems() == [], stop
    assert came["new"] == 1
    assert seen > 3
