"""POP over our own connections: refusals, held and woken requests, state after a kill."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.remoting import bodies as b
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData
from formats.variants.pop_handle import Handle, parse_parts
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V4_9, V5_3
from rmqtool.services.popping.records import Records
from rmqtool.store.append.answers import PutResult, PutStatus
from tests.server.serving import digest, positions, pull, records, send, serving

CONF = {"mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "60000", "mappedFileSizeTimerLog": "52000"}


def pop(**more: Any) -> Command:
    given: dict[str, Any] = {
        "consumer_group": "g", "topic": "Orders", "queue_id": -1, "max_msg_nums": 32, "invisible_time": 60_000,
        "poll_time": 0, "born_time": 0, "init_mode": 0, "order": False,
    }  # fmt: skip
    return Command(C.POP_MESSAGE, fields=to_fields(p.Pop(**{**given, **more})))


def handles(answer: Command) -> list[Handle]:
    body = from_fields(p.PopResponse, answer.fields)
    return [
        Handle(
            start_offset=part.start_offset, pop_time=body.pop_time, invisible_time=body.invisible_time,
            revive_queue=body.revive_qid, origin=part.origin, broker_name="lab-a", queue_id=part.queue_id,
            queue_offset=offset,
        )
        for part in parse_parts(body.start_offset_info or "", body.msg_offset_info or "")
        for offset in part.queue_offsets
    ]  # fmt: skip


def ack(handle: Handle, **more: Any) -> Command:
    given: dict[str, Any] = {
        "consumer_group": "g", "topic": "Orders", "queue_id": handle.queue_id, "offset": handle.queue_offset,
        "extra_info": handle.text,
    }  # fmt: skip
    return Command(C.ACK_MESSAGE, fields=to_fields(p.AckMessage(**{**given, **more})))


async def put(client: Connection, body: bytes, queue_id: int = 0) -> None:
    answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(queue_id=queue_id), body=body), 30)
    assert answer.code == 0, answer.remark


def serve(tmp_path: Path, test: Callable[[Connection], Awaitable[None]], **options: Any) -> None:
    given = {"create": True, "release": V5_3, "broker_conf": CONF}
    serving(tmp_path / "store", test, **{**given, **options})


def test_a_pop_waits_for_a_message_and_others_get_what_is_left(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await put(client, b"first")
        got = await client.call(pop(), 30)
        assert (got.code, got.remark) == (0, "FOUND")
        waiting = [asyncio.create_task(client.call(pop(max_msg_nums=1, poll_time=20_000), 40)) for _ in range(3)]
        asking = {"consumer_group": "g", "topic": "Orders", "queue_id": -1, "poll_time": 20_000, "born_time": 0}
        told = asyncio.create_task(client.call(Command(C.NOTIFICATION, fields=to_fields(p.Notification(**asking))), 40))
        number = -1
        while number != 3:
            info = await client.call(
                Command(C.POLLING_INFO, fields={"consumerGroup": "g", "topic": "Orders", "queueId": "-1"}), 30
            )
            number = from_fields(p.PollingNumber, info.fields).polling_num
        began = time.monotonic()
        for at, body in enumerate((b"a", b"b", b"c")):
            await put(client, body, at)
        answers = await asyncio.gather(*waiting)
        assert sorted(bytes(record.body) for answer in answers for record in records(answer.body)) == [b"a", b"b", b"c"]
        assert from_fields(p.Notified, (await told).fields).has_msg
        assert time.monotonic() - began < 15
        assert (await client.call(pop(poll_time=300), 30)).code == ResponseCode.POLLING_TIMEOUT

    serve(tmp_path, test)


@pytest.mark.parametrize(("ordered", "offset"), [(False, 3), (True, 0)])
def test_what_was_popped_is_not_reported_as_pulled(ordered: bool, offset: int, tmp_path: Path) -> None:
    """A pop does not move the pull offset; without one, it is the group's offset (``queryPullOffset``)."""

    async def test(client: Connection) -> None:
        for body in (b"a", b"b", b"c", b"d"):
            await put(client, body)
        assert len(handles(await client.call(pop(max_msg_nums=3, queue_id=0, order=ordered), 30))) == 3
        assert await positions(client) == (4, offset, offset)
        await client.call(Command(C.PULL_MESSAGE, fields=pull(0)), 30)
        assert await positions(client) == (4, offset, 4)

    serve(tmp_path, test)


def test_messages_come_back_and_acked_ones_do_not(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        for body in (b"a", b"b"):
            await put(client, body)
        got = handles(await client.call(pop(invisible_time=1_500), 30))
        assert (await client.call(ack(got[0]), 30)).code == 0
        again = await client.call(pop(poll_time=30_000), 40)
        assert [(bytes(record.body), record.topic, record.reconsume_times) for record in records(again.body)] == [
            (b"b", b"Orders", 1)
        ]
        (handle,) = handles(again)
        assert (await client.call(ack(handle, topic="%RETRY%g_Orders"), 30)).code == 0
        delete = Command(C.DELETE_TOPIC_IN_BROKER, fields={"topic": "Orders"})
        assert (await client.call(delete, 30)).code == 0
        gone = await client.call(ack(handle, topic="%RETRY%g_Orders"), 30)
        assert gone.code == ResponseCode.TOPIC_NOT_EXIST

    serve(tmp_path, test)


def test_what_cannot_be_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await put(client, b"a")
        (handle,) = handles(await client.call(pop(), 30))
        text = handle.text.split(" ")
        for at, value in ((3, "12345678"), (3, "-1"), (0, "x"), (1, "9" * 19), (2, "9" * 18), (1, str(1 << 64))):
            wrong = " ".join([*text[:at], value, *text[at + 1 :]])
            assert (await client.call(ack(handle, extra_info=wrong), 30)).code != 0, wrong
        assert (await client.call(ack(handle, extra_info="0 1 2"), 30)).code == ResponseCode.SYSTEM_ERROR
        assert (await client.call(pop(max_msg_nums=33), 30)).code == ResponseCode.INVALID_PARAMETER
        assert (await client.call(pop(invisible_time=10**15, queue_id=0), 30)).code == ResponseCode.INVALID_PARAMETER
        assert (await client.call(pop(exp_type="SQL92", exp="a ="), 30)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (await client.call(ack(handle), 30)).code == 0
        body = body_of(p.BatchAcks("lab-a", [p.BatchAck("g", "Orders", "0", 0, 0, 0, 1, 1, "!")]))
        assert (await client.call(Command(C.BATCH_ACK_MESSAGE, body=body), 30)).code == ResponseCode.SYSTEM_ERROR

    serve(tmp_path, test)
    made = sorted(
        path.name for path in Path(tmp_path, "store", "consumequeue", "rmq_sys_REVIVE_LOG_DefaultCluster").glob("*")
    )
    assert made == []  # all of it waits in the timer


def test_without_a_timer_nothing_is_popped(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await put(client, b"a")
        answer = await client.call(pop(), 30)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable is false" in (answer.remark or "")
        assert [bytes(record.body) for record in records(answer.body)] == []

    serve(tmp_path, test, broker_conf=CONF | {"timerWheelEnable": "false"})


def test_brokers_of_4_9_know_no_pop(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        for code in (C.POP_MESSAGE, C.ACK_MESSAGE, C.QUERY_ASSIGNMENT):
            answer = await client.call(Command(code, fields=pop().fields), 30)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    serve(tmp_path, test, release=V4_9)


def test_a_store_that_is_only_read_tells_its_consumers_to_pull(tmp_path: Path) -> None:
    mode = Command(C.SET_MESSAGE_REQUEST_MODE, body=body_of(b.SetRequestMode("Orders", "g", "POP")))

    async def assigned(client: Connection) -> list[tuple[str, int]]:
        data = b.HeartbeatData(
            "me", [], [ConsumerData("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")]
        )
        assert (await client.call(Command(C.HEART_BEAT, body=body_of(data)), 30)).code == 0
        asked = b.AssignmentRequest("Orders", "g", "me", "AVG", "CLUSTERING")
        answer = await client.call(Command(C.QUERY_ASSIGNMENT, body=body_of(asked)), 30)
        body = read_body(b.AssignmentResponse, answer.body).message_queue_assignments
        return sorted((assignment.mode, assignment.message_queue.queue_id) for assignment in body or [])

    async def first(client: Connection) -> None:
        await put(client, b"a")
        assert await assigned(client) == [("PULL", n) for n in range(4)]
        assert (await client.call(mode, 30)).code == 0
        assert await assigned(client) == [("POP", -1)]

    async def then(client: Connection) -> None:
        assert await assigned(client) == [("PULL", n) for n in range(4)]
        assert (await client.call(mode, 30)).code == ResponseCode.NO_PERMISSION

    serve(tmp_path, first)
    before = digest(tmp_path / "store")
    serve(tmp_path, then, create=False, read_only=True, offsets=str(tmp_path / "offsets.csv"))
    assert digest(tmp_path / "store") == before


@pytest.mark.parametrize("born", [-3_600_000, 3_600_000])
def test_a_client_whose_clock_goes_wrong_waits_and_gets_messages(tmp_path: Path, born: int) -> None:
    async def test(client: Connection) -> None:
        await put(client, b"a")
        now = int(time.time() * 1000)
        assert len(records((await client.call(pop(born_time=now + born, poll_time=5_000), 30)).body)) == 1
        waiting = asyncio.create_task(client.call(pop(born_time=now + born, poll_time=20_000), 30))
        await asyncio.sleep(0.2)
        await put(client, b"b")
        assert len(records((await waiting).body)) == 1

    serve(tmp_path, test)


@pytest.mark.parametrize("invisible", [4 * 24 * 3600 * 1000, 2**62, -1])
def test_an_invisible_time_that_no_timer_keeps_is_refused_before_anything(invisible: int, tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await put(client, b"one")
        refused = await client.call(pop(invisible_time=invisible, poll_time=20_000), 5)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert f"invisibleTime[{invisible}] is illegal" in (refused.remark or "")
        got = await client.call(pop(), 5)
        assert [record.body for record in records(got.body)] == [b"one"]
        handle = handles(got)[0]
        fields = to_fields(
            p.ChangeInvisible(
                consumer_group="g", topic="Orders", queue_id=0, extra_info=handle.text, offset=0,
                invisible_time=invisible,
            )
        )  # fmt: skip
        changed = await client.call(Command(C.CHANGE_MESSAGE_INVISIBLETIME, fields=fields), 5)
        assert changed.code == ResponseCode.INVALID_PARAMETER

    serve(tmp_path, test)


def test_a_pop_that_fails_waits_and_its_reason_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def put_nothing(_records: Records, record: object, *_args: object) -> PutResult:
        tried.append(record)
        return PutResult(PutStatus.MESSAGE_ILLEGAL, "rmq_sys_REVIVE_LOG", 0, reason="not now")

    async def test(client: Connection) -> None:
        await put(client, b"one")
        with monkeypatch.context() as patched:
            patched.setattr(Records, "put", put_nothing)
            waiting = [asyncio.create_task(client.call(pop(poll_time=20_000), 30)) for _ in range(3)]
            await asyncio.sleep(1.5)
            assert not any(task.done() for task in waiting)
            assert 3 <= len(tried) <= 12
        done, _pending = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert [record.body for record in records(done.pop().result().body)] == [b"one"]
        for task in waiting:
            task.cancel()

    serve(tmp_path, test)
    assert sum("nothing is handed out to g" in record.getMessage() for record in caplog.records) == 1
