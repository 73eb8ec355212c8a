"""The page for Prometheus: metrics of topics, groups and clients, and access to it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from formats.fastjson.declare import body_of
from formats.model.topics import TopicConfig
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, ProducerData, SubscriptionData
from rmqtool.errors import Refused
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V5_3
from rmqtool.server.metrics import page
from rmqtool.server.serve import Served, ServeOptions
from tests.server.serving import address, pull, send

_CONF = {"mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "60000"}
Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]
Test = Callable[[Served, Connection], Awaitable[None]]


def serving(store: Path, test: Test, *, read_only: bool = False) -> None:
    async def run() -> None:
        options = ServeOptions(
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), broker_conf=_CONF, name="lab-a", cluster="lab",
            create=True, release=V5_3, metrics=("127.0.0.1", 0), read_only=read_only,
        )  # fmt: skip
        async with (
            asyncio.timeout(60),
            Served(str(store), options) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            await test(served, client)

    asyncio.run(run())


async def http(served: Served, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> tuple[str, str]:
    """Status line and body of a response."""
    reader, writer = await asyncio.open_connection(*address(served.metrics_address))
    writer.write(request)
    text = (await reader.read()).decode()
    writer.close()
    head, _, body = text.partition("\r\n\r\n")
    return head.partition("\r\n")[0], body


async def scrape(served: Served) -> Samples:
    status, body = await http(served)
    assert status == "HTTP/1.1 200 OK"
    families = text_string_to_metric_families(body)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def labels(**values: str) -> Labels:
    return frozenset(values.items())


async def ask(client: Connection, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
    return await client.call(Command(code, fields=fields, body=body), 30)


def test_topics_and_groups_are_told_as_the_exporter_does(tmp_path: Path) -> None:
    async def test(served: Served, client: Connection) -> None:
        assert served.broker is not None
        while not served.broker.context.counts._samples:  # the next one by itself comes in 10 s
            await asyncio.sleep(0.01)
        for number in range(10):
            answer = await ask(client, C.SEND_MESSAGE_V2, send(queue_id=number % 2), b"x" * 100)
            assert answer.code == ResponseCode.SUCCESS
        subscription = SubscriptionData(topic="Orders", sub_string="*", sub_version=1)
        consumer = ConsumerData(
            "g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET", [subscription], unit_mode=False
        )
        heartbeat = b.HeartbeatData("10.0.0.1@7", [ProducerData("p")], [consumer])
        await ask(client, C.HEART_BEAT, {}, body_of(heartbeat))
        assert (await ask(client, C.PULL_MESSAGE, pull(0))).code == ResponseCode.SUCCESS
        commit = h.Commit(consumer_group="g", topic="Orders", queue_id=0, commit_offset=3)
        assert (await ask(client, C.UPDATE_CONSUMER_OFFSET, to_fields(commit))).code == ResponseCode.SUCCESS
        served.broker.context.counts.sample(time.monotonic() + 1)

        metrics = await scrape(served)
        broker = labels(cluster="lab", brokerIP=served.broker_address, broker="lab-a")
        topic = labels(cluster="lab", broker="lab-a", topic="Orders")
        group = labels(cluster="lab", broker="lab-a", topic="Orders", group="g")
        tps = metrics["rocketmq_broker_tps", broker]
        assert tps > 0
        assert metrics["rocketmq_broker_qps", broker] == pytest.approx(tps / 2)
        assert metrics["rocketmq_producer_offset", topic] == 10
        assert metrics["rocketmq_producer_tps", topic] == pytest.approx(tps)
        assert metrics["rocketmq_producer_message_size", topic] > tps * 100
        diff = labels(group="g", topic="Orders", countOfOnlineConsumers="1", msgModel="1")
        assert metrics["rocketmq_group_diff", diff] == 7
        assert metrics["rocketmq_message_accumulation", group] == 7
        assert metrics["rocketmq_consumer_offset", group] == 3
        assert metrics["rocketmq_consumer_tps", group] == pytest.approx(tps / 2)
        assert metrics["rocketmq_group_get_latency_by_storetime", group] > 0
        own = [dict(known) for name, known in metrics if name == "rocketmq_group_count"]
        assert own == [{"caddr": own[0]["caddr"], "localaddr": "10.0.0.1@7", "group": "g"}]
        assert metrics["rocketmq_producer_count", labels(cluster="lab", broker="lab-a", group="p")] == 1
        assert served.broker.context.reading.end in (
            value for (name, _), value in metrics.items() if name == "rocketmq_brokeruntime_commitlog_maxoffset"
        )

    serving(tmp_path / "store", test)


def test_a_store_that_is_only_read_has_figures_too(tmp_path: Path) -> None:
    async def fill(_served: Served, client: Connection) -> None:
        for _ in range(4):
            await ask(client, C.SEND_MESSAGE_V2, send(), b"x")

    async def test(served: Served, _client: Connection) -> None:
        metrics = await scrape(served)
        assert metrics["rocketmq_producer_offset", labels(cluster="lab", broker="lab-a", topic="Orders")] == 4

    serving(tmp_path / "store", fill)
    (tmp_path / "store" / "abort").unlink(missing_ok=True)

    async def read() -> None:
        options = ServeOptions(
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), broker_conf=_CONF, name="lab-a", cluster="lab",
            metrics=("127.0.0.1", 0), read_only=True, offsets=str(tmp_path / "offsets.csv"),
        )  # fmt: skip
        async with (
            asyncio.timeout(60),
            Served(str(tmp_path / "store"), options) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            await test(served, client)

    asyncio.run(read())


def test_with_a_thousand_topics_requests_are_served_meanwhile(tmp_path: Path) -> None:
    async def test(served: Served, client: Connection) -> None:
        assert served.broker is not None
        for number in range(1000):
            name = f"Topic{number}"
            config = TopicConfig(topic_name=name, read_queue_nums=64, write_queue_nums=64)
            served.broker.context.state.suppose_topic(config)
        page = asyncio.create_task(scrape(served))
        answered = 0
        while not page.done():
            await ask(client, C.GET_MAX_OFFSET, to_fields(h.Queue(topic="Topic7", queue_id=0)))
            answered += not page.done()
        metrics = await page
        assert sum(name == "rocketmq_producer_offset" for name, _ in metrics) > 1000
        assert answered > 3

    serving(tmp_path / "store", test)


def test_names_that_are_no_text_do_not_stop_the_page(tmp_path: Path) -> None:
    async def test(served: Served, client: Connection) -> None:
        body = b'{"clientID":"\\ud800\\n\\"","producerDataSet":[{"groupName":"p\\udc00"}],"consumerDataSet":[]}'
        assert (await ask(client, C.HEART_BEAT, {}, body)).code == ResponseCode.SUCCESS
        metrics = await scrape(served)
        assert any(name == "rocketmq_producer_count" for name, _ in metrics)

    serving(tmp_path / "store", test)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"\xff\x00 nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"x" * 100_000, ""),
    ],
)
def test_other_requests_get_an_answer_or_none(
    tmp_path: Path, request_bytes: bytes, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(served: Served, _client: Connection) -> None:
        try:
            assert (await http(served, request_bytes))[0] == status
        except ConnectionError:
            assert not status

    serving(tmp_path / "store", test)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def ends(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of an unanswered connection."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_half_sent_requests_do_not_keep_others_out(tmp_path: Path) -> None:
    async def test(served: Served, _client: Connection) -> None:
        half = [await asyncio.open_connection(*address(served.metrics_address)) for _ in range(40)]
        for _, writer in half:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost:")
        assert all([await ends(reader) for reader, _ in half[:8]])  # the oldest, for the last eight
        assert (await http(served))[0] == "HTTP/1.1 200 OK"
        half[-1][1].write(b" x\r\n\r\n")  # one that has come later goes on
        assert (await half[-1][0].readline()) == b"HTTP/1.1 200 OK\r\n"
        for _, writer in half:
            writer.close()

    serving(tmp_path / "store", test)


def test_a_request_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_HEAD_PATIENCE", 0.05)

    async def test(served: Served, _client: Connection) -> None:
        reader, writer = await asyncio.open_connection(*address(served.metrics_address))
        writer.write(b"GET /metrics")
        assert await ends(reader)
        writer.close()

    serving(tmp_path / "store", test)


def test_an_answer_that_nobody_takes_does_not_keep_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The responses are larger than a socket's buffer."""

    async def large(*_: object) -> bytes:
        return b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1 << 23)

    async def test(served: Served, _client: Connection) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(page.MetricsPage, "_answer", large)
            slow = [await asyncio.open_connection(*address(served.metrics_address)) for _ in range(32)]
            for reader, writer in slow:
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
                assert await reader.read(1) == b"H"
        assert (await http(served))[0] == "HTTP/1.1 200 OK"
        for _, writer in slow:
            writer.transport.abort()

    serving(tmp_path / "store", test)


def test_an_address_that_is_in_use_is_told(tmp_path: Path) -> None:
    async def test(served: Served, _client: Connection) -> None:
        options = ServeOptions(
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), create=True,
            metrics=address(served.metrics_address),
        )  # fmt: skip
        with pytest.raises(Refused, match="metrics 127"):
            async with Served(str(tmp_path / "other"), options):
                pass

    serving(tmp_path / "store", test)
