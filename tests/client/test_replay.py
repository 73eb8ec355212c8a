"""The command replay, against our own broker, killed at critical points."""

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool import NewMessage, Store
from rmqtool.cli.live.copying.journal import FileJournal
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.copying.replay import Replay
from rmqtool.client.copying.steps import ORIGIN, REPLAY
from rmqtool.errors import CorruptFile
from rmqtool.remoting.errors import ConnectionLost
from rmqtool.rules.resending import why_not
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.client.peers import serving
from tests.client.test_send import cluster
from tests.conftest import Unpacked

CONF = {"mappedFileSizeCommitLog": str(4 << 20), "mappedFileSizeConsumeQueue": "60000"}


def made(path: Path, topic: str, count: int) -> Path:
    """A store with messages in four queues."""
    with Store.create(path, broker_conf=CONF) as store:
        store.append_many([
            NewMessage(topic=topic, queue_id=n % 4, body=b"%d" % n, tags="odd" if n % 2 else "even", keys=f"k{n}")
            for n in range(count)
        ])  # fmt: skip
    return path


def messages(store: str, topic: str) -> list[dict[str, Any]]:
    result = rmqtool("commitlog", "dump", store, "--topic", topic, "-o", "ndjson")
    return [json.loads(line) for line in result.out.splitlines()]


def bodies(rows: list[dict[str, Any]]) -> dict[int, list[int]]:
    result: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        result[row["queueId"]].append(int(row["body"]))
    return result


def replay(served: TestBroker, source: object, *args: object) -> tuple[int, list[dict[str, Any]], str]:
    result = rmqtool("replay", source, "--namesrv", served.namesrv, *args, "-o", "ndjson")
    return result.code, [json.loads(line) for line in result.out.splitlines()], result.err


def test_what_has_expired_between_two_runs_is_no_success(served: TestBroker, tmp_path: Path) -> None:
    conf = {**CONF, "mappedFileSizeCommitLog": "16384"}
    with Store.create(tmp_path / "origin", broker_conf=conf) as store:
        store.append_many([NewMessage(topic="Expired", queue_id=n % 4, body=b"%d" % n) for n in range(500)])
    assert replay(served, tmp_path / "origin", "--limit", 10)[0] == 0
    done = rmqtool("clean", tmp_path / "origin", "--files", 1, "--hours", 0, "--delete", "--yes")
    assert done.code == 0, done.err
    first = int(messages(str(tmp_path / "origin"), "Expired")[0]["body"])
    assert first > 10
    code, _rows, stderr = replay(served, tmp_path / "origin")
    assert (code, "messages between them have expired, and are not sent" in stderr) == (1, True)
    got = sorted(int(row["body"]) for row in messages(served.store, "Expired"))
    assert got == [*range(10), *range(first, 500)]
    assert replay(served, tmp_path / "origin")[0] == 0


def test_all_of_a_store_arrives_once_and_in_order(served: TestBroker, tmp_path: Path) -> None:
    source = made(tmp_path / "origin", "Whole", 500)
    code, rows, stderr = replay(served, source)
    assert code == 0, stderr
    assert sum(row["messages"] for row in rows) == 500
    assert {(row["queueId"], row["toQueueId"], row["status"]) for row in rows} == {(n, n, "SENT") for n in range(4)}
    got, sent = messages(served.store, "Whole"), messages(str(source), "Whole")
    assert bodies(got) == bodies(sent)
    by_id = {row["msgId"]: row for row in got}
    for number, row in enumerate(sent):
        copy = by_id.get(row["msgId"]) or next(entry for entry in got if entry["body"] == row["body"])
        assert copy["properties"][ORIGIN] == f"origin:{row['physicalOffset']}"
        assert (copy["keys"], copy["tags"]) == ([f"k{number}"], row["tags"])
    # again: nothing is left; more: only that
    assert replay(served, source)[:2] == (0, [])
    with Store(source, write=True, broker_conf=CONF) as store:
        store.append(NewMessage(topic="Whole", queue_id=1, body=b"500"))
    code, rows, stderr = replay(served, source)
    assert (code, [row["messages"] for row in rows]) == (0, [1])
    assert "500 were sent before" in stderr
    assert len(messages(served.store, "Whole")) == 501


def test_a_selection_goes_to_another_topic(served: TestBroker, tmp_path: Path) -> None:
    source = made(tmp_path / "origin", "Chosen", 100)
    journal = tmp_path / "journal"
    args = ["--to", "Other", "--tag", "odd", "--queue", "1", "--journal", journal]
    code, rows, stderr = replay(served, source, *args, "--dry-run")
    assert (code, [(row["status"], row["messages"], row["toTopic"]) for row in rows]) == (0, [("TO_SEND", 25, "Other")])
    assert "nothing was sent" in stderr
    assert not journal.exists()
    code, rows, stderr = replay(served, source, *args, "--since", "2026-11-21", "--until", "2026-11-21", "--dry-run")
    assert (code, rows) == (0, [])
    assert stderr.startswith("--until is not later than --since: an empty range\n")
    assert replay(served, source, *args, "--limit", 10)[1][0]["messages"] == 10
    assert replay(served, source, *args)[1][0]["messages"] == 15
    assert bodies(messages(served.store, "Other")) == {1: list(range(1, 100, 4))}
    code, _rows, stderr = replay(served, source, "--to", "Other", "--journal", journal)
    assert code == 4
    assert "of another replay (queues, tags)" in stderr


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff\xfe"), "with \x01 and \x02", "two\nlines"])
def test_a_store_whose_name_no_property_can_hold(served: TestBroker, tmp_path: Path, name: str) -> None:
    source, topic = made(tmp_path / name, f"Named-{len(name)}", 8), f"Named-{len(name)}"
    code, rows, stderr = replay(served, source)
    assert (code, {row["status"] for row in rows}) == (0, {"SENT"}), stderr
    got = messages(served.store, topic)
    assert len(got) == 8
    assert all("\ufffd" in row["properties"][ORIGIN] for row in got)


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_rows_are_replayed_as_a_store_is(served: TestBroker, tmp_path: Path, form: str) -> None:
    source = made(tmp_path / "origin", f"Rows-{form}", 60)
    path = tmp_path / f"rows.{form}"
    if form == "ndjson":
        path.write_text(rmqtool("commitlog", "dump", source, "-o", "ndjson").out + '{"body":"x"}\n')
    else:
        result = rmqtool("dump-to-parquet", source, path, "--runner", "local")
        assert result.code == 0, result.err
    first = replay(served, path, "--limit", 20)
    code, rows, stderr = replay(served, path)
    assert first[0] == 0
    assert code == (1 if form == "ndjson" else 0), stderr
    assert [row["reason"] for row in rows if row["status"] == "REFUSED"] == (
        ["topic: missing"] if form == "ndjson" else []
    )
    assert bodies(messages(served.store, f"Rows-{form}")) == bodies(messages(str(source), f"Rows-{form}"))
    if form == "ndjson":
        path.write_text("\n".join(reversed(path.read_text().splitlines())))
        code, _rows, stderr = replay(served, path)
        assert code == 4
        assert "another input?" in stderr


def test_what_brokers_wrote_for_themselves_is_passed_over(served: TestBroker, golden: Unpacked, tmp_path: Path) -> None:
    store = golden("delay")
    code, rows, stderr = replay(served, store, "--journal", tmp_path / "journal")
    assert code == 0, stderr
    passed = {row["topic"]: row["reason"] for row in rows if row["status"] == "PASSED_OVER"}
    assert "waits for its delay" in passed["SCHEDULE_TOPIC_XXXX"]
    dumped = rmqtool("commitlog", "dump", store, "-o", "ndjson").out.splitlines()
    expected = [row for row in map(json.loads, dumped) if why_not(row["topic"], row["sysFlag"]) is None]
    assert sum(row["messages"] for row in rows if row["status"] == "SENT") == len(expected)
    got = [row for topic in {row["topic"] for row in expected} for row in messages(served.store, topic)]
    assert {row["msgId"] for row in expected} <= {row["msgId"] for row in got}
    assert not [row for row in got if "DELAY" in row["properties"]]


def test_a_time_before_now_stays_what_it_was(
    served: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(tmp_path / "origin", "Past", 9)
    assert replay(served, source, "--since", "-1h", "--limit", 4)[0] == 0
    later = time.time() + 7200
    monkeypatch.setattr("time.time", lambda: later)
    assert [row["status"] for row in replay(served, source, "--since", "-1h")[1]] == ["SENT"] * 4
    assert len(messages(served.store, "Past")) == 9


def test_dead_letters_go_where_they_are_told_to() -> None:
    assert "--to" in (why_not("%DLQ%g", 0) or "")
    assert "--to" in (why_not("%RETRY%g", 0) or "")
    assert why_not("%DLQ%g", 0, to="Orders") is None
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC"):
        assert why_not(topic, 0, to="Orders") is not None
    assert why_not("Orders", 4) is not None
    assert why_not("Orders", 8) is None


@by_turns(13)
def test_killed_again_and_again_it_sends_each_once(tmp_path: Path) -> None:
    source = made(tmp_path / "origin", "Killed", 3000)
    chance = random.Random(7)
    with broker(tmp_path / "target") as running_broker:
        args = [
            *RMQTOOL, "replay", str(source), "--namesrv", running_broker.namesrv, "--batch", "3", "--rate", "2000",
        ]  # fmt: skip
        for _ in range(3):
            with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
                before = os.path.getsize(f"{source}.replay") if os.path.exists(f"{source}.replay") else 0
                until = time.monotonic() + 60
                while running.poll() is None and time.monotonic() < until:  # it has begun a round
                    if os.path.exists(f"{source}.replay") and os.path.getsize(f"{source}.replay") > before + 100:
                        break
                    time.sleep(0.01)
                time.sleep(chance.random() * 0.4)
                running.send_signal(signal.SIGKILL)
        with open(f"{source}.replay", "a") as journal:
            journal.write('{"begin":[12')  # and a line that it could not finish
        result = rmqtool(*map(str, args[len(RMQTOOL) :]))
        assert result.code == 0, result.err
        assert bodies(messages(running_broker.store, "Killed")) == bodies(messages(str(source), "Killed"))
        marks = [row["properties"][REPLAY] for row in messages(running_broker.store, "Killed")]
        assert len({mark.partition(":")[0] for mark in marks}) == 1


def test_answers_that_are_lost_are_asked_for(
    served: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every third request, it is unknown whether it was carried out."""
    source = made(tmp_path / "origin", "Uncertain", 300)
    call, count = Cluster.call, 0

    async def lossy(self: Cluster, address: str, request: Command, timeout: float | None = None, **how: Any) -> Command:
        nonlocal count
        if request.code not in (C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE):
            return await call(self, address, request, timeout, **how)
        count += 1
        if count % 6:
            answer = await call(self, address, request, timeout, **how)
        if count % 3:
            return answer
        raise ConnectionLost("the connection ended")

    async def wait(_self: Replay, _seconds: float) -> None:
        await asyncio.sleep(0.2)  # until what was stored is in its queue

    monkeypatch.setattr(Cluster, "call", lossy)
    monkeypatch.setattr(Replay, "_wait", wait)
    code, rows, stderr = replay(served, source, "--batch", 20)
    while code == 3:
        assert "continues from there" in stderr
        code, rows, stderr = replay(served, source, "--batch", 20)
    assert code == 0, stderr
    assert rows
    assert bodies(messages(served.store, "Uncertain")) == bodies(messages(str(source), "Uncertain"))


def test_a_signal_ends_it_and_it_goes_on(served: TestBroker, tmp_path: Path) -> None:
    source = made(tmp_path / "origin", "Stopped", 400)
    args = [*RMQTOOL, "replay", str(source), "--namesrv", served.namesrv, "--rate", "100", "-o", "ndjson"]
    with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 60
        while not messages(served.store, "Stopped") and time.monotonic() < until:
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        out, stderr = running.communicate(timeout=60)
    assert running.returncode == 143, stderr
    sent = sum(json.loads(line)["messages"] for line in out.splitlines())
    assert 0 < sent < 400
    assert len(messages(served.store, "Stopped")) == sent
    assert replay(served, source)[0] == 0
    assert bodies(messages(served.store, "Stopped")) == bodies(messages(str(source), "Stopped"))


def test_a_signal_ends_the_wait_for_a_slow_writer(served: TestBroker, tmp_path: Path) -> None:
    args = [*RMQTOOL, "replay", "-", "--namesrv", served.namesrv, "--journal", str(tmp_path / "j"), "--limit", "9"]
    with subprocess.Popen(
        args, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        until = time.monotonic() + 60
        while not (tmp_path / "j").exists() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130


def test_nothing_can_be_told_where_the_cluster_is_away(tmp_path: Path) -> None:
    source = made(tmp_path / "origin", "T", 3)
    result = rmqtool("replay", source, "--namesrv", "127.0.0.1:1")
    assert result.code == 3
    assert "Connection refused" in result.err
    assert "Traceback" not in result.err


def test_what_a_broker_does_not_take_is_named(tmp_path: Path) -> None:
    source = made(tmp_path / "origin", "T", 5)

    def reply(request: Command) -> Command | None:
        fields = request.fields or {}
        if b"3" in request.body:
            return request.response(13, "not this one")
        ids = ",".join("0" * 32 for _ in range(5)) if request.code == C.SEND_BATCH_MESSAGE else "0" * 32
        return request.response(fields={"msgId": ids, "queueId": fields["e"], "queueOffset": "0"})

    with serving(cluster()) as (running, namesrv):
        running.replies[C.SEND_MESSAGE_V2] = running.replies[C.SEND_BATCH_MESSAGE] = reply
        running.replies[C.GET_MAX_OFFSET] = running.replies[C.GET_MIN_OFFSET] = lambda r: r.response(
            fields={"offset": "0"}
        )
        result = rmqtool("replay", source, "--namesrv", namesrv, "-o", "ndjson")
    assert result.code == 1, result.err
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert {row["status"]: row["messages"] for row in rows if row["queueId"] == 3} == {"REFUSED": 1}
    assert sum(row["messages"] for row in rows if row["status"] == "SENT") == 4
    assert "not this one" in result.err


@pytest.mark.parametrize(
    ("content", "code", "part"),
    [
        ("no journal\n", 5, "not a line of a replay's journal"),
        ("something", 5, "not a journal"),
        ('{"journal":1}\n', 5, "not a line"),
    ],
)
def test_another_file_is_not_taken_for_a_journal(tmp_path: Path, content: str, code: int, part: str) -> None:
    source = made(tmp_path / "origin", "T", 1)
    (tmp_path / "origin.replay").write_text(content)
    result = rmqtool("replay", source, "--namesrv", "127.0.0.1:1")
    assert (result.code, result.out) == (code, "")
    assert part in result.err
    assert (tmp_path / "origin.replay").read_text() == content


@pytest.mark.parametrize("journal", ["fifo", "directory", "/dev/null"])
def test_a_journal_that_keeps_nothing_is_refused(tmp_path: Path, journal: str) -> None:
    source = made(tmp_path / "origin", "T", 1)
    path = tmp_path / journal
    if journal == "fifo":
        os.mkfifo(path)
    elif journal == "directory":
        path.mkdir()
    for args in ([], ["--dry-run"]):
        done = rmqtool("replay", source, "--namesrv", "127.0.0.1:1", "--journal", str(path), *args)
        assert (done.code, done.out) == (3, "")
        assert "not a regular file" in done.err or "Is a directory" in done.err


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (["STORE", "--namesrv", "nonsense"], 2, "HOST:PORT"),
        (["STORE", "--namesrv", "127.0.0.1:1", "--to", "bad topic"], 2, "illegal characters"),
        (["nowhere", "--namesrv", "127.0.0.1:1"], 3, "nowhere"),
        (["-", "--namesrv", "127.0.0.1:1"], 2, "--journal"),
        (["STORE", "--namesrv", "127.0.0.1:1", "--journal", "/no/such/folder/j"], 3, "folder"),
    ],
)
def test_bad_options_are_one_line(
    tmp_path: Path, args: list[str], code: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = str(made(tmp_path / "origin", "T", 1))
    result = rmqtool("replay", *[source if word == "STORE" else word for word in args])
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert part in result.err
    assert os.listdir(tmp_path) == ["origin"]


@by_turns(7)
def test_killed_in_a_round_that_had_been_stopped_before(served: TestBroker, tmp_path: Path) -> None:
    """After the second run, more of the round is stored than the first run reported."""
    source = made(tmp_path / "origin", "Twice", 400)
    args = [*RMQTOOL, "replay", str(source), "--namesrv", served.namesrv, "--rate", "100"]
    there = 0
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            until = time.monotonic() + 60
            while len(messages(served.store, "Twice")) < there + 20 and time.monotonic() < until:
                time.sleep(0.1)
            running.send_signal(number)
        there = len(messages(served.store, "Twice"))
    assert 40 <= there < 400
    assert replay(served, source)[0] == 0
    assert bodies(messages(served.store, "Twice")) == bodies(messages(str(source), "Twice"))


@pytest.mark.parametrize(
    "line", ['{"begin":[0],"digest":0,"count":1e18,"floors":[]}', '{"begin":[0],"digest":1e999,"count":1,"floors":[]}']
)
def test_a_journal_that_no_replay_has_written(line: str, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with FileJournal(str(path), {"source": "x"}, (0, 1)):
        pass
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(CorruptFile, match="not a line of a replay's journal"):
        FileJournal(str(path), {"source": "x"}, (0, 1))
