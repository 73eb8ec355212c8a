"""The service loop: simulated hours, errors, clocks set back, blocked levels."""

import errno
import time
from collections import Counter
from pathlib import Path

import pytest

from formats.config.files import DelayOffsets
from formats.topics import HALF, OP, SCHEDULE
from rmqtool import NewMessage, Store
from rmqtool.services.lookup.configs import known_offsets, offsets_of
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.transactions.half_messages import CHECK_GROUP
from rmqtool.services.transactions.rules import CheckRequest, Decision
from rmqtool.services.transactions.service import TransactionService
from rmqtool.store.append.answers import PutResult
from rmqtool.store.layout.broker_conf import BrokerConf
from tests.services.build import TIME, never
from tests.services.live import Lab

SECONDS = [delay // 1000 for delay in BrokerConf().delay_levels]


class Loop(Lab):
    """A store whose loop does not really wait."""

    def __init__(self, root: Path, **settings: str) -> None:
        super().__init__(root, **settings)
        self.waits: list[int] = []

    def wait(self, millis: int) -> None:
        self.waits.append(millis)
        self.now += millis


def test_two_hours(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    for level in range(1, 19):
        for n in range(3):
            lab.send(f"{level}-{n}", queue_id=level, DELAY=str(level))
    began = time.process_time()
    report = RunLoop(lab.store, never).run(lab.wait, until_delivered=True)
    assert time.process_time() - began < 20
    assert (report.delivered, report.nextTimestamp) == (54, None)
    assert report.endTimestamp - report.startTimestamp == 7_200_000
    for record in lab.records("T"):
        assert record.store_timestamp == TIME + 1000 * SECONDS[record.queue_id - 1]
    assert max(lab.waits) <= 1000
    assert "18:3" in (lab.path / "config" / "delayOffset.json").read_text()


def test_until_a_time(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    lab.send("a", DELAY="2")
    loop = RunLoop(lab.store, never)
    assert loop.run(lab.wait, until=TIME + 4999).delivered == 0
    assert TIME + 4999 <= lab.now < TIME + 5099
    lab.now = TIME + 5000
    assert loop.run(lab.wait, until=TIME + 5000).delivered == 0  # that time has come
    assert loop.run(lab.wait, once=True).delivered == 1


def test_offsets_are_written_now_and_then(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    path = lab.path / "config" / "delayOffset.json"
    for level in ("1", "2", "3"):
        lab.send(level, DELAY=level)
    seen = {}

    def wait(millis: int) -> None:
        lab.wait(millis)
        seen[lab.now - TIME] = path.read_text().count(":1") if path.exists() else 0

    RunLoop(lab.store, never).run(wait, until=TIME + 16_000)
    changes = [at for at, before in zip(list(seen)[1:], seen.values(), strict=False) if seen[at] != before]
    assert [(at, seen[at]) for at in changes] == [(6000, 2), (11_000, 3)]  # told one pause after 5 and 10 s


def test_transactions_round_by_round(tmp_path: Path) -> None:
    lab = Loop(tmp_path, transactionCheckInterval="30000", transactionCheckMax="3")
    service = TransactionService(lab.store, lab.state, never)
    for name in ("yes", "no", "never"):
        assert service.prepare(NewMessage(topic="T", body=name.encode()), "G").ok
    lab.state.persist()
    asked: list[tuple[int, str]] = []

    def decide(request: CheckRequest) -> Decision:
        name = request.record.body.decode()
        asked.append(((lab.now - TIME) // 1000, name))
        return {"yes": Decision.COMMIT, "no": Decision.ROLLBACK}.get(name, Decision.UNKNOWN)

    report = RunLoop(lab.store, never, decide).run(lab.wait, until=TIME + 200_000)
    assert asked == [(30, "yes"), (30, "no"), (30, "never"), (60, "never"), (90, "never")]
    assert (report.committed, report.rolledBack, report.unknown, report.givenUp) == (1, 1, 3, 1)
    assert lab.bodies() == ["yes"]
    offsets = offsets_of(known_offsets(lab.store.layout, never))
    assert (offsets[HALF, CHECK_GROUP], offsets[OP, CHECK_GROUP]) == ({0: 8}, {0: 2})


def test_without_an_answer_transactions_are_left_alone(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    assert TransactionService(lab.store, lab.state, never).prepare(NewMessage(topic="T"), "G").ok
    RunLoop(lab.store, never).run(lab.wait, until=TIME + 10**6)
    assert len(lab.records(HALF)) == 1


def test_a_level_that_stands_still_is_tried_again(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "x"}
    assert lab.store.append(NewMessage(topic=SCHEDULE, properties=properties, was_stored=True)).ok
    lab.send("other", DELAY="2")
    report = RunLoop(lab.store, lab.warnings.append).run(lab.wait, until=TIME + 61_000)
    assert (report.stuck, report.delivered) == ([1], 1)
    assert 5 <= len(lab.warnings) <= 8


def saved(lab: Lab) -> dict[int, int]:
    """The persisted offsets of the levels."""
    path = lab.path / "config" / "delayOffset.json"
    return dict(DelayOffsets.parse(path.read_bytes()).offsets) if path.exists() else {}


class Broke(Exception):
    """An unexpected error."""


@pytest.mark.parametrize("error", [Broke(), OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_what_was_delivered_before_an_error_does_not_come_twice(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Loop(tmp_path)
    for n in range(20):
        lab.send(str(n), DELAY="1")
    lab.now += 1000
    append, left = lab.store.append, [7]

    def failing(message: NewMessage) -> PutResult:
        left[0] -= 1
        if left[0] < 0:
            lab.store.live._broken = isinstance(error, OSError)  # as a write does that fails
            raise error
        return append(message)

    monkeypatch.setattr(lab.store, "append", failing)
    loop = RunLoop(lab.store, never)
    with pytest.raises(type(error)):
        loop.run(lab.wait, until_delivered=True)
    assert (loop.report.delivered, saved(lab)) == (7, {1: 7})
    monkeypatch.undo()
    lab.store.close()
    lab.store = Store(lab.path, write=True, broker_conf=lab.settings, mend=True, clock=lambda: lab.now)
    assert RunLoop(lab.store, never).run(lab.wait, until_delivered=True).delivered == 13
    assert Counter(lab.bodies()) == Counter(str(n) for n in range(20))


def test_offsets_are_written_while_a_pass_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Loop(tmp_path)
    for n in range(40):
        lab.send(str(n), DELAY="1")
    lab.now += 1000
    append, seen = lab.store.append, []

    def slow(message: NewMessage) -> PutResult:
        seen.append(saved(lab).get(1, 0))
        lab.now += 500
        return append(message)

    monkeypatch.setattr(lab.store, "append", slow)
    RunLoop(lab.store, never).run(lab.wait, until_delivered=True)
    assert sorted(set(seen)) == [0, 10, 20, 30]  # every five seconds, as the offsets of consumers
    assert max(n - at for n, at in enumerate(seen)) <= 10


@pytest.mark.parametrize("back", [30, 10_000, 10**9])
def test_a_clock_that_is_set_back_holds_up_nothing(back: int, tmp_path: Path) -> None:
    lab = Loop(tmp_path, transactionCheckInterval="30000")
    lab.send("first", DELAY="1")
    lab.send("later", DELAY="4")
    assert TransactionService(lab.store, lab.state, never).prepare(NewMessage(topic="T", body=b"half"), "G").ok
    asked: list[int] = []
    steps: list[int] = []

    def decide(_request: CheckRequest) -> Decision:
        asked.append(lab.now)
        return Decision.UNKNOWN

    loop = RunLoop(lab.store, never, decide)
    checks: list[int] = []
    check = loop.transactions.check
    loop.transactions.check = lambda *given, **more: checks.append(len(steps)) or check(*given, **more)  # type: ignore[method-assign, func-returns-value]

    def wait(millis: int) -> None:
        steps.append(millis)
        lab.wait(millis)
        if len(steps) == 5:
            lab.now -= back

    loop.run(wait, until_delivered=True, stop=lambda: len(steps) > 200)
    assert lab.bodies() == ["first", "later"]
    assert sum(steps) <= 33_000  # what was due in 30 s came then, or at once
    assert saved(lab) == {1: 1, 4: 1}
    later = RunLoop(lab.store, never, decide)
    later.transactions.check = loop.transactions.check  # type: ignore[method-assign]
    checks.clear()
    steps.clear()
    later.run(wait, stop=lambda: sum(steps) > 100_000)
    assert len(checks) >= 4  # one every 30 s, whatever the clock says


def test_until_delivered_does_not_wait_for_what_never_will_be(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "x"}
    assert lab.store.append(NewMessage(topic=SCHEDULE, properties=properties, was_stored=True)).ok
    lab.send("behind", DELAY="1")
    lab.send("other", DELAY="5")
    report = RunLoop(lab.store, lab.warnings.append).run(
        lab.wait, until_delivered=True, stop=lambda: lab.now > TIME + 10**7
    )
    assert (report.delivered, report.stuck, report.nextTimestamp) == (1, [1], None)
    assert 60_000 <= report.endTimestamp - report.startTimestamp < 62_000
    assert lab.bodies() == ["other"]


def test_a_message_that_would_come_back_for_ever_is_not_delivered(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    properties = {"DELAY": "1", "REAL_TOPIC": SCHEDULE, "REAL_QID": "0"}
    assert lab.store.append(NewMessage(topic=SCHEDULE, properties=properties, was_stored=True)).ok
    report = RunLoop(lab.store, lab.warnings.append).run(lab.wait, until_delivered=True)
    assert (report.delivered, report.stuck) == (0, [1])


def test_a_half_message_with_a_bad_level_stays_open(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    service = TransactionService(lab.store, lab.state, lab.warnings.append)
    assert not service.prepare(NewMessage(topic="T", properties={"DELAY": "+-3"}), "G").ok
    half = {"REAL_TOPIC": "T", "REAL_QID": "0", "PGROUP": "G", "TRAN_MSG": "true"}
    for level in ("+-3", "4294967295", "0"):  # by another producer
        message = NewMessage(topic=HALF, body=level.encode(), properties=half | {"DELAY": level}, was_stored=True)
        assert lab.store.append(message).ok
    lab.now += 10_000
    report = RunLoop(lab.store, lab.warnings.append, lambda _request: Decision.COMMIT).run(lab.wait, once=True)
    assert (report.committed, report.unknown, lab.bodies()) == (1, 2, ["0"])
    assert sum("not a number" in text for text in lab.warnings) == 2


def test_delays_with_an_extension_of_the_queue(tmp_path: Path) -> None:
    """Queue entries then point to their extension; the delay of the level still applies."""
    lab = Loop(tmp_path, enableConsumeQueueExt="true")
    for n in range(3):
        lab.send(f"soon {n}", DELAY="1")
        lab.send(f"later {n}", DELAY="2")
    assert (tmp_path / "store").exists()
    loop = RunLoop(lab.store, never)
    loop.run(lab.wait, until=TIME + 900)
    assert lab.bodies("T") == []
    loop.run(lab.wait, until=TIME + 3000)
    assert sorted(lab.bodies("T")) == [f"soon {n}" for n in range(3)]
    loop.run(lab.wait, until=TIME + 6000)
    assert len(lab.bodies("T")) == 6


@pytest.mark.parametrize(("engine", "seconds"), [("4.9", 60), ("5.3", 30)])
def test_transactions_are_checked_as_often_as_the_release_does(engine: str, seconds: int, tmp_path: Path) -> None:
    lab = Lab(tmp_path, engine=engine)
    service = TransactionService(lab.store, lab.state, never)
    assert service.prepare(NewMessage(topic="T", body=b"a"), "G").ok
    lab.state.persist()
    asked: list[int] = []

    def decide(_request: CheckRequest) -> Decision:
        asked.append((lab.now - TIME) // 1000)
        return Decision.COMMIT

    def wait(millis: int) -> None:
        lab.now += millis

    RunLoop(lab.store, lab.warnings.append, decide, check_at_once=False).run(wait, until=TIME + 100_000)
    assert asked == [seconds]
