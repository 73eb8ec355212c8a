"""A real broker started while we write: it opens ``lock``, loads the store, and takes the lock last."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from formats.message.ids import parse_offset_id
from rmqtool import NewMessage, Store
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.producing.message import Message
from rmqtool.client.sync import Producer
from rmqtool.errors import Refused
from rmqtool.remoting.errors import RemotingError
from rmqtool.services.consumers import offset_plan
from rmqtool.services.consumers.offset_plan import OffsetTarget, reset
from rmqtool.services.offsets.files import BrokerFile
from rmqtool.services.sending.importer import new_store
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.store.changes import steps
from rmqtool.store.changes.change import Change
from rmqtool.store.changes.undo import undo
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.run import is_problem
from rmqtool.store.disk.lock import Disturbed, holder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import dispatch, recover, truncate
from rmqtool.store.repair.expiry import clean
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns
from tests.interop.engine import Engine, available, golden_config, unpack_golden
from tests.interop.serving import Serving
from tests.store.findings import check_store
from tests.store.helpers import conf_of, content, cut_queues

pytestmark = pytest.mark.interop


def lose_some(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "TopicA")
    shutil.rmtree(store / "index")


def lose_last(store: Path) -> None:
    cut_queues(StoreLayout(str(store), conf_of("clean")), 4)


def to_undo(store: Path) -> None:
    lose_some(store)
    COMMANDS["rebuild"][2](StoreLayout(str(store), conf_of("clean")))


def consumed(store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"TopicA@readers": {0: 5, 1: 5, 2: 5, 3: 5}}}
    (store / "config/consumerOffset.json").write_text(json.dumps(offsets))


def group_reset(layout: StoreLayout) -> object:
    planner = reset("readers", ["TopicA"], None, OffsetTarget("earliest"))
    return offset_plan.apply(layout, BrokerFile, planner, command="group-reset")


def nothing(_store: Path) -> None:
    """Do nothing: the golden store already has work."""


# golden store, what is done to it first, the command
COMMANDS: dict[str, tuple[str, Callable[[Path], None], Callable[[StoreLayout], object]]] = {
    "recover": ("torn-last-record", nothing, recover),
    "dispatch": ("clean", lose_last, dispatch),
    "truncate": ("clean", nothing, lambda layout: truncate(layout, 166_574)),
    "rebuild": ("clean", lose_some, lambda layout: rebuild(layout, ("consumequeue", "index", "checkpoint"))),
    "clean": ("clean", nothing, lambda layout: clean(layout, reserved_hours=0)),
    "group reset": ("clean", consumed, group_reset),
    "undo": ("clean", to_undo, lambda layout: undo(layout.root)),
}


def is_fault(finding: Finding) -> bool:
    """Whether a finding is a problem; that these stores have no ``topics.json`` is none of the command's."""
    return is_problem(finding) and finding.code != "topics-missing"


@pytest.fixture(params=["4.9.8", "5.3.3"], scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A separate broker: it keeps ``lock`` open until its process ends."""
    if reason := available(request.param):
        pytest.skip(reason)
    with Engine(request.param) as engine:
        yield engine


def made(command: str, folder: Path) -> tuple[Path, dict[str, Any], Callable[[], object]]:
    """A store, its settings, and the command to run on it."""
    case, prepare, run = COMMANDS[command]
    store = unpack_golden(case, folder)
    prepare(store)
    return store, golden_config(case), lambda: run(StoreLayout(str(store), conf_of(case)))


def messages(store: Path, case: str = "clean") -> set[tuple[int, bytes]]:
    walked = CommitLog(StoreLayout(str(store), conf_of(case))).walk()
    return {
        (located.physical_offset, bytes(located.record.body))
        for located in walked
        if isinstance(located, LocatedRecord)
    }


def never(text: str) -> None:
    raise AssertionError(text)


def waits(broker: Engine) -> bool:
    """Whether the engine waits for somebody's lease to end."""
    assert broker._jvm is not None
    pids = {task.name for task in Path(f"/proc/{broker._jvm.pid}/task").iterdir()} | {str(broker._jvm.pid)}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("BREAKER" in fields and pids & set(fields) for fields in lines)


def before(monkeypatch: pytest.MonkeyPatch, name: str, do: Callable[[], None], number: int = 1) -> None:
    """Call a function at the n-th call of a method of the transaction or its steps."""
    is_step, count = name in steps.STEPS, [0]
    real = steps.STEPS[name] if is_step else getattr(Change, name)

    def replaced(*args: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == number:
            do()
        return real(*args, **named)

    if is_step:
        monkeypatch.setitem(steps.STEPS, name, replaced)
    else:
        monkeypatch.setattr(Change, name, replaced)


@by_turns(23)
@pytest.mark.parametrize(
    ("command", "gone"),
    [*((name, False) for name in COMMANDS if name != "undo"), ("rebuild", True)],  # a new engine for each is dear
)
def test_started_while_we_plan(
    command: str, gone: bool, broker: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, config, run = made(command, tmp_path)
    here: list[dict[str, str]] = []

    def start() -> None:
        broker.step("construct", store, config)
        assert broker.step("load", store)["loadOk"]
        answer = broker.step("start", store)
        assert not answer["started"]
        assert "already started" in answer["why"]
        if gone:
            broker._end(kill=True)
        here.append(content(store))

    before(monkeypatch, "commit", start)
    with pytest.raises(Disturbed, match="a broker was started" if gone else r"process \d+ \(java\)"):
        run()
    assert content(store) == here[0]
    monkeypatch.undo()
    broker._end(kill=True)
    kept = messages(store, COMMANDS[command][0])
    run()  # now that it is gone
    if command not in ("clean", "truncate"):
        assert messages(store, COMMANDS[command][0]) == kept


@by_turns(23)
@pytest.mark.parametrize("command", COMMANDS)
def test_started_while_we_change_the_store(
    command: str, broker: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_store, _config, run = made(command, tmp_path / "expected")
    run()
    # index files are named by the clock
    expected = {path: digest for path, digest in content(expected_store).items() if not path.startswith("index/")}
    store, config, run = made(command, tmp_path)
    starting = threading.Thread(target=lambda: broker.step("construct", store, config))

    def start() -> None:
        starting.start()
        while not waits(broker):
            time.sleep(0.01)
        assert holder(str(store)) is not None

    name = {"truncate": "remove", "clean": "remove", "undo": "write_manifest"}.get(command, "put")
    before(monkeypatch, name, start, 2 if command in ("undo", "rebuild") else 1)
    if not broker._jvm:
        broker._begin()
    if command == "group reset":  # it may have read the file before
        with pytest.raises(Disturbed, match="it is done, but a broker was started"):
            run()
    else:
        run()
    starting.join()
    there = content(store)
    assert {path: digest for path, digest in there.items() if not path.startswith("index/")} == expected
    assert broker.step("load", store)["loadOk"]
    assert broker.step("start", store)["started"]  # it has got the lock: we were done
    broker.step("end", store)
    layout = StoreLayout(str(store), conf_of(COMMANDS[command][0]))
    if command not in ("undo", "clean"):
        assert not [finding for finding in check_store(layout) if is_fault(finding)]
    assert messages(store, COMMANDS[command][0]) == messages(expected_store, COMMANDS[command][0])


def test_started_while_we_append(broker: Engine, tmp_path: Path) -> None:
    store = unpack_golden("clean", tmp_path)
    config = golden_config("clean")
    ours = Store(str(store), write=True, broker_conf=conf_of("clean").values)
    answers = [ours.append(NewMessage(topic="New", body=b"first %d" % n, keys=f"k{n}")) for n in range(50)]
    ours.flush()
    answers += [ours.append(NewMessage(topic="New", body=b"second %d" % n)) for n in range(50)]
    broker.step("construct", store, config)
    assert broker.step("load", store)["loadOk"]
    with pytest.raises(Disturbed, match=r"process \d+ \(java\)"):
        ours.flush()
    with pytest.raises(Refused):
        ours.append(NewMessage(topic="New", body=b"never"))
    closing = threading.Thread(target=ours.close)
    closing.start()
    # it must not get the lock: it would write where it took the end to be
    assert not broker.step("start", store)["started"]
    assert closing.is_alive()
    assert (store / "abort").exists()
    broker._end(kill=True)
    closing.join()
    layout = StoreLayout(str(store), conf_of("clean"))
    recover(layout)
    problems = {finding.code for finding in check_store(layout) if is_fault(finding)}
    assert problems <= {"index-missing"}  # as after its own death: it deletes the index, and builds only the end anew
    rebuild(StoreLayout(str(store), conf_of("clean")), ("index",))
    assert not [finding for finding in check_store(layout) if is_fault(finding)]
    assert all(answer.ok for answer in answers)
    assert {answer.physical_offset for answer in answers} <= {at for at, _body in messages(store)}
    expected = broker.open(store, config)
    assert len([row for row in expected["messages"] if row["cqTopic"] == "New" and row["message"] is not None]) == 100


@by_turns(11)
def test_started_while_we_run(broker: Engine, tmp_path: Path) -> None:
    """``run``: messages delivered before the broker starts stay, and the rest is delivered later, once each."""
    store, late = unpack_golden("clean", tmp_path), {f"late {n}" for n in range(20)}
    config, conf = golden_config("clean"), conf_of("clean").values
    clock = [int(time.time() * 1000)]

    def delivered() -> list[str]:
        walked = CommitLog(StoreLayout(str(store), conf_of("clean"))).walk()
        return [r.record.body.decode() for r in walked if isinstance(r, LocatedRecord) and r.record.topic == b"Late"]

    with Store(store, write=True, broker_conf=conf, clock=lambda: clock[0]) as ours:
        for n, body in enumerate(sorted(late)):
            ours.append(
                NewMessage(topic="Late", body=body.encode(), properties={"DELAY": str(1 + n % 3)})
            )  # 1, 5, 10 s

    def wait(millis: int) -> None:
        clock[0] += millis
        if clock[0] >= began + 2_000 and not loaded:  # the first seven are delivered
            broker.step("construct", store, config)
            loaded.append(broker.step("load", store)["loadOk"])
        time.sleep(0.05)

    began, loaded = clock[0], list[bool]()
    ours = Store(store, write=True, broker_conf=conf, clock=lambda: clock[0])
    with pytest.raises(Disturbed, match=r"process \d+ \(java\)"):
        RunLoop(ours, never).run(wait, until=clock[0] + 60_000)
    assert loaded == [True]
    closing = threading.Thread(target=ours.close)
    closing.start()
    assert not broker.step("start", store)["started"]
    assert (store / "abort").exists()
    broker._end(kill=True)
    closing.join()
    first = delivered()
    assert 7 <= len(first) < len(late)
    layout = StoreLayout(str(store), conf_of("clean"))
    recover(layout)
    rebuild(StoreLayout(str(store), conf_of("clean")), ("index",))
    with Store(store, write=True, broker_conf=conf, clock=lambda: clock[0]) as again:
        report = RunLoop(again, never).run(wait, until_delivered=True)
    assert report.delivered == len(late) - len(first)
    assert sorted(delivered()) == sorted(late)
    assert not [finding for finding in check_store(layout) if is_fault(finding)]
    answer = broker.open(store, config)
    assert len([row for row in answer["messages"] if row["cqTopic"] == "Late" and row["message"]]) == len(late)


@by_turns(11)
def test_started_while_we_serve(broker: Engine, tmp_path: Path) -> None:
    """``serve``: acknowledged messages stay, and the process ends with a reason."""
    store, config, sent = unpack_golden("clean", tmp_path), golden_config("clean"), list[tuple[int, bytes]]()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    ended = threading.Event()
    with Serving(store, "--broker-conf", str(conf)) as serving, Producer(serving.namesrv) as producer:

        def send() -> None:
            with suppress(ClientError, RemotingError):
                while not ended.is_set() and len(sent) < 20_000:
                    body = b"served %d" % len(sent) + b"x" * 3000
                    result = producer.send(Message("Served", body))
                    sent.append((parse_offset_id(result.offset_message_id).physical_offset, body))

        sending = threading.Thread(target=send)
        sending.start()
        while len(sent) < 50 and sending.is_alive():
            time.sleep(0.01)
        broker.step("construct", store, config)
        assert broker.step("load", store)["loadOk"]
        assert not broker.step("start", store)["started"]
        broker._end(kill=True)
        stderr = serving.process.communicate(timeout=120)[1]
        ended.set()
        sending.join()
    assert serving.process.returncode == 4, stderr
    assert "Nothing more is taken" in stderr
    assert "Traceback" not in stderr
    assert len(sent) >= 50
    assert (store / "abort").exists()
    layout = StoreLayout(str(store), conf_of("clean"))
    recover(layout)
    rebuild(StoreLayout(str(store), conf_of("clean")), ("index",))
    problems = {finding.code for finding in check_store(layout) if is_fault(finding)}
    assert problems <= {"topic-unknown"}  # topics.json has only what was made while it was served
    assert set(sent) <= messages(store)
    rows = broker.open(store, config)["messages"]
    got = {row["message"]["physicalOffset"] for row in rows if row["cqTopic"] == "Served" and row["message"]}
    assert {at for at, _body in sent} <= got


def test_started_where_we_import(broker: Engine, tmp_path: Path) -> None:
    """``import`` writes beside the target; a store that a broker creates there meanwhile is left alone."""
    store, config = tmp_path / "store", golden_config("clean")
    store.mkdir()
    made = new_store(str(store), None)
    importer = made.__enter__()
    importer.take([{"topic": "T", "body": "x"}] * 100)
    assert broker.open(store, config)["loadOk"]
    assert broker.write(store, [{"topic": "Its", "body": b"x"}], config)["results"][0]["status"] == "PUT_OK"
    before = content(store)
    with pytest.raises(Refused, match="not empty"):
        made.__exit__(None, None, None)
    assert content(store) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("store")] == ["store"]
    assert len(broker.open(store, config)["messages"]) == 1


@by_turns(11)
def test_we_come_while_it_loads(broker: Engine, tmp_path: Path) -> None:
    store, config, run = made("rebuild", tmp_path)
    broker.step("construct", store, config)
    before = content(store)
    with pytest.raises(Refused, match="is a broker starting"):
        run()
    with pytest.raises(Refused, match="is a broker starting"):
        Store(str(store), write=True, broker_conf=conf_of("clean").values)
    assert content(store) == before
    assert broker.step("load", store)["loadOk"]
    with pytest.raises(Refused, match="is a broker starting"):
        run()
    assert broker.step("start", store)["started"]
    assert broker._jvm is not None
    assert holder(str(store)) == broker._jvm.pid
    with pytest.raises(Refused, match=f"held by process {broker._jvm.pid}"):
        recover(StoreLayout(str(store), conf_of("clean")))
    assert broker.step("put", store, puts=[{"topic": "Its", "body": b"x"}])["results"][0]["status"] == "PUT_OK"
    broker.step("end", store)
    broker._end()
    run()
