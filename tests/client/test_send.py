"""The command send, against our own broker and a failing one."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from formats.message.build import compose, pack
from formats.message.ids import parse_offset_id
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.contract import SEND_FIELDS, message_row
from rmqtool.services.open_store.store import Store
from rmqtool.testing import TestBroker, broker
from rmqtool.words import counted
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, Result, rmqtool
from tests.client.peers import Peer, ok, peer, route, serving, tells
from tests.client.test_producer import lose, stored


def send(namesrv: str, *args: object, given: str = "") -> Result:
    with NamedTemporaryFile("w", suffix=".ndjson") as file:
        file.write(given)
        file.flush()
        return rmqtool("send", "--namesrv", namesrv, args[0], file.name, *args[1:])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


def in_store(served: TestBroker, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with Store(served.store) as store:
        result = [store.message_at(parse_offset_id(row["offsetMsgId"]).physical_offset) for row in answers]
    return [message_row(located.record, located.physical_offset) for located in result if located is not None]


def test_each_line_is_answered_and_what_is_acknowledged_is_stored(served: TestBroker) -> None:
    lines = [
        {"body": "one", "keys": ["k1", "k2"], "tags": "red", "properties": {"p": "v"}, "flag": 3},
        {"body": "/w==", "bodyEncoding": "base64", "topic": "ignored", "queueId": 77},
        {"body": {"a": 1}},
        {"body": ""},
        {"body": "half", "properties": {"TRAN_MSG": "true"}},
    ]
    done = send(served.namesrv, "Sent", "-o", "ndjson", given="".join(json.dumps(row) + "\n" for row in lines) + "no\n")
    assert done.code == 1
    answers = rows(done)
    assert [row["line"] for row in answers] == [1, 2, 3, 4, 5, 6]
    assert [row["status"] for row in answers] == ["SEND_OK"] * 3 + ["NOT_A_MESSAGE"] * 3
    assert all(list(row) == list(SEND_FIELDS) for row in answers)
    stored_rows = in_store(served, answers[:3])
    assert [row["body"] for row in stored_rows] == ["one", "/w==", '{"a":1}']
    assert (stored_rows[0]["keys"], stored_rows[0]["tags"], stored_rows[0]["flag"]) == (["k1", "k2"], "red", 3)
    assert stored_rows[0]["properties"]["p"] == "v"
    for row, answer in zip(stored_rows, answers[:3], strict=True):
        assert [row[name] for name in ("topic", "queueId", "queueOffset", "msgId")] == [
            answer[name] for name in ("topic", "queueId", "queueOffset", "msgId")
        ]
    assert done.err.splitlines()[-1] == "3 messages sent, 3 not sent; up to line 6"
    assert "Traceback" not in done.err


def test_lines_with_keys_tag_properties_and_queue(served: TestBroker) -> None:
    options = ["--lines", "--key", "a", "--key", "b", "--tag", "t", "--property", "x=1=2", "--queue", "broker-a:2"]
    done = send(served.namesrv, "Lines", *options, "--batch", "5", "-o", "ndjson", given="first\n\nsecond {\n")
    assert done.code == 0, done.err
    answers = rows(done)
    assert [(row["line"], row["queueId"], row["queueOffset"]) for row in answers] == [(1, 2, 0), (3, 2, 1)]
    for row, body in zip(in_store(served, answers), ["first", "second {"], strict=True):
        assert (row["body"], row["keys"], row["tags"], row["properties"]["x"]) == (body, ["a", "b"], "t", "1=2")


def test_what_was_dumped_is_not_delayed_nor_half_again(served: TestBroker) -> None:
    row = {
        "topic": "Old", "physicalOffset": 4096, "body": "again", "storeTimestamp": 1,
        "properties": {"DELAY": "3", "REAL_TOPIC": "Old", "TRAN_MSG": "true", "TIMER_DELIVER_MS": "9", "own": "1",
                       "UNIQ_KEY": "FD0000000000000000000000000000020FB630946E09664347930066"},
    }  # fmt: skip
    done = send(served.namesrv, "Again", "-o", "ndjson", given=json.dumps(row))
    assert done.code == 0, done.err
    (in_order,) = in_store(served, rows(done))
    assert in_order["topic"] == "Again"
    assert not {"DELAY", "REAL_TOPIC", "TRAN_MSG", "TIMER_DELIVER_MS"} & in_order["properties"].keys()
    assert (in_order["properties"]["own"], in_order["msgId"]) == ("1", row["properties"]["UNIQ_KEY"])  # type: ignore[index]


def test_delays_by_level_and_by_time(served: TestBroker) -> None:
    result = []
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)  # brokers take three days at most
    for delay in ("2", "2h", f"{at:%Y-%m-%dT%H:%M:%SZ}"):
        done = send(served.namesrv, "Later", "--lines", "--delay", delay, "-o", "ndjson", given="x")
        assert done.code == 0, done.err
        result += in_store(served, rows(done))
    assert result[0]["properties"]["DELAY"] == "2"
    assert result[1]["properties"]["TIMER_DELAY_MS"] == "7200000", "the broker's clock decides, not ours"
    assert "TIMER_DELIVER_MS" not in result[1]["properties"]
    assert result[2]["properties"]["TIMER_DELIVER_MS"] == str(round(at.timestamp() * 1000))


def test_oneway_has_ids_and_no_places(served: TestBroker) -> None:
    done = send(served.namesrv, "Gone", "--lines", "--oneway", "--rate", "1000", "-o", "csv", given="a\nb\n")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == ",".join(SEND_FIELDS)
    assert [line.split(",")[:3] for line in lines[1:]] == [["1", "SENT", "Gone"], ["2", "SENT", "Gone"]]


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (["--namesrv", "nonsense", "T"], 2, "HOST:PORT"),
        (["--namesrv", "", "T"], 2, "HOST:PORT"),
        (["--namesrv", "127.0.0.1:1", "T"], 3, "127.0.0.1:1: Connection refused"),
        (["--namesrv", "127.0.0.1:1", "bad topic"], 2, "illegal characters"),
        (["--namesrv", "127.0.0.1:1", "T", "no/such/file"], 3, "No such file"),
        (["--namesrv", "127.0.0.1:1", "T", "/dev/null", "--property", "x"], 2, "NAME=VALUE"),
        (["--namesrv", "127.0.0.1:1", "T", "/dev/null", "--delay", "soon"], 2, "not a time"),
        (["--namesrv", "127.0.0.1:1", "T", "/dev/null", "--engine", "6"], 2, "give auto, 4.9, 5.3, 5.4 or 5.5"),
        (["--namesrv", "127.0.0.1:1", "T", "/dev/null", "--batch", "2", "--oneway"], 2, "go alone"),
        (["--namesrv", "127.0.0.1:1", "T", "/dev/null", "--group", " "], 2, "blank"),
    ],
)
def test_bad_options_are_one_line(args: list[str], code: int, part: str) -> None:
    if len(args) == 3:
        args = [*args, "/dev/null"]
    result = rmqtool("send", *args)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert part in result.err


def test_a_queue_that_is_not_there(served: TestBroker) -> None:
    done = send(served.namesrv, "Lines", "--queue", "99", given="{}")
    assert (done.code, done.out) == (2, "")
    assert "no such queue" in done.err


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Peer, str]]:
    """A scripted broker, and the address of its name server."""
    async with peer() as namesrv, peer() as fake_broker:
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", fake_broker.address))})
        yield fake_broker, namesrv.address


@pytest.mark.parametrize(
    ("answer", "code", "statuses"),
    [
        ("refuse", 1, ["SEND_OK", "NOT_SENT", "SEND_OK"]),
        ("close", 3, ["SEND_OK", "UNKNOWN"]),
        ("nonsense", 3, ["SEND_OK", "UNKNOWN"]),
    ],
)
def test_a_broker_that_fails_midway(answer: str, code: int, statuses: list[str]) -> None:
    with serving(cluster()) as (running, namesrv):

        def reply(request: Command) -> Command | None:
            if b"2" not in request.body:
                return stored(request)
            if answer == "refuse":
                return request.response(ResponseCode.MESSAGE_ILLEGAL, "not this one")
            if answer == "nonsense":
                return request.response(fields={"queueId": "?"})
            running.connections[-1].abort()
            return None

        running.replies[C.SEND_MESSAGE_V2] = reply
        done = send(namesrv, "T", "--lines", "-o", "ndjson", given="1\n2\n3\n")
    assert done.code == code, done.err
    assert [row["status"] for row in rows(done)] == statuses
    assert "Traceback" not in done.err
    if code == 3:
        assert done.err.splitlines()[-1].startswith("error: ") or '"error"' in done.err
        assert "what follows was not read" in done.err


@pytest.mark.parametrize("args", [[], ["--batch", "2"]])
def test_a_message_that_may_be_stored_twice_says_so(args: list[str]) -> None:
    code = C.SEND_BATCH_MESSAGE if args else C.SEND_MESSAGE_V2
    with serving(cluster()) as (running, namesrv):
        lost = lose([running], code)
        done = send(namesrv, "T", "--lines", *args, "-o", "ndjson", given="1\n2\n3\n4\n")
    assert done.code == 0, done.err
    assert [row["status"] for row in rows(done)] == ["SEND_OK"] * 4
    count = 2 if args else 1
    assert [row["maybeStored"] for row in rows(done)] == [[f"a:{lost[0][1]}"]] * count + [None] * (4 - count)
    assert f"{counted(count, 'message')} may be stored twice" in done.err
    assert done.err.splitlines()[-1] == "4 messages sent; up to line 4"


def test_a_message_without_any_answer_names_the_queues_that_may_have_it() -> None:
    with serving(cluster()) as (running, namesrv):
        lost = lose([running], C.SEND_MESSAGE_V2, times=3)
        done = send(namesrv, "T", "--lines", "-o", "ndjson", given="1\n")
    assert done.code == 3, done.err
    assert [(row["status"], row["maybeStored"]) for row in rows(done)] == [("UNKNOWN", [f"a:{n}" for _, n in lost])]
    assert "stored twice" not in done.err


def test_a_half_that_may_be_stored_twice_says_so() -> None:
    with serving(cluster()) as (running, namesrv):
        lost = lose([running], C.SEND_MESSAGE_V2)
        answer = running.replies[C.SEND_MESSAGE_V2]

        def reply(request: Command) -> Command | None:
            answered = answer(request)
            if isinstance(answered, Command):
                answered.fields = {**(answered.fields or {}), "msgId": "7F0000010000CF13" + f"{0:016X}"}
                return answered
            return None

        running.replies[C.SEND_MESSAGE_V2] = reply
        running.replies[C.END_TRANSACTION] = ok
        done = send(namesrv, "T", "--lines", "--transaction", "commit", "-o", "ndjson", given="1\n")
    assert done.code == 0, done.err
    assert [(row["status"], row["maybeStored"]) for row in rows(done)] == [("COMMITTED", [f"a:{lost[0][1]}"])]
    assert "1 message may be stored twice" in done.err


@by_turns(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_all_that_was_stored_is_answered(number: signal.Signals, tmp_path: Path) -> None:
    with broker(tmp_path / "store") as served:
        command = [*RMQTOOL, "send", "--namesrv", served.namesrv, "Signal", "--lines", "-o", "ndjson"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        ) as running:
            assert running.stdin
            assert running.stdout
            running.stdin.write("".join(f"{n}\n" for n in range(20_000)))
            running.stdin.flush()
            first = [running.stdout.readline() for _ in range(50)]
            running.send_signal(number)
            assert running.stderr
            rest, stderr = running.stdout.read(), running.stderr.read()  # communicate() loses lines read ahead
            running.wait(60)
    assert running.returncode == 128 + number, stderr
    answers = [json.loads(line) for line in [*first, *rest.splitlines()]]
    assert 50 <= len(answers) < 20_000
    assert [row["status"] for row in answers] == ["SEND_OK"] * len(answers)
    assert [row["body"] for row in in_store(served, answers)] == [str(n) for n in range(len(answers))]
    with Store(str(tmp_path / "store")) as store:  # and nothing else of it is there
        mine = list(store.messages(topic="Signal"))
    assert len(mine) == len(answers)
    assert f"{len(answers)} messages sent; up to line {len(answers)}" in stderr


def test_halves_of_transactions_are_ended(served: TestBroker) -> None:
    done = send(served.namesrv, "Halves", "--lines", "--transaction", "commit", "-o", "ndjson", given="1\n2\n")
    assert done.code == 0, done.err
    assert [row["status"] for row in rows(done)] == ["COMMITTED"] * 2
    done = send(served.namesrv, "Halves", "--lines", "--transaction", "rollback", "-o", "ndjson", given="3\n")
    assert [row["status"] for row in rows(done)] == ["ROLLED_BACK"]
    done = rmqtool("consume", "--namesrv", served.namesrv, "Halves", "-o", "ndjson")
    assert sorted(json.loads(line)["body"] for line in done.out.splitlines()) == ["1", "2"]
    for arguments in (["--batch", "2"], ["--oneway"], ["--delay", "1"]):
        done = send(served.namesrv, "Halves", "--lines", "--transaction", "commit", *arguments, given="1\n")
        assert (done.code, done.out) == (2, "")


def test_a_broker_that_has_not_heard_the_end_asks_and_is_told() -> None:
    told: list[dict[str, str]] = []
    with serving(cluster()) as (running, namesrv):
        place = "7F0000010000CF13" + f"{0:016X}"
        running.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(
            fields={"msgId": place, "queueId": (request.fields or {})["e"], "queueOffset": "5"}
        )

        def ended(request: Command) -> Command | None:
            fields = dict(request.fields or {})
            if fields["fromTransactionCheck"] == "true":
                told.append(fields)
                return None
            (half,) = running.of(C.SEND_MESSAGE_V2)
            sent = dict(half.fields or {})
            address = bytes((127, 0, 0, 1))
            record = compose(
                topic=b"T", queue_id=0, queue_offset=6, physical_offset=700, body=half.body,
                properties=sent["i"].encode(), born_timestamp=1, born_address=address, born_port=1,
                store_timestamp=1, store_address=address, store_port=1,
            )  # fmt: skip
            check = {"tranStateTableOffset": "6", "commitLogOffset": "700"}
            asking = Command(C.CHECK_TRANSACTION_STATE, fields=check, body=pack(record))
            asyncio.get_running_loop().call_later(0.3, running.connections[-1].tell, asking)
            return request.response(ResponseCode.SYSTEM_ERROR, "not now")

        running.replies[C.END_TRANSACTION] = ended
        done = send(namesrv, "T", "--lines", "--transaction", "commit", "-o", "ndjson", given="1\n")
    assert done.code == 1, done.err
    assert [row["status"] for row in rows(done)] == ["UNDECIDED"]
    assert [fields["commitOrRollback"] for fields in told] == ["8"]
    assert "brokers have asked about 1 of them, and got the answer" in done.err


@pytest.mark.parametrize(
    "fields",
    [
        {"msgId": "00", "queueId": "0", "queueOffset": "0"},  # no place to end it at
        {"msgId": "7F0000010000CF13" + "F" * 16, "queueId": "0", "queueOffset": "-1"},
        {"queueId": "0"},
        {},
    ],
)
def test_a_half_whose_place_is_nonsense_is_not_ended(fields: dict[str, str]) -> None:
    with serving(cluster()) as (running, namesrv):
        running.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(fields=fields)
        done = send(namesrv, "T", "--lines", "--transaction", "commit", "-o", "ndjson", given="1\n2\n")
        assert C.END_TRANSACTION not in running.codes()
    assert done.code == 3, done.err
    assert [row["status"] for row in rows(done)] == ["UNKNOWN"]
    assert "Traceback" not in done.err
