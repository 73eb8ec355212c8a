"""The loop that holds a store open: hours in a moment, clean ends, and ends that are not: nothing vanishes."""

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from formats.config.files import DelayOffsets
from formats.message.read import Record, read
from rmqtool import Message, Store
from rmqtool.cli.write.run_decide import Command
from rmqtool.services.lookup.configs import known_offsets
from rmqtool.services.lookup.queue_messages import DLQ_PREFIX, HALF, OP, RETRY_PREFIX, SCHEDULE
from rmqtool.services.opened.broker_state import BrokerState
from rmqtool.services.sending.back import SendBack
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.waiting.half_messages import CHECK_GROUP
from rmqtool.services.waiting.transaction_check import TransactionService
from rmqtool.services.waiting.transaction_rules import CheckRequest, Decision
from rmqtool.store.append.answers import PutResult
from rmqtool.store.check import check_store
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import Found
from tests.cli.running import RMQTOOL, rmqtool
from tests.services.build import TIME, Builder, never
from tests.services.live import SIZES, Lab
from tests.store.crashes import Killed, Seam

SECONDS = [delay // 1000 for delay in BrokerConf().delay_levels]


class Loop(Lab):
    """A store whose loop never really waits."""

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
        assert service.prepare(Message(topic="T", body=name.encode()), "G").ok
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
    offsets = known_offsets(lab.store.layout, never)
    assert (offsets[HALF, CHECK_GROUP, 0], offsets[OP, CHECK_GROUP, 0]) == (8, 2)


def test_without_an_answer_transactions_are_left_alone(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    assert TransactionService(lab.store, lab.state, never).prepare(Message(topic="T"), "G").ok
    RunLoop(lab.store, never).run(lab.wait, until=TIME + 10**6)
    assert len(lab.records(HALF)) == 1


def test_a_level_that_stands_still_is_tried_again(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "x"}
    assert lab.store.append(Message(topic=SCHEDULE, properties=properties, was_stored=True)).ok
    lab.send("other", DELAY="2")
    report = RunLoop(lab.store, lab.warnings.append).run(lab.wait, until=TIME + 61_000)
    assert (report.stuck, report.delivered) == ([1], 1)
    assert 5 <= len(lab.warnings) <= 8


def errors(store: Path, settings: dict[str, str]) -> list[str]:
    layout = StoreLayout(str(store), BrokerConf(settings))
    return [finding.code for finding in check_store(layout) if finding.severity == "error"]


# -- the command ------------------------------------------------------------------------------------------------------


def waiting_store(root: Path) -> Path:
    """Ten messages that are due, one that is not for an hour, and three open transactions."""
    lab = Lab(root)
    lab.now = int(time.time() * 1000) - 10_000
    for n in range(10):
        lab.send(str(n), DELAY="1")
    lab.send("late", DELAY="17")
    service = TransactionService(lab.store, lab.state, never)
    for name in ("yes", "no", "odd"):
        assert service.prepare(Message(topic="T", body=name.encode(), properties={"UNIQ_KEY": name}), "G").ok
    lab.state.persist()
    lab.store.close()
    (root / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
    return lab.path


def bodies(store: Path, topic: str = "T") -> list[str]:
    with Store(store, broker_conf=SIZES) as opened:
        found = [item.record for item in opened.messages() if isinstance(item, Found)]
    return [record.body.decode() for record in found if record.topic == topic.encode()]


def test_once(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    words = ("run", store, "--once", "--broker-conf", tmp_path / "broker.conf", "-o", "json")
    result = rmqtool(*words)
    [report] = json.loads(result.out)
    assert (result.code, result.err, report["delivered"], report["checked"]) == (0, "", 10, 0)
    assert report["nextTimestamp"] > report["endTimestamp"]
    assert bodies(store) == [str(n) for n in range(10)]
    script = tmp_path / "decide.py"
    script.write_text(
        "#!/usr/bin/env python3\nimport json, sys\nrow = json.load(sys.stdin)\n"
        "assert row['topic'] == 'T' and row['producerGroup'] == 'G' and row['checkTimes'] == 1, row\n"
        "assert row['properties']['PGROUP'] == 'G' and row['msgId'] == row['body'], row\n"
        "print({'yes': 'commit', 'no': 'rollback'}.get(row['body'], 'perhaps'))\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    result = rmqtool(*words, "--transactions", f"exec {script}")
    [report] = json.loads(result.out)
    assert (report["committed"], report["rolledBack"], report["unknown"]) == (1, 1, 1)
    assert "said 'perhaps'" in result.err
    assert bodies(store)[10:] == ["yes"]
    result = rmqtool(*words, "--transactions", "exec /nonexistent/program")
    assert (result.code, result.out) == (2, "")
    assert "no such command" in result.err
    assert json.loads(rmqtool(*words, "--transactions", "rollback").out)[0]["rolledBack"] == 1
    assert rmqtool("transaction", "list", store, "--state", "pending", "-o", "ndjson").out == ""


@pytest.mark.parametrize(
    "words", [["--transactions", "perhaps"], ["--transactions", "exec"], ["--transactions", "exec 'x"],
              ["--until", "soon"], ["--once", "--until", "0"], ["--transactions", "commit x"]],
)  # fmt: skip
def test_usage(words: list[str], tmp_path: Path) -> None:
    assert rmqtool("run", tmp_path, *words).code == 2


def delivered(store: Path) -> None:
    """Wait until a process has delivered what is due in the store."""
    for _ in range(2400):
        if len(bodies(store)) == 10:
            break
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(number: int, tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    words = [*RMQTOOL, "run", str(store), "--broker-conf", str(tmp_path / "broker.conf"), "-o", "json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    delivered(store)
    assert (store / "abort").exists()
    assert rmqtool("run", store, "--once").code == 4  # it is held
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == f"told to end: what waits still is delivered by the next run (rmqtool delay list {store})\n"
    assert json.loads(out)[0]["delivered"] == 10
    assert not (store / "abort").exists()
    assert "1:10" in (store / "config" / "delayOffset.json").read_text()
    assert errors(store, SIZES) == []


def test_killed_it_goes_on(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    words = [*RMQTOOL, "run", str(store), "--broker-conf", str(tmp_path / "broker.conf")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    delivered(store)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (store / "abort").exists()
    result = rmqtool("run", store, "--once", "--broker-conf", tmp_path / "broker.conf")
    assert result.code == 0
    assert "recovered first" in result.err
    assert set(bodies(store)) == {str(n) for n in range(10)}
    assert max(Counter(bodies(store)).values()) <= 2
    assert not (store / "abort").exists()


# -- killed at every step ---------------------------------------------------------------------------------------------

CONF = SIZES | {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "flushDelayOffsetInterval": "1000"}
GROUP = "G"


def prepare(path: Path) -> None:
    """Delayed messages, retries, dead letters and half messages in flight; all of it durable."""
    with Store.create(path, broker_conf=CONF, clock=lambda: TIME) as store:
        state = BrokerState(store, never)
        back, service = SendBack(store, state, Random(1)), TransactionService(store, state, never)
        for n in range(6):
            delayed = Message(topic="T", queue_id=n % 2, body=b"delay%d" % n, properties={"DELAY": str(1 + n % 2)})
            assert store.append(delayed).ok
            failed = store.append(Message(topic="F", body=b"retry%d" % n)).physical_offset
            back.send_back(GROUP, failed, delay_level=1)
        for n in range(6):
            half = service.prepare(Message(topic="T", body=b"half%d" % n, properties={"UNIQ_KEY": f"h{n}"}), GROUP)
            if n < 2:
                service.end(half.physical_offset, half.queue_offset, GROUP, [Decision.COMMIT, Decision.ROLLBACK][n])
        state.persist()


def decide(request: CheckRequest) -> Decision:
    number = int(request.record.body[-1:])
    return Decision.COMMIT if number % 2 == 0 else Decision.ROLLBACK


def serve(path: Path) -> None:
    """Seven seconds of service; then one of the retries dies."""
    now = [TIME + 1]

    def wait(millis: int) -> None:
        now[0] += millis

    with Store(path, write=True, broker_conf=CONF, sync_flush=True, mend=True, clock=lambda: now[0]) as store:
        loop = RunLoop(store, lambda _text: None, decide)  # it may say that a .bak is read
        loop.run(wait, until=TIME + 7000)
        store.dispatch()
        failed = store.get(RETRY_PREFIX + GROUP, 0, 0).messages
        if failed and not store.get(DLQ_PREFIX + GROUP, 0, 0).messages:
            SendBack(store, loop.state).send_back(GROUP, failed[0].physical_offset, delay_level=-1)
            loop.state.persist()


@pytest.mark.parametrize("ending", ["killed", "power cut", "power cut here and there"])
def test_nothing_vanishes(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seam = Seam(monkeypatch)
    steps, stop, repeated = None, 0, 0
    while steps is None:
        stop += 4 if ending == "killed" else 11
        path = tmp_path / f"s{stop}"
        seam.begin()
        seam.durable.clear()
        prepare(path)
        for file in path.rglob("*"):
            if file.is_file():
                seam.durable[str(file)] = file.read_bytes()
        seam.begin(stop)
        try:
            serve(path)
            steps = stop
        except Killed:
            pass
        seam.begin()
        if ending != "killed":
            seam.cut_power(path, Random(stop) if "here" in ending else None)
        serve(path)
        delivered = Counter(bodies(path))
        wanted = {f"delay{n}" for n in range(6)} | {f"half{n}" for n in range(6) if n % 2 == 0}
        assert delivered.keys() == wanted, (stop, delivered)
        assert set(bodies(path, RETRY_PREFIX + GROUP)) == {f"retry{n}" for n in range(6)}, stop
        assert bodies(path, DLQ_PREFIX + GROUP), stop
        # a half message that was put back and committed, and not ended: it is asked about, and so is its copy
        assert all(count <= (3 if body.startswith("half") else 2) for body, count in delivered.items()), delivered
        repeated += max(delivered.values()) > 1
        assert errors(path, CONF) == [], stop
        assert not (path / "abort").exists()
    assert steps > 60
    assert repeated > 0  # a delivery may come twice: that is the price


# -- errors, clocks, levels that stand still --------------------------------------------------------------------------


def saved(lab: Lab) -> dict[int, int]:
    """What is written of the levels' offsets."""
    path = lab.path / "config" / "delayOffset.json"
    return dict(DelayOffsets.parse(path.read_bytes()).offsets) if path.exists() else {}


class Broke(Exception):
    """Something that nobody expects."""


@pytest.mark.parametrize("error", [Broke(), OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_what_was_delivered_before_an_error_does_not_come_twice(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Loop(tmp_path)
    for n in range(20):
        lab.send(str(n), DELAY="1")
    lab.now += 1000
    append, left = lab.store.append, [7]

    def failing(message: Message) -> PutResult:
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

    def slow(message: Message) -> PutResult:
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
    assert TransactionService(lab.store, lab.state, never).prepare(Message(topic="T", body=b"half"), "G").ok
    asked: list[int] = []
    steps: list[int] = []

    def decide(_request: CheckRequest) -> Decision:
        asked.append(lab.now)
        return Decision.UNKNOWN

    loop = RunLoop(lab.store, never, decide)
    checks: list[int] = []
    check = loop.transactions.check
    loop.transactions.check = lambda *given: checks.append(len(steps)) or check(*given)  # type: ignore[method-assign, func-returns-value]

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
    assert lab.store.append(Message(topic=SCHEDULE, properties=properties, was_stored=True)).ok
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
    assert lab.store.append(Message(topic=SCHEDULE, properties=properties, was_stored=True)).ok
    report = RunLoop(lab.store, lab.warnings.append).run(lab.wait, until_delivered=True)
    assert (report.delivered, report.stuck) == (0, [1])


def test_a_half_message_with_a_bad_level_stays_open(tmp_path: Path) -> None:
    lab = Loop(tmp_path)
    service = TransactionService(lab.store, lab.state, lab.warnings.append)
    assert not service.prepare(Message(topic="T", properties={"DELAY": "+-3"}), "G").ok
    half = {"REAL_TOPIC": "T", "REAL_QID": "0", "PGROUP": "G", "TRAN_MSG": "true"}
    for level in ("+-3", "4294967295", "0"):  # by another producer
        message = Message(topic=HALF, body=level.encode(), properties=half | {"DELAY": level}, was_stored=True)
        assert lab.store.append(message).ok
    lab.now += 10_000
    report = RunLoop(lab.store, lab.warnings.append, lambda _request: Decision.COMMIT).run(lab.wait, once=True)
    assert (report.committed, report.unknown, lab.bodies()) == (1, 2, ["0"])
    assert sum("not a number" in text for text in lab.warnings) == 2


# -- the command that decides -----------------------------------------------------------------------------------------


def script_of(folder: Path, text: str) -> Path:
    path = folder / "decide"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_signal_does_not_wait_for_a_command_that_hangs(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    child = "import subprocess, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    child += "p = subprocess.Popen(['sleep', '1000']); signal.signal(signal.SIGTERM, signal.SIG_DFL)"
    script = script_of(tmp_path, f"{child}; open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid) + ' '); p.wait()")
    words = [*RMQTOOL, "run", str(store), "--broker-conf", str(tmp_path / "broker.conf"), "-o", "json"]
    process = subprocess.Popen(
        [*words, "--transactions", f"exec {script}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith(" "):
        time.sleep(0.02)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 20  # and not a minute
    assert process.returncode == 0
    assert "was ended" in err
    assert json.loads(out)[0]["unknown"] == 1
    assert not (store / "abort").exists()
    sleeper = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    for _ in range(200):  # whoever inherits it has to take note of its end
        if not sleeper.exists() or sleeper.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the command has started goes on")
    assert errors(store, SIZES) == []


def request_of(body: bytes = b"x" * 100_000) -> CheckRequest:
    builder = Builder()
    builder.put("T", body=body)
    record = read(bytes(builder.log), 0, len(builder.log))
    assert isinstance(record, Record)
    return CheckRequest(record, {"UNIQ_KEY": "u"}, "G", "u", 1)


def ask(words: list[str]) -> Decision:
    reader, _writer = os.pipe()
    try:
        command = Command(words, reader, lambda: False)
        command.begin()
        return command(request_of())
    finally:
        os.close(reader)
        os.close(_writer)


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("import sys; sys.stdin.read(); print('commit')", Decision.COMMIT),
        ("print('  rollback  ')", Decision.ROLLBACK),  # it does not read the message
        ("import sys; sys.stdin.close(); print('commit')", Decision.COMMIT),
        ("import sys; sys.stdout.write('commit ' * 20_000_000)", Decision.UNKNOWN),  # 140 MB
        ("print('commit'); import sys; sys.exit(1)", Decision.UNKNOWN),
        ("import os, sys\nif os.fork() == 0: os.execvp('sleep', ['sleep', '5'])\nprint('commit')", Decision.COMMIT),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", Decision.UNKNOWN),
        ("pass", Decision.UNKNOWN),
    ],
)
def test_what_a_command_says(text: str, decision: Decision, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert ask([str(script_of(tmp_path, text))]) is decision
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_command_that_cannot_be_run_is_an_error_and_no_answer(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    words = ("run", store, "--once", "--broker-conf", tmp_path / "broker.conf", "--transactions")
    plain = tmp_path / "plain"
    plain.write_text("echo commit")
    for command, said in ((plain, "not executable"), (tmp_path, "not executable"), ("no-such-word", "no such command")):
        result = rmqtool(*words, f"exec {command}")
        assert (result.code, said in result.err) == (2, True), result.err
    strange = tmp_path / "strange"  # found, and not to be started
    strange.write_bytes(b"#!/nonexistent/interpreter\n")
    strange.chmod(0o755)
    for _ in range(20):  # more than checks are made
        result = rmqtool(*words, f"exec {strange}")
        assert (result.code, "cannot be started" in result.err) == (4, True), result.err
        assert not (store / "abort").exists()
    with Store(store, broker_conf=SIZES) as opened:
        halves = [item for item in opened.messages() if isinstance(item, Found) and item.record.topic == HALF.encode()]
    assert len(halves) == 3  # none was checked
    assert rmqtool(*words, "exec sh -c no-such-word").code == 4
