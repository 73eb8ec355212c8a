"""Messages and batches that are sent: their ids, queues and limits."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from formats.message.bodies import BatchItem, build_batch
from formats.message.ids import parse_offset_id
from formats.message.properties import parse
from formats.message.read import Record, read
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import RELEASES, V5_3
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.batch import BatchQueue, batch_queues_of
from tests.server.serving import CONF, pull, records, send, serving


@pytest.mark.parametrize("count", [1, 3, 250])
def test_each_message_of_a_batch_is_found_by_its_id(tmp_path: Path, count: int) -> None:
    body = build_batch([BatchItem(n, b"in %d" % n, b"KEYS\x01k%d\x02" % n) for n in range(count)])

    async def test(client: Connection) -> None:
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"before"))
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=send(batch=True), body=body))
        ids = done.fields["msgId"].split(",")
        assert len(set(ids)) == count
        for number, unique_id in enumerate(ids):
            parts = parse_offset_id(unique_id)
            seen = await client.call(Command(C.VIEW_MESSAGE_BY_ID, fields={"offset": str(parts.physical_offset)}))
            (record,) = records(seen.body)
            assert (record.body, record.flag, record.queue_offset) == (b"in %d" % number, number, 1 + number)
            assert (record.physical_offset, record.store_port) == (parts.physical_offset, parts.port)

    serving(tmp_path / "store", test, create=True)


def test_a_batch_without_messages_has_no_ids(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=send(batch=True)))
        assert not (done.fields or {}).get("msgId")
        after = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"after"))
        assert (after.code, after.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")

    serving(tmp_path / "store", test, create=True)


def test_a_topic_with_batch_queues_is_made_and_sent_to(tmp_path: Path) -> None:
    """At once and after the next start; the kind of queues cannot be changed."""
    store = tmp_path / "store"
    body = build_batch([BatchItem(n, b"in %d" % n, b"KEYS\x01k%d\x02" % n) for n in range(5)])
    made = h.CreateTopic(
        topic="InBatches", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes="+queue.type=BatchCQ",
    )  # fmt: skip

    async def test(client: Connection) -> None:
        base = 6 * sum(1 for _ in queues())
        place = to_fields(h.Queue(topic="InBatches", queue_id=0))
        again = made if base == 0 else replace(made, attributes="-queue.type")
        answer = await client.call(Command(C.UPDATE_AND_CREATE_TOPIC, fields=to_fields(again)))
        assert bool(answer.code) == bool(base)
        assert (await client.call(Command(C.DELETE_TOPIC_IN_BROKER, fields={"topic": "InBatches"}))).code
        lowest = await client.call(Command(C.GET_MIN_OFFSET, fields=place))
        assert lowest.fields["offset"] == ("0" if base else "-1")
        fields = send("InBatches", properties="UNIQ_KEY\x01" + "A" * 32, batch=True)
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=fields, body=body))
        assert (done.code, done.fields["queueOffset"], done.fields["msgId"].count(",")) == (0, str(base), 0)
        assert done.fields["batchUniqId"] == "A" * 32
        alone = await client.call(Command(C.SEND_MESSAGE_V2, fields=send("InBatches"), body=b"alone"))
        assert (alone.code, alone.fields["queueOffset"]) == (0, str(base + 5))
        for offset in range(base, base + 6):
            got = await client.call(Command(C.PULL_MESSAGE, fields=pull(offset, "InBatches")))
            assert (got.code, got.fields["nextBeginOffset"]) == (0, str(base + 6))
            first = read(got.body, 0, len(got.body))
            assert isinstance(first, Record)
            assert first.queue_offset == (base if offset < base + 5 else base + 5)
        behind = await client.call(Command(C.PULL_MESSAGE, fields=pull(base + 6, "InBatches")))
        assert behind.code == ResponseCode.PULL_NOT_FOUND

    def queues() -> Iterator[BatchQueue]:
        return (queue for queue in batch_queues_of(StoreLayout(str(store))) if queue.topic == "InBatches")

    for _ in range(2):
        serving(store, test, create=True, release=V5_3)
    (queue,) = queues()
    assert [(entry.queue_offset, entry.batch_num) for entry in queue.entries()] == [(0, 5), (5, 1), (6, 5), (11, 1)]


def test_a_batch_to_an_ordinary_topic_has_an_id_for_each_message(tmp_path: Path) -> None:
    """A client of 5.x gives every batch an id; if it got that back, it would know one id instead of ten."""
    body = build_batch([BatchItem(n, b"in %d" % n, b"UNIQ_KEY\x01%032d\x02" % n) for n in range(10)])

    async def test(client: Connection) -> None:
        fields = send(properties="UNIQ_KEY\x01" + "A" * 32, batch=True)
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=fields, body=body))
        assert (done.code, done.fields["msgId"].count(",")) == (0, 9)
        assert "batchUniqId" not in done.fields

    serving(tmp_path / "store", test, create=True, release=V5_3)


def test_a_popped_message_that_is_sent_on_loses_its_handle(tmp_path: Path) -> None:
    """As in SendMessageProcessor.clearReservedProperties."""
    mine = "TAGS\x01t\x02POP_CK\x010 1 2 3 4 lab-a 5 6\x02own\x01kept"

    async def test(client: Connection) -> None:
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=mine), body=b"sent on"))
        got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0)))
        (record,) = records(got.body)
        stored = parse(record.properties)
        assert (stored["own"], stored["TAGS"]) == ("kept", "t")
        assert "POP_CK" not in stored

    serving(tmp_path / "store", test, create=True, release=V5_3)


@pytest.mark.parametrize(("engine", "code"), [("4.9", 13), ("5.3", 1), ("5.5", 1)])
def test_a_batch_that_is_too_large(engine: str, code: int, tmp_path: Path) -> None:
    """In real brokers 4.9.8 checks the whole body, in 5.x the encoder throws; single messages would be accepted."""

    async def test(client: Connection) -> None:
        for size, expected in ((1000, 0), (40_000, code)):
            body = build_batch([BatchItem(0, bytes(size), b"KEYS\x01a")] * 2)
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(batch=True), body=body))
            assert answer.code == expected, answer.remark

    conf = CONF | {"maxMessageSize": "65536"}
    serving(tmp_path / "store", test, create=True, release=RELEASES[engine], broker_conf=conf)


@pytest.mark.parametrize("engine", RELEASES)
@pytest.mark.parametrize("most", [20_000, 6 << 20])
def test_a_body_is_as_long_as_the_configuration_allows(engine: str, most: int, tmp_path: Path) -> None:
    """``maxMessageSize``, below and above its default; tests/interop/test_sending.py asks a real broker."""

    async def test(client: Connection) -> None:
        for code, size in ((ResponseCode.SUCCESS, most), (ResponseCode.MESSAGE_ILLEGAL, most + 1)):
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=bytes(size)), 30)
            assert answer.code == code, answer.remark

    conf = CONF | {"mappedFileSizeCommitLog": str(16 << 20), "maxMessageSize": str(most)}
    serving(tmp_path / "store", test, create=True, release=RELEASES[engine], broker_conf=conf)
