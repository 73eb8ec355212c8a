"""The Spark source on a real broker, without Spark: rows, positions that are proved, messages that are sent."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool import read_arrow
from rmqtool.analytics.live import reader
from rmqtool.analytics.live.options import live_request_of
from rmqtool.analytics.live.plan import plan_ranges
from rmqtool.analytics.live.queues import DataLoss
from rmqtool.analytics.live.read import read_range
from rmqtool.analytics.live.reader import LiveStream
from rmqtool.analytics.spark.columns import SparkColumns
from rmqtool.analytics.table.schema import MESSAGE_TABLE
from rmqtool.client.cluster import attempts
from rmqtool.errors import RmqError
from tests.analytics.test_live import OF_FILES
from tests.analytics.test_live_sink import sent
from tests.analytics.test_live_stream import SCHEMA
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
CONF = {
    **SMALL_FILES, "brokerFastFailureEnable": "false",
    "enablePropertyFilter": "true", "flushDiskType": "SYNC_FLUSH",
}  # fmt: skip
COUNT = 400


def rows(namesrv: str, **options: str) -> list[dict[str, Any]]:
    request = live_request_of({"namesrv": namesrv, "subscribe": "Live", **options})
    batches = [batch for part in plan_ranges(request) for batch in read_range(request, part, MESSAGE_TABLE.names)]
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(namesrv: str, **options: str) -> list[int]:
    return sorted(int(row["body"]) for row in rows(namesrv, **options))


def test_a_real_broker_is_read_and_sent_to(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSES", (0.5,) * 10)
    monkeypatch.setattr(reader, "_PAUSE", 0.0)
    store = tmp_path / "store"
    broker.boot(store, CONF)
    make(broker, "Live")
    messages: list[dict[str, Any]] = [
        {
            "topic": "Live", "body": b"%d" % n, "tags": f"t{n % 3}", "keys": [f"k{n}"],
            "properties": {"n": str(n)}, "shardingKey": f"s{n % 8}" if n % 2 else None,
        }
        for n in range(COUNT)
    ]  # fmt: skip
    assert sent(broker.namesrv, *messages) == COUNT
    wait_for(broker.namesrv, COUNT)
    live = rows(broker.namesrv, maxRecordsPerPartition="30")
    assert sorted(int(row["body"]) for row in live) == list(range(COUNT))

    # filters and times
    assert numbers(broker.namesrv, tags="t1") == list(range(1, COUNT, 3))
    assert numbers(broker.namesrv, sql="n BETWEEN 10 AND 20") == list(range(10, 21))
    times = sorted({round(row["storeTimestamp"].timestamp() * 1000) for row in live})
    for low, high in ((times[0], times[-1]), (times[len(times) // 2], times[-1] + 1), (times[-1] + 1, times[-1] + 9)):
        expected = [int(row["body"]) for row in live if low <= round(row["storeTimestamp"].timestamp() * 1000) < high]
        assert numbers(broker.namesrv, startingTimestamp=str(low), endingTimestamp=str(high)) == sorted(expected)

    # a stream, through a restart of the broker
    options = {"namesrv": broker.namesrv, "subscribe": "Live", "startingOffsets": "earliest"}
    stream = _stream(options)
    start = stream.initialOffset()
    end = json.loads(json.dumps(stream.latestOffset(start, stream.getDefaultReadLimit())))
    stream.stop()
    assert sorted(_read(stream, start, end)) == list(range(COUNT))
    broker.stop()
    stored = read_arrow(str(store), topic="Live").read_all().to_pylist()
    for row_list in (live, stored):
        row_list.sort(key=lambda row: (row["queueId"], row["queueOffset"]))
        for row in row_list:
            for name in OF_FILES:
                del row[name]
    assert live == stored

    broker.boot(store, CONF)
    sent(broker.namesrv, *({"topic": "Live", "body": b"%d" % n} for n in range(COUNT, COUNT + 50)))
    wait_for(broker.namesrv, COUNT + 50)
    stream = _stream(options | {"namesrv": broker.namesrv})
    after = stream.latestOffset(end, stream.getDefaultReadLimit())
    stream.stop()
    assert sorted(_read(stream, end, after)) == list(range(COUNT, COUNT + 50))

    # the topic is made again, and gets as many messages
    broker.stop()
    broker.boot(tmp_path / "another", CONF)
    make(broker, "Live")
    sent(broker.namesrv, *({"topic": "Live", "body": b"%d" % n} for n in range(COUNT + 50)))
    wait_for(broker.namesrv, COUNT + 50)
    stream = _stream(options | {"namesrv": broker.namesrv})
    with pytest.raises(DataLoss, match=r"Live queue \d of \S+: "):
        stream.latestOffset(after, stream.getDefaultReadLimit())
    stream.stop()
    # a queue may have fewer messages than before, and is not waited for here
    stream = _stream(options | {"namesrv": broker.namesrv, "brokerTimeout": "1s"})
    with pytest.raises(RmqError, match=r"Live queue \d of \S+: "):
        _read(stream, start, end)
    stream.stop()
    stream = _stream(options | {"namesrv": broker.namesrv, "failOnDataLoss": "false"})
    with pytest.warns(UserWarning, match="begins it at its first message"):
        again = stream.latestOffset(after, stream.getDefaultReadLimit())
    stream.stop()
    assert sorted(_read(stream, after, again)) == list(range(COUNT + 50))
    broker.stop()


def wait_for(namesrv: str, count: int) -> None:
    """Wait until the queues have all messages: a broker adds those that it has acknowledged a little later."""
    request, deadline = live_request_of({"namesrv": namesrv, "subscribe": "Live"}), time.monotonic() + 30
    while sum(map(len, plan_ranges(request))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _stream(options: dict[str, str]) -> LiveStream:
    return LiveStream(live_request_of(options, streaming=True), SparkColumns("messages", MESSAGE_TABLE, SCHEMA))


def _read(stream: LiveStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        int(row["body"])
        for part in stream.partitions(start, end)
        for batch in stream.read(part)
        for row in batch.to_pylist()
    ]
