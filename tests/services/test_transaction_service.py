"""Half messages, commit and rollback, and every condition of the check."""

from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from formats.message.properties import REAL_QID, REAL_TOPIC, parse
from formats.topics import GIVEN_UP, HALF, OP, SCHEDULE
from rmqtool import NewMessage
from rmqtool.rules.sending import Rejected
from rmqtool.services.lookup.configs import topics_of
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.transactions.half_messages import CHECK_GROUP, Transactions
from rmqtool.services.transactions.rules import CheckCounts, CheckRequest, Decision
from rmqtool.services.transactions.service import TransactionService
from rmqtool.store.append.answers import PutResult
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.conftest import Unpacked
from tests.services.build import TIME, never
from tests.services.live import Lab

CHECK_TIMES, PREPARED, IMMUNITY = (
    "TRANSACTION_CHECK_TIMES",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
)
HOUR = 3_600_000


class Desk(Lab):
    """A store with its transactions."""

    def __init__(self, root: Path, *, engine: str = "4.9", **settings: str) -> None:
        super().__init__(root, engine=engine, **settings)
        self.service = TransactionService(self.store, self.state, self.warnings.append)
        self.asked: list[CheckRequest] = []

    def prepare(self, body: str, **properties: str) -> PutResult:
        properties = {"UNIQ_KEY": body, **properties}
        message = NewMessage(topic="T", queue_id=2, body=body.encode(), properties=properties, sys_flag=5, flag=9)
        result = self.service.prepare(message, "G")
        assert result.ok
        return result

    def end(self, half: PutResult, decision: Decision, **more: bool) -> PutResult | None:
        return self.service.end(half.physical_offset, half.queue_offset, "G", decision, **more)

    def check(self, *answers: Decision) -> CheckCounts:
        """Run one round with these answers in order, then unknown."""
        left = list(answers)

        def decide(request: CheckRequest) -> Decision:
            self.asked.append(request)
            return left.pop(0) if left else Decision.UNKNOWN

        return self.service.check(decide)

    def offsets(self) -> tuple[int | None, int | None]:
        half, op = (self.state.offset(topic, CHECK_GROUP, 0) for topic in (HALF, OP))
        return half, op

    def ends(self) -> list[str]:
        return self.bodies(OP)

    def killed(self) -> None:
        """Simulate a kill before the position of the check is persisted, and a restart."""
        self.again()
        self.service = TransactionService(self.store, self.state, self.warnings.append)

    def states(self) -> dict[str, str | None]:
        """The state of each transaction according to the reader."""
        self.state.persist()
        self.store.dispatch()
        return {info.msgId: info.state for info in Transactions(CommitLog(self.store.layout), never).all()}


@pytest.mark.parametrize(("engine", "case"), [("4.9", "broker"), ("5.3", "broker-5.3.3"), ("5.5", "broker-5.5.0")])
def test_a_committed_message_has_the_properties_that_a_broker_gives_it(
    engine: str, case: str, golden: Unpacked, tmp_path: Path
) -> None:
    """Brokers up to 5.3 leave the properties that name the queue of a half message; from 5.4 on they take them off."""
    theirs = []
    for item in CommitLog(StoreLayout(str(golden(case)))).walk():
        assert isinstance(item, LocatedRecord)
        properties = parse(item.record.properties)
        if properties.get("TRAN_MSG") == "true" and item.record.topic not in (HALF.encode(), GIVEN_UP.encode()):
            theirs.append({REAL_TOPIC, REAL_QID} & properties.keys())
    desk = Desk(tmp_path / "store", engine=engine)
    done = desk.end(desk.prepare("one"), Decision.COMMIT)
    assert done is not None
    located = CommitLog(desk.store.layout).read(done.physical_offset)
    assert located is not None
    ours = {REAL_TOPIC, REAL_QID} & parse(located.record.properties).keys()
    assert theirs
    assert [ours] * len(theirs) == theirs


def test_prepare_commit_rollback(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first, second = desk.prepare("one", TAGS="t"), desk.prepare("two")
    half = desk.records(HALF)[0]
    assert (half.queue_id, half.sys_flag, half.flag) == (0, 1, 9)  # compressed, but no transaction any more
    assert desk.properties(HALF)[0] == {
        "UNIQ_KEY": "one", "TAGS": "t", "TRAN_MSG": "true", "PGROUP": "G", REAL_TOPIC: "T", REAL_QID: "2"
    }  # fmt: skip
    assert desk.bodies() == []
    desk.now += 50
    committed = desk.end(first, Decision.COMMIT)
    assert committed is not None
    assert (committed.topic, committed.queue_id, committed.queue_offset) == ("T", 2, 0)
    assert desk.end(second, Decision.ROLLBACK) is None
    [message] = desk.records("T")
    assert (message.sys_flag, message.flag, message.body) == (9, 9, b"one")
    assert message.prepared_transaction_offset == first.physical_offset
    assert (message.born_timestamp, message.store_timestamp) == (TIME, TIME + 50)
    assert desk.properties("T")[0] == desk.properties(HALF)[0]
    assert desk.ends() == ["0", "1"]
    assert desk.properties(OP) == [{"TAGS": "d", "WAIT": "true"}] * 2
    assert desk.states() == {"one": "committed", "two": "rolled-back"}
    topics = topics_of(desk.store.layout, never)
    assert topics is not None
    assert list(topics.topics) == [HALF]  # 4.9 does not write down the other one
    assert topics.data_version.counter == 1


def test_the_ends_that_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    half = desk.prepare("a")
    size = desk.store.live.end
    cases = [
        (half.physical_offset + 8, 0, "G", "Find prepared"),
        (1 << 40, 0, "G", "Find prepared"),
        (half.physical_offset, 0, "other", "group wrong"),
        (half.physical_offset, 1, "G", "table offset wrong"),
    ]
    for physical, queue_offset, group, text in cases:
        with pytest.raises(Rejected, match=text):
            desk.service.end(physical, queue_offset, group, Decision.COMMIT)
    assert desk.end(half, Decision.UNKNOWN) is None
    assert desk.store.live.end == size
    assert desk.service.prepare(NewMessage(topic="T", properties={"DELAY": "2"}), "G").reason
    assert desk.service.prepare(NewMessage(topic="T", properties={"DELAY": "0"}), "G").ok


def test_as_5_3_does(tmp_path: Path) -> None:
    desk = Desk(tmp_path, engine="5.3")
    half = desk.prepare("a", **{IMMUNITY: "10"})
    assert desk.properties(HALF)[0]["__transactionId__"] == "a"
    desk.now += 10_001
    with pytest.raises(Rejected) as caught:
        desk.end(half, Decision.COMMIT)
    assert caught.value.code == 604
    assert desk.end(half, Decision.COMMIT, from_check=True)
    assert desk.ends() == ["0,"]
    assert desk.check() == CheckCounts()
    assert desk.offsets() == (1, 1)


def test_the_batched_ends_of_5_x_are_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path, engine="5.3")
    for n in range(5):
        desk.prepare(str(n))
    for body in (b"0,3,", b"1,9,"):
        assert desk.store.append(NewMessage(topic=OP, body=body, tags="d")).ok
    desk.now += 7000
    assert desk.check() == CheckCounts(checked=2, unknown=2)
    assert [request.message_id for request in desk.asked] == ["2", "4"]
    assert desk.offsets() == (5, 1)  # the second op message speaks of a half message that is still to come


def test_only_what_is_old_enough_is_asked_about(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.prepare("old")
    desk.now += 3000
    desk.prepare("new")
    desk.now += 3000
    assert desk.check() == CheckCounts()  # exactly as old as the immunity: the broker would spin for a millisecond
    desk.now += 1
    assert desk.check(Decision.COMMIT) == CheckCounts(checked=1, committed=1)
    [request] = desk.asked
    assert (request.producer_group, request.message_id, request.check_times) == ("G", "old", 1)
    assert (request.record.topic, request.record.queue_id, request.record.body) == (b"T", 2, b"old")
    assert (request.record.queue_offset, request.record.flag) == (2, 0)  # of the copy; flags are lost on the way
    assert desk.bodies() == ["old"]
    assert desk.ends() == ["2"]
    assert desk.offsets() == (1, None)
    assert desk.check() == CheckCounts()
    desk.now += 3000
    assert desk.check(Decision.ROLLBACK) == CheckCounts(checked=1, rolledBack=1)
    assert desk.offsets() == (3, 1)
    assert desk.check() == CheckCounts()
    assert desk.offsets() == (4, 2)
    assert desk.states() == {"old": "committed", "new": "rolled-back"}


def test_what_has_ended_is_passed(tmp_path: Path) -> None:
    """More op messages than one pull returns, in a different order."""
    desk = Desk(tmp_path)
    halves = [desk.prepare(str(n)) for n in range(100)]
    for half in reversed(halves[:99]):
        desk.end(half, Decision.COMMIT if half.queue_offset % 2 else Decision.ROLLBACK)
    desk.now += 6001
    assert desk.check() == CheckCounts(checked=1, unknown=1)
    assert desk.asked[0].message_id == "99"
    assert desk.offsets() == (100, 99)


def test_a_half_message_is_given_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path, transactionCheckMax="3", transactionTimeOut="1000")
    desk.prepare("a")
    for round_number in range(3):
        desk.now += 1001
        assert desk.check() == CheckCounts(checked=1, unknown=1)
        assert desk.properties(HALF)[-1][CHECK_TIMES] == str(round_number + 1)
    desk.now += 1001
    assert desk.check() == CheckCounts(givenUp=1)
    assert desk.bodies(GIVEN_UP) == ["a"]
    assert desk.properties(GIVEN_UP)[0][CHECK_TIMES] == "3"
    assert desk.records(GIVEN_UP)[0].sys_flag == 1
    assert desk.offsets() == (4, None)
    assert desk.ends() == []
    assert desk.states() == {"a": "given-up"}
    assert desk.state.topic(GIVEN_UP) is not None
    assert desk.check() == CheckCounts()


def test_what_is_older_than_the_log_keeps_is_given_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path, fileReservedTime="1")
    desk.prepare("a")
    desk.now += HOUR
    assert desk.check() == CheckCounts(checked=1, unknown=1)
    desk.now += 1
    assert desk.check() == CheckCounts(givenUp=1)
    assert desk.properties(GIVEN_UP)[0][CHECK_TIMES] == "2"


def test_a_message_with_its_own_immunity(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    patient = desk.prepare("patient", **{IMMUNITY: "60"})
    desk.prepare("plain")
    desk.now += 7000
    assert desk.check() == CheckCounts(immune=1, checked=1, unknown=1)
    assert [request.message_id for request in desk.asked] == ["plain"]
    renewed = desk.properties(HALF)[2]
    assert (renewed["UNIQ_KEY"], renewed[PREPARED], renewed[CHECK_TIMES]) == ("patient", "0", "1")
    desk.now += 50_000
    assert desk.check().immune == 1
    assert desk.properties(HALF)[4][PREPARED] == "0"
    desk.now += 10_000
    assert desk.check().checked == 2
    assert [request.message_id for request in desk.asked[-2:]] == ["patient", "plain"]
    assert patient.queue_offset == 0


def test_an_immune_message_that_has_ended(tmp_path: Path) -> None:
    """Its op message names its first position, which the copy remembers."""
    desk = Desk(tmp_path)
    first = desk.prepare("first")
    patient = desk.prepare("patient", **{IMMUNITY: "600"})
    desk.now += 7000
    # the first is younger than its copy: so the offset of the check stays in front of both
    copy = {"UNIQ_KEY": "patient", IMMUNITY: "600", PREPARED: "1", CHECK_TIMES: "1", "TRAN_MSG": "true"}
    assert desk.store.append(NewMessage(topic=HALF, body=b"patient", properties=copy, born_timestamp=TIME)).ok
    desk.now += 1
    desk.state.set_offset(HALF, CHECK_GROUP, 0, 0)
    desk.end(patient, Decision.COMMIT)
    desk.end(first, Decision.ROLLBACK)
    assert desk.check() == CheckCounts(immune=1)  # the first place was passed as ended before the copy came up
    assert desk.asked == []


@pytest.mark.parametrize("text", ["x", "-1"])
def test_an_immunity_that_is_no_number_is_that_of_all(text: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.prepare("a", **{IMMUNITY: text})
    desk.now += 6001
    assert desk.check() == CheckCounts(checked=1, unknown=1)


def test_a_place_that_is_no_number_waits_for_the_next_round(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.prepare("a", **{IMMUNITY: "60", PREPARED: "-1"})
    desk.now += 7000
    assert desk.check() == CheckCounts()
    desk.now += 60_000
    assert desk.check() == CheckCounts(checked=1, unknown=1)


def test_from_the_future(tmp_path: Path) -> None:
    """Stored after the start of the round: checked later. Born after it: a clock is wrong, so the producer is asked."""
    desk = Desk(tmp_path)
    desk.now += 10_000
    desk.prepare("a")
    desk.now -= 5000
    assert desk.check() == CheckCounts()
    half = NewMessage(topic="T", body=b"b", born_timestamp=desk.now + 9000, store_timestamp=desk.now - 1)
    desk.state.set_offset(HALF, CHECK_GROUP, 0, 1)
    assert desk.service.prepare(half, "G").ok
    assert desk.check(Decision.COMMIT) == CheckCounts(checked=1, committed=1)


def test_a_round_ends_after_a_minute(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for n in range(10):
        desk.prepare(str(n))
    desk.now += 7000

    def slow(request: CheckRequest) -> Decision:
        desk.now += 20_000
        return Decision.COMMIT

    assert desk.service.check(slow).committed == 4  # the fourth begins at 60 s sharp
    assert desk.offsets()[0] == 4
    assert desk.service.check(slow).committed == 4
    assert sorted(desk.bodies()) == [str(n) for n in range(8)]


def test_a_round_can_be_stopped(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for n in range(5):
        desk.prepare(str(n))
    desk.now += 7000
    answers = iter([False, False, True])
    assert desk.service.check(lambda _request: Decision.COMMIT, lambda: next(answers)).committed == 2
    assert desk.offsets()[0] == 2
    assert desk.service.check(lambda _request: Decision.COMMIT).committed == 3


def test_ends_that_say_nothing_do_not_stop_the_offset(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    half = desk.prepare("a")
    for body, tag in ((b"x", "d"), (b"", "d"), (b"0", "e")):
        assert desk.store.append(NewMessage(topic=OP, body=body, tags=tag)).ok
    desk.end(half, Decision.COMMIT)
    desk.now += 7000
    assert desk.check() == CheckCounts()
    assert desk.offsets() == (1, 4)


def test_offsets_that_cannot_be(tmp_path: Path) -> None:
    """Beyond the end of the queue, the broker returns to its end; also for the op queue."""
    desk = Desk(tmp_path)
    half = desk.prepare("a")
    desk.end(half, Decision.COMMIT)
    for at in (-3, 99):
        desk.state.set_offset(HALF, CHECK_GROUP, 0, at)
        desk.state.set_offset(OP, CHECK_GROUP, 0, at)
        desk.now += 7000
        assert desk.check() == CheckCounts()
    assert desk.offsets() == (1, 1)


def test_a_half_message_that_cannot_be_committed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    properties = {"TRAN_MSG": "true", "PGROUP": "G", "UNIQ_KEY": "bad"}
    assert desk.store.append(NewMessage(topic=HALF, body=b"bad", properties=properties)).ok
    desk.prepare("good")
    desk.now += 7000
    assert desk.check(Decision.COMMIT, Decision.COMMIT) == CheckCounts(checked=2, committed=1, unknown=1)
    assert desk.bodies() == ["good"]
    assert REAL_TOPIC in desk.warnings[0]


def test_a_delayed_half_message_is_not_lost_by_the_check(tmp_path: Path) -> None:
    """In a broker the copy would wait in a delay level, and be dropped there."""
    desk = Desk(tmp_path)
    properties = {"TRAN_MSG": "true", "PGROUP": "G", "DELAY": "1", REAL_TOPIC: "T", REAL_QID: "0"}
    assert desk.store.append(NewMessage(topic=HALF, body=b"a", properties=properties, was_stored=True)).ok
    desk.now += 7000
    assert desk.check().checked == 1
    assert desk.records(SCHEDULE) == []
    assert len(desk.records(HALF)) == 2
    desk.now += 7000
    assert desk.check(Decision.COMMIT).committed == 1
    assert len(desk.records(SCHEDULE)) == 1  # the message itself is delayed now


def test_op_messages_that_have_expired(tmp_path: Path) -> None:
    """The log begins after the first of them: the remaining ones still count, and nothing is checked twice."""
    desk = Desk(tmp_path, mappedFileSizeCommitLog="4096")
    halves = [desk.prepare(f"a{n}") for n in range(2)]
    desk.end(halves[0], Decision.ROLLBACK)
    for n in range(40):
        desk.send(f"filler {n}" * 10)
    halves += [desk.prepare(f"b{n}") for n in range(3)]
    desk.end(halves[2], Decision.COMMIT)
    desk.end(halves[4], Decision.ROLLBACK)
    desk.state.persist()
    first, second = sorted((desk.path / "commitlog").iterdir())[:2]
    desk.store.close()
    first.unlink()
    assert second.exists()
    desk.again()
    service = TransactionService(desk.store, desk.state, desk.warnings.append)
    desk.service = service
    assert desk.offsets() == (None, None)
    desk.now += 7000
    assert desk.check() == CheckCounts(checked=1, unknown=1)
    assert [request.message_id for request in desk.asked] == ["b1"]
    assert desk.offsets() == (5, 3)


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_kills_neither_double_nor_multiply(engine: str, tmp_path: Path) -> None:
    """The position of the check was not persisted: the queues show which copies are open."""
    desk = Desk(tmp_path, engine=engine)
    for n in range(50):
        desk.prepare(str(n))
    for kill in range(5):
        desk.now += 7000
        # the first kill comes before any answer, then two of three are answered
        answers = [Decision.UNKNOWN] * 50 if kill == 0 else [Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN] * 17
        desk.check(*answers)
        desk.killed()
    assert len(desk.asked) == 50 + 50 + 16 + 5 + 1
    assert len(desk.records(HALF)) == 50 + len(desk.asked)
    desk.now += 7000
    assert desk.check() == CheckCounts()
    assert set(Counter(desk.bodies()).values()) == {1}
    assert (len(desk.bodies()), len(desk.ends())) == (17 + 6 + 2 + 1, 50)


def test_a_commit_that_was_not_ended_by_an_op_message(tmp_path: Path) -> None:
    """After a kill between the two writes, the message exists and is not committed again."""
    desk = Desk(tmp_path)
    half = desk.prepare("a")
    put = desk.service._put

    def put_but_op(message: NewMessage) -> PutResult:
        assert message.topic != OP
        return put(message)

    desk.service._put = put_but_op  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        desk.end(half, Decision.COMMIT)
    desk.killed()
    desk.now += 7000
    assert desk.check(Decision.COMMIT) == CheckCounts()
    assert (desk.bodies(), desk.ends(), desk.asked) == (["a"], ["0"], [])
    assert desk.check() == CheckCounts()


@pytest.mark.parametrize("killed", [False, True])
def test_a_transaction_ends_once(killed: bool, tmp_path: Path) -> None:
    """Whichever copy a producer names, and however often."""
    desk = Desk(tmp_path)
    half = desk.prepare("a")
    other = desk.prepare("b")
    for _ in range(2):
        desk.now += 7000
        desk.check()
    if killed:
        desk.killed()
    copies = [record for record in desk.records(HALF) if record.body == b"a"]
    committed = desk.end(half, Decision.COMMIT)
    assert committed is not None
    assert desk.records("T")[0].prepared_transaction_offset == copies[2].physical_offset
    for copy in copies:
        for decision in (Decision.COMMIT, Decision.ROLLBACK):
            assert desk.service.end(copy.physical_offset, copy.queue_offset, "G", decision, from_check=True) is None
    assert desk.end(other, Decision.ROLLBACK) is None
    assert (desk.bodies(), desk.ends()) == (["a"], ["4", "5"])
    if killed:
        desk.killed()
    desk.now += 7000
    assert desk.check() == CheckCounts()
    assert desk.states() == {"a": "committed", "b": "rolled-back"}


def test_two_that_look_alike_are_two(tmp_path: Path) -> None:
    """Without a unique id, copies cannot be recognised; with one, two messages sent at once are both ended."""
    desk = Desk(tmp_path)
    for properties in ({}, {}, {"UNIQ_KEY": "same"}, {"UNIQ_KEY": "same"}):
        message = NewMessage(topic="T", queue_id=2, body=b"tick", properties=properties, born_timestamp=TIME)
        half = desk.service.prepare(message, "G")
        desk.end(half, Decision.COMMIT)
    assert len(desk.bodies()) == 4
    for _ in range(2):
        assert desk.service.prepare(NewMessage(topic="T", body=b"tock", born_timestamp=TIME), "G").ok
    desk.now += 7000
    desk.check(Decision.UNKNOWN)
    desk.killed()
    desk.now += 7000
    desk.check(*[Decision.COMMIT] * 4)
    assert desk.bodies().count("tock") >= 2


def test_what_a_round_has_passed_is_forgotten(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for n in range(20):
        desk.end(desk.prepare(str(n)), Decision.COMMIT)
    copies = desk.service.copies(0)
    for _ in range(2):
        desk.now += 7000
        assert len(copies._ended) == 20
        desk.check()
    assert copies._ended == {}


def test_a_check_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    """Requests are served between two slices; each half message is checked once per round, and none waits for the
    next.
    """
    desk = Desk(tmp_path, transactionCheckInterval="60000")
    for n in range(30):
        desk.prepare(str(n))
    desk.now += 7000
    loop = RunLoop(desk.store, desk.warnings.append, lambda request: desk.asked.append(request) or Decision.UNKNOWN)  # type: ignore[func-returns-value]
    for _ in range(20):
        looks = count()
        loop.step(lambda looks=looks: next(looks) > 3)  # type: ignore[misc]
        desk.now += 100
    assert sorted(int(request.message_id) for request in desk.asked) == list(range(30))
