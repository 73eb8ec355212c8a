"""POP of a store that is only read: nothing is written to it, and no message is missed, whatever happens."""

import asyncio
import csv
from pathlib import Path
from typing import Any

import pytest

from formats.message.bodies import BatchItem, build_batch
from formats.remoting import headers as h
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.variants.pop_handle import Handle
from rmqtool.remoting.connection import Connection
from tests.server.serving import commit_offset, digest, records, send
from tests.server.test_popping import ack, handles, pop, put, serve

BODIES = [b"m%d" % number for number in range(10)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with ten messages in the first queue of Orders."""

    async def test(client: Connection) -> None:
        for body in BODIES:
            await put(client, body)

    serve(tmp_path, test)
    return tmp_path / "store"


def read_only(tmp_path: Path, test: Any, **more: Any) -> None:
    before = digest(tmp_path / "store")
    serve(tmp_path, test, create=False, read_only=True, offsets=str(tmp_path / "offsets.csv"), **more)
    assert digest(tmp_path / "store") == before


def committed(tmp_path: Path) -> int:
    with open(tmp_path / "offsets.csv", newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if (row["topic"], row["queueId"]) == ("Orders", "0")]
    return int(row["consumerOffset"])


def bodies(answer: Command) -> list[bytes]:
    return [bytes(record.body) for record in records(answer.body)]


async def popped(client: Connection, **more: Any) -> tuple[list[bytes], list[Handle]]:
    answer = await client.call(pop(queue_id=0, **more), 40)
    return bodies(answer), handles(answer)


@pytest.mark.usefixtures("store")
def test_what_is_not_acked_comes_back_and_the_offset_stays_before_it(tmp_path: Path) -> None:
    async def first(client: Connection) -> None:
        got, given = await popped(client, max_msg_nums=4, invisible_time=1_500)
        assert got == BODIES[:4]
        for handle in (given[0], given[2]):
            assert (await client.call(ack(handle), 30)).code == 0
        rest, _handles = await popped(client, invisible_time=60_000)
        assert rest == BODIES[4:]
        again = await client.call(pop(poll_time=20_000), 40)
        assert bodies(again) == [BODIES[1], BODIES[3]]
        for handle in handles(again):
            assert (await client.call(ack(handle), 30)).code == 0
        assert (await popped(client))[0] == []

    read_only(tmp_path, first)
    assert committed(tmp_path) == 4, "of the rest nothing was acked"

    async def then(client: Connection) -> None:
        got, given = await popped(client)
        assert got == BODIES[4:]
        for handle in given:
            assert (await client.call(ack(handle), 30)).code == 0

    read_only(tmp_path, then)
    assert committed(tmp_path) == len(BODIES)


@pytest.mark.usefixtures("store")
def test_a_changed_invisible_time_counts(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        (handle,) = (await popped(client, max_msg_nums=1, invisible_time=1_500))[1]
        longer = p.ChangeInvisible(
            consumer_group="g", topic="Orders", queue_id=0, offset=0, invisible_time=60_000, extra_info=handle.text
        )
        answer = await client.call(Command(C.CHANGE_MESSAGE_INVISIBLETIME, fields=to_fields(longer)), 30)
        assert answer.code == 0
        await asyncio.sleep(3)
        assert (await popped(client))[0] == BODIES[1:]
        assert (await client.call(ack(handle), 30)).code == 0  # of the old handle: without effect, as at a broker

    read_only(tmp_path, test)
    assert committed(tmp_path) == 0


@pytest.mark.usefixtures("store")
def test_what_a_broker_had_handed_out_comes_first(tmp_path: Path) -> None:
    async def before(client: Connection) -> None:
        given = (await popped(client, max_msg_nums=5))[1]
        assert (await client.call(ack(given[1]), 30)).code == 0

    serve(tmp_path, before, create=False)

    async def test(client: Connection) -> None:
        got, given = await popped(client, max_msg_nums=3)
        assert got == [BODIES[0], BODIES[2], BODIES[3]]
        for handle in given:
            assert (await client.call(ack(handle), 30)).code == 0
        assert (await popped(client))[0] == [BODIES[4]]
        got, given = await popped(client)
        assert got == BODIES[5:]
        assert (await client.call(ack(given[0]), 30)).code == 0

    read_only(tmp_path, test)
    assert committed(tmp_path) == 6


@pytest.mark.usefixtures("store")
def test_a_group_that_is_set_back_begins_there(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        assert (await popped(client))[0] == BODIES
        await commit_offset(client, 7)
        assert (await popped(client))[0] == BODIES[7:]

    read_only(tmp_path, test)
    assert committed(tmp_path) == 7


@pytest.mark.usefixtures("store")
def test_ordered_pops_wait_for_their_acks(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        got, given = await popped(client, order=True, max_msg_nums=2, attempt_id="a")
        assert got == BODIES[:2]
        assert (await popped(client, order=True, attempt_id="b"))[0] == []
        for handle in given:
            assert (await client.call(ack(handle), 30)).code == 0
        assert (await popped(client, order=True, attempt_id="c"))[0] == BODIES[2:]

    read_only(tmp_path, test)
    assert committed(tmp_path) == 2


def test_a_followed_store_is_not_popped_from(store: Path, tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        answer = await client.call(pop(), 30)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "pop from it" in (answer.remark or "")

    before = digest(store)
    serve(tmp_path, test, create=False, follow=True, read_only=True, offsets=str(tmp_path / "offsets.csv"))
    assert digest(store) == before


@pytest.mark.usefixtures("store")
def test_waiting_clients_hear_of_what_comes_back(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        assert (await popped(client, invisible_time=2_000))[0] == BODIES
        asking = {"consumer_group": "g", "topic": "Orders", "queue_id": -1, "poll_time": 20_000, "born_time": 0}
        told = await client.call(Command(C.NOTIFICATION, fields=to_fields(p.Notification(**asking))), 40)
        assert from_fields(p.Notified, told.fields).has_msg
        assert (await popped(client))[0] == BODIES

    read_only(tmp_path, test)


def test_what_comes_back_passes_the_filter(tmp_path: Path) -> None:
    async def write(client: Connection) -> None:
        for number in range(6):
            fields = send(properties=f"TAGS\x01{'ab'[number % 2]}\x02")
            assert (await client.call(Command(C.SEND_MESSAGE_V2, fields=fields, body=b"%d" % number), 30)).code == 0

    serve(tmp_path, write)

    async def test(client: Connection) -> None:
        assert len((await popped(client, invisible_time=1_500))[0]) == 6
        await asyncio.sleep(3)
        got, given = await popped(client, exp_type="TAG", exp="b")
        assert got == [b"1", b"3", b"5"]
        for handle in given:
            assert (await client.call(ack(handle), 30)).code == 0

    read_only(tmp_path, test)
    assert committed(tmp_path) == 6


def test_a_batch_comes_back_whole(tmp_path: Path) -> None:
    body = build_batch([BatchItem(n, b"in %d" % n, b"") for n in range(5)])
    made = h.CreateTopic(
        topic="InBatches", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes="+queue.type=BatchCQ",
    )  # fmt: skip

    async def write(client: Connection) -> None:
        assert (await client.call(Command(C.UPDATE_AND_CREATE_TOPIC, fields=to_fields(made)), 30)).code == 0
        fields = send("InBatches", properties="UNIQ_KEY\x01" + "A" * 32, batch=True)
        assert (await client.call(Command(C.SEND_BATCH_MESSAGE, fields=fields, body=body), 30)).code == 0

    serve(tmp_path, write)

    async def test(client: Connection) -> None:
        first = await client.call(pop(topic="InBatches", queue_id=0, invisible_time=1_500), 40)
        assert (first.code, len(records(first.body))) == (0, 1)
        await asyncio.sleep(3)
        again = await client.call(pop(topic="InBatches", queue_id=0), 40)
        assert (again.code, bytes(again.body)) == (0, bytes(first.body))

    read_only(tmp_path, test)
