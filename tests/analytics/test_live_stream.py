"""Streams from a live cluster, driven without Spark: what each batch has, whatever happens between two of them."""

import asyncio
import itertools
import json
import os
import pickle
import re
import shutil
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import BinaryType, StructField, StructType

from formats.remoting.shapes import MessageQueue
from rmqtool import Store
from rmqtool.analytics.live import queues, reader, waiting
from rmqtool.analytics.live.options import live_request_of
from rmqtool.analytics.live.queues import DataLoss
from rmqtool.analytics.live.reader import LiveStream
from rmqtool.analytics.live.waiting import Patience
from rmqtool.analytics.source.tables_source import RocketMQSource
from rmqtool.cli.serve.running import until_stopped
from rmqtool.client import ClientOptions
from rmqtool.client.cluster import attempts
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.consumer.puller import Puller
from rmqtool.errors import BadValue, RmqError
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.store.append.outgoing import NewMessage
from tests.cli.running import rmqtool
from tests.client.test_made_again import CONF, TOPIC, another_store, fill
from tests.interop.test_namesrv import name_server
from tests.model.neighbours import Neighbour

SCHEMA = StructType([StructField("body", BinaryType(), nullable=False)])
Offsets = dict[str, Any]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSES", (0.05,) * 5)
    monkeypatch.setattr(reader, "_PAUSE", 0.0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Neighbour]:
    """A broker on a store with the messages 0 to 39 in four queues."""
    fill(tmp_path / "store", 0, 40)
    with Neighbour(tmp_path / "store", {**CONF, "brokerName": "a"}) as neighbour:
        yield neighbour


class Query:
    """What Spark does with a stream, with a checkpoint that survives it."""

    def __init__(self, broker: Neighbour, **options: str) -> None:
        topics = {} if "subscribePattern" in options else {"subscribe": TOPIC}
        self._options = {
            "namesrv": broker.namesrv, "startingOffsets": "earliest", "brokerTimeout": "300ms", **topics, **options,
        }  # fmt: skip
        self.offsets: list[Offsets] = []
        self.start()

    def start(self, **options: str) -> None:
        """A new driver."""
        self._options |= options
        source = RocketMQSource(CaseInsensitiveDict(self._options))
        source.schema()  # Spark asks for it first, and does not say that it is for a stream
        stream = source.streamReader(SCHEMA)
        assert isinstance(stream, LiveStream)
        self.stream = stream
        if not self.offsets:
            self.offsets.append(_saved(self.stream.initialOffset()))
        self.stream.stop()

    def batch(self, limit: ReadLimit | None = None) -> list[int]:
        """The messages of the next batch."""
        start, end = self.offsets[-1], self.plan(limit)
        if json.dumps(end) == json.dumps(start):
            return []
        self.offsets.append(end)
        return self.read(-1)

    def plan(self, limit: ReadLimit | None = None) -> Offsets:
        """Where the next batch ends. No thread is left, as tests start brokers by a fork."""
        try:
            return _saved(self.stream.latestOffset(self.offsets[-1], limit or self.stream.getDefaultReadLimit()))
        finally:
            self.stream.stop()

    def read(self, number: int) -> list[int]:
        """The messages of a batch, as often as it is repeated."""
        start, end = self.offsets[number - 1], self.offsets[number]
        listed = []
        for part in self.stream.partitions(start, end):
            executor, task = pickle.loads(pickle.dumps((self.stream, part)))
            listed += [int(row["body"]) for rows in executor.read(task) for row in rows.to_pylist()]
        return sorted(listed)


def _saved(offsets: Offsets) -> Offsets:
    loaded: Offsets = json.loads(json.dumps(offsets))
    return loaded


def more(broker: Neighbour, store: Path, first: int, count: int, queues: int = 4) -> None:
    """Add messages while the broker is down."""
    broker.end(signal.SIGTERM)
    with Store(store, write=True, broker_conf=CONF) as opened:
        state = BrokerState(opened, lambda _text: None)
        if queues > 4:
            _set_queues(state, queues)
        numbers = range(first, first + count)
        opened.append_many([NewMessage(topic=TOPIC, queue_id=n % queues, body=b"%-400d" % n) for n in numbers])
    broker.start()


# -- each message once -------------------------------------------------------------------------------------------------


def test_batches_have_each_message_once(broker: Neighbour, tmp_path: Path) -> None:
    query = Query(broker, maxOffsetsPerTrigger="15", maxRecordsPerPartition="2")
    batches = [query.batch() for _ in range(4)]
    assert list(map(len, batches)) == [15, 15, 10, 0]
    assert sorted(itertools.chain(*batches)) == list(range(40))
    more(broker, tmp_path / "store", 40, 8)
    query.start()  # the driver was killed
    assert query.batch() == list(range(40, 48))
    assert query.batch() == []
    for number, messages in enumerate(batches[:3], 1):
        assert query.read(number) == messages  # however often a batch is repeated


def test_a_batch_that_was_planned_before_a_kill_is_the_same_after_it(broker: Neighbour, tmp_path: Path) -> None:
    query = Query(broker)
    query.offsets.append(query.plan(ReadAllAvailable()))
    more(broker, tmp_path / "store", 40, 8)
    query.start()
    assert query.read(-1) == list(range(40))
    assert query.batch() == list(range(40, 48))


def test_many_queues_are_asked_for_together(broker: Neighbour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As :func:`test_batches_have_each_message_once`, without a question about a single queue."""
    monkeypatch.setattr(queues, "_MANY", 3)
    monkeypatch.setattr(Puller, "_offset", None)
    query = Query(broker, maxOffsetsPerTrigger="30")
    query.stream.prepareForTriggerAvailableNow()
    batches = [query.batch() for _ in range(3)]
    assert list(map(len, batches)) == [30, 10, 0]
    more(broker, tmp_path / "store", 40, 12, queues=6)
    query.start()
    batches.append(query.batch())
    assert sorted(itertools.chain(*batches)) == list(range(52))
    assert query.batch() == []
    another_store(broker, tmp_path / "store", 20)
    query.start()
    with pytest.raises(RmqError, match=r"Again queue \d of a: "):
        query.batch()


def test_where_a_stream_begins(broker: Neighbour, tmp_path: Path) -> None:
    latest = Query(broker, startingOffsets="latest")
    some = Query(broker, startingOffsets='{"Again": {"a": {"0": 9, "1": "latest", "2": "latest", "3": 8}}}')
    assert latest.batch() == []
    assert some.batch() == [35, 36, 39]
    more(broker, tmp_path / "store", 40, 4)
    assert latest.batch() == some.batch() == [40, 41, 42, 43]


def test_a_queue_that_is_added_is_read_from_its_first_message(broker: Neighbour, tmp_path: Path) -> None:
    query = Query(broker, startingOffsets="latest")
    assert query.batch() == []
    more(broker, tmp_path / "store", 60, 12, queues=6)
    assert query.batch() == list(range(60, 72))
    assert query.read(-1) == list(range(60, 72))
    assert query.batch() == []


def test_available_now_ends_where_the_queues_ended(broker: Neighbour, tmp_path: Path) -> None:
    query = Query(broker, maxOffsetsPerTrigger="30")
    query.stream.prepareForTriggerAvailableNow()
    query.stream.stop()
    more(broker, tmp_path / "store", 40, 30, queues=6)
    assert [len(query.batch()) for _ in range(4)] == [30, 10, 0, 0]
    query.start()
    assert [len(query.batch()) for _ in range(2)] == [30, 0]


def test_few_messages_wait_for_more(broker: Neighbour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(broker, startingOffsets="latest", minOffsetsPerTrigger="6", maxTriggerDelay="100s")
    clock = time.monotonic()
    monkeypatch.setattr(reader.time, "monotonic", lambda: clock)
    query.stream._delivered = clock
    more(broker, tmp_path / "store", 40, 5)
    assert query.batch() == []
    clock += 101
    assert query.batch() == [40, 41, 42, 43, 44]
    more(broker, tmp_path / "store", 45, 6)
    assert query.batch() == list(range(45, 51))


# -- what is not there any more ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [20, 40, 400], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("planned", [False, True], ids=["between batches", "within a batch"])
def test_a_topic_that_was_made_again(broker: Neighbour, tmp_path: Path, count: int, *, planned: bool) -> None:
    query = Query(broker, maxOffsetsPerTrigger="20")
    assert len(query.batch()) == 20
    if planned:
        query.offsets.append(query.plan())
    another_store(broker, tmp_path / "store", count)
    query.start()
    with pytest.raises(RmqError, match=r"Again queue \d of a: ") as error:
        query.read(-1) if planned else query.batch()
    assert "\n" not in str(error.value)
    # and it is the same again and again: nothing of the new queues is taken for what follows in the old ones
    with pytest.raises(RmqError, match=r"Again queue \d of a: "):
        query.read(-1) if planned else query.batch()
    query.start(failOnDataLoss="false", maxOffsetsPerTrigger="1000")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if planned:
            assert query.read(-1) == []
        assert query.batch() == list(range(1000, 1000 + count))
    assert any("Again queue 0 of a: " in str(warning.message) for warning in warned)
    assert query.read(-1) == list(range(1000, 1000 + count))
    assert query.batch() == []


def test_messages_that_expired_between_batches(broker: Neighbour, tmp_path: Path) -> None:
    """The first files of log and queues go, and with them messages that were not read."""
    query = Query(broker, maxOffsetsPerTrigger="4")
    assert len(query.batch()) == 4
    more(broker, tmp_path / "store", 40, 20_000)
    broker.end(signal.SIGTERM)
    for folder in (tmp_path / "store" / "commitlog", *(tmp_path / "store" / "consumequeue" / TOPIC).iterdir()):
        min(folder.iterdir()).unlink()
    broker.start()
    query.start(maxOffsetsPerTrigger="100000")
    with pytest.raises(DataLoss, match=r"Again queue \d of a: was read up to offset 1, and begins at \d+: ") as error:
        query.batch()
    assert "failOnDataLoss=false" in str(error.value)
    query.start(failOnDataLoss="false")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        rest = query.batch()
    assert rest == list(range(rest[0], 20_040))
    assert 40 < rest[0] < 20_000
    assert len([warning for warning in warned if "messages have expired" in str(warning.message)]) == 4
    assert query.read(-1) == rest


def test_a_topic_with_fewer_queues(broker: Neighbour, tmp_path: Path) -> None:
    query = Query(broker, maxOffsetsPerTrigger="20")
    assert len(query.batch()) == 20
    broker.end(signal.SIGTERM)
    _queues(tmp_path / "store", 3)
    broker.start()
    query.start()
    with pytest.raises(DataLoss, match="Again queue 3 of a: is no longer among the queues that can be read"):
        query.batch()
    query.start(failOnDataLoss="false", maxOffsetsPerTrigger="1000")
    with pytest.warns(UserWarning, match="Again queue 3 of a: .*waits for it"):
        without = query.batch()
    broker.end(signal.SIGTERM)
    _queues(tmp_path / "store", 4)
    broker.start()
    query.start()
    assert len(without) == 15
    assert all(number % 4 == 3 for number in query.batch())
    assert sorted(itertools.chain(*map(query.read, range(1, 4)))) == list(range(40))


def _queues(store: Path, count: int) -> None:
    with Store(store, write=True, broker_conf=CONF) as opened:
        _set_queues(BrokerState(opened, lambda _text: None), count)


def _set_queues(state: BrokerState, count: int) -> None:
    state.set_topic(replace(state.topics[TOPIC], read_queue_nums=count, write_queue_nums=count))
    state.persist()


def test_a_topic_that_is_not_known_for_a_while(broker: Neighbour, tmp_path: Path) -> None:
    """No route proves nothing: the stream waits, if it may, and goes on without a gap."""
    query = Query(broker, maxOffsetsPerTrigger="20")
    assert len(query.batch()) == 20
    broker.end(signal.SIGTERM)
    (tmp_path / "store").rename(tmp_path / "away")
    broker.start()  # with an empty store
    query.start()
    with pytest.raises(RmqError, match="Again: no name server knows the topic"):
        query.batch()
    query.start(failOnDataLoss="false")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert query.batch() == []
    assert len([warning for warning in warned if "waits for it" in str(warning.message)]) == 4
    broker.end(signal.SIGTERM)
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "away").rename(tmp_path / "store")
    broker.start()
    query.start()
    query.batch()
    assert query.batch() == []
    assert sorted(query.read(1) + query.read(2)) == list(range(40))


def test_a_broker_that_is_restarted(broker: Neighbour, tmp_path: Path) -> None:
    query = Query(broker, maxOffsetsPerTrigger="7")
    result = []
    for _ in range(6):
        broker.end(signal.SIGKILL)
        broker.start()
        result += query.batch()
    assert sorted(result) == list(range(40))


def test_a_broker_that_no_route_has_for_a_moment(broker: Neighbour, tmp_path: Path) -> None:
    """As after the restart of a name server: the stream goes on by itself when it is there again."""
    query = Query(broker, subscribePattern="Ag.*", maxOffsetsPerTrigger="20")
    assert len(query.batch()) == 20
    find, tries = query.stream._open_client().queues._find, itertools.count(1)

    async def found(before: Any) -> list[MessageQueue]:
        queues = await find(before)
        return queues[:2] if next(tries) < 3 else queues

    query.stream._open_client().queues._find = found  # type: ignore[method-assign]
    assert len(query.batch()) == 20
    assert next(tries) == 4


def test_a_broker_that_does_not_answer(broker: Neighbour) -> None:
    query = Query(broker, maxOffsetsPerTrigger="20")
    assert len(query.batch()) == 20
    broker.end(signal.SIGKILL)
    with pytest.raises(RmqError, match=r"Again: .*refused"):
        query.batch()
    with pytest.raises(RmqError, match=r"Again queue \d of a: .*refused"):
        query.read(-1)
    broker.start()
    assert len(query.batch()) == 20
    assert sorted(query.read(1) + query.read(2)) == list(range(40))


class Late(Neighbour):
    """A broker at a name server in another process, if there is one. It begins to serve when a file is there.

    Args:
        names: HOST:PORT of the name server; by default the broker's own.
    """

    def __init__(self, store: Path, begins: Path, name: str = "a", names: str | None = None) -> None:
        super().__init__(store, {**CONF, "brokerName": name})
        self._begins, self._names = begins, () if names is None else (names,)
        self.namesrv = names or self.namesrv

    async def _serve(self, write: int) -> None:
        if not self._begins.exists():
            os.write(write, b"later")
            os.close(write)
            write = os.open(os.devnull, os.O_WRONLY)
        while not self._begins.exists():
            await asyncio.sleep(0.01)
        broker, names = (("127.0.0.1", port) for port in self._ports)
        options = ServeOptions(
            broker_conf=self._conf, listen=broker, namesrv=self._names, namesrv_listen=names, create=True
        )
        async with until_stopped() as stop, Served(str(self._store), options):
            os.write(write, b"ready")
            os.close(write)
            await stop.wait()


@pytest.mark.parametrize("others", [False, True], ids=["with its name server", "beside others"])
@pytest.mark.parametrize("planned", [False, True], ids=["between batches", "within a batch"])
def test_a_broker_that_dies_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, others: bool, planned: bool
) -> None:
    """Its topic has no route then, which does not mean that there is no such topic."""
    begins, reports = tmp_path / "begins", list[str]()
    begins.touch()
    monkeypatch.setattr(attempts, "PAUSES", (0.02,) * 3)
    monkeypatch.setattr(waiting, "_QUIET", 0.0)
    monkeypatch.setattr(waiting, "_REPORTS", 0.0)

    def report(text: str) -> None:
        reports.append(text)
        if len(reports) > 6:  # more than there are pauses
            begins.touch()

    monkeypatch.setattr(waiting, "warn", report)
    fill(tmp_path / "store", 0, 40)
    with ExitStack() as stack:
        names = stack.enter_context(name_server())[1] if others else None
        if others:
            stack.enter_context(Late(tmp_path / "other", begins, "b", names))
        late = stack.enter_context(Late(tmp_path / "store", begins, names=names))
        query = Query(late, brokerTimeout="100s", maxOffsetsPerTrigger="20")
        assert len(query.batch()) == 20
        if planned:
            query.offsets.append(query.plan())
        late.end(signal.SIGKILL)
        begins.unlink()
        late.start()
        query.start()
        query.stream.request = replace(query.stream.request, patience=Patience(first=0.0, later=100.0))
        if not planned:
            query.stream.prepareForTriggerAvailableNow()
        rest = query.read(-1) if planned else query.batch()
        assert sorted(query.read(1) + rest) == list(range(40))
    assert len(reports) > 6
    for text in reports:
        assert re.search(r"Again.*; it is tried again for \d+ more seconds \(option brokerTimeout\)", text), text


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("now", [False, True])
def test_a_name_server_that_has_never_named_a_broker(
    monkeypatch: pytest.MonkeyPatch, *, listens: bool, now: bool
) -> None:
    """It may be the wrong one: a new stream does not wait long for it, unless it is asked to."""
    monkeypatch.setattr(waiting, "_QUIET", 0.0)
    monkeypatch.setattr(attempts, "PAUSES", (0.02,) * 3)
    reports: list[str] = []
    monkeypatch.setattr(waiting, "warn", reports.append)
    with ExitStack() as stack:
        address = stack.enter_context(name_server())[1] if listens else "127.0.0.1:1"
        options = {"namesrv": address, "subscribe": "A"}
        asked = live_request_of({**options, "brokerTimeout": "2h"}, streaming=True)
        assert asked.patience == Patience(7200, 7200)
        request = live_request_of(options, streaming=True)
        assert request.patience == Patience(60, 600)
        stream = RocketMQSource(CaseInsensitiveDict(options)).streamReader(SCHEMA)
        assert isinstance(stream, LiveStream)
        stream.request = replace(request, patience=Patience(1.0, 100))
        if now:
            stream.prepareForTriggerAvailableNow()
            assert not reports
        text = "no broker is registered" if listens else r"no name server answers: 127.0.0.1:1: .*refused"
        with pytest.raises(RmqError, match=text):
            stream.initialOffset()
        stream.stop()
    assert re.search(rf"{text}.*; it is tried again for \d more seconds \(option brokerTimeout\)", reports[0])


def test_a_process_whose_driver_was_killed_does_not_wait(broker: Neighbour, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(broker, brokerTimeout="1h")
    broker.end(signal.SIGKILL)
    parents = itertools.count()
    monkeypatch.setattr(waiting.os, "getppid", lambda: next(parents))
    with pytest.raises(RmqError, match=r"Again: .*, but the process that asks for it has ended"):
        query.batch()


def test_a_checkpoint_of_a_store(broker: Neighbour) -> None:
    query = Query(broker)
    with pytest.raises(BadValue, match="which are not offsets of a live cluster"):
        query.stream.latestOffset({"/store": {"next": 5, "crc": 7}}, ReadAllAvailable())


def test_positions_are_reported(broker: Neighbour) -> None:
    query = Query(broker)
    assert query.stream.reportLatestOffset() == {"Again": {"a": {str(n): {"offset": 10} for n in range(4)}}}
    assert MessageQueue(TOPIC, "a", 0) in {
        part.queue
        for task in query.stream.partitions({}, {"Again": {"a": {"0": {"offset": 3, "from": 0}}}})
        for part in task.value
    }
    query.stream.stop()


# -- progress for others -----------------------------------------------------------------------------------------------


def offsets_of_group(broker: Neighbour, group: str) -> dict[int, int | None]:
    async def read() -> dict[int, int | None]:
        async with Cluster(ClientOptions(namesrv=broker.namesrv)) as cluster:
            puller = Puller(cluster, group)
            await cluster.fetch_route(TOPIC)
            return {number: await puller.committed(MessageQueue(TOPIC, "a", number)) for number in range(4)}

    return asyncio.run(read())


def test_a_group_shows_the_progress_of_a_stream(broker: Neighbour, tmp_path: Path) -> None:
    """Its offsets are those of the batches that are complete, the last one too."""
    query = Query(broker, maxOffsetsPerTrigger="20", commitGroup="lake")
    with pytest.raises(BadValue, match=r"option commitGroup: .*lake not exist!; rmqtool group create makes it"):
        query.batch()
    made = rmqtool("group", "create", f"rocketmq://{broker.namesrv}", "lake", "--yes")
    assert made.code == 0, made.err
    query.batch()
    assert offsets_of_group(broker, "lake") == dict.fromkeys(range(4), 0)  # this batch is not complete yet
    query.stream.commit(query.offsets[-1])
    query.stream.stop()
    assert offsets_of_group(broker, "lake") == dict.fromkeys(range(4), 5)
    query.batch()
    assert offsets_of_group(broker, "lake") == dict.fromkeys(range(4), 5)
    assert query.batch() == []  # Spark looks for another one, and calls ``commit`` only when it finds one
    assert offsets_of_group(broker, "lake") == dict.fromkeys(range(4), 10)
    # the topic is made again: the offsets would be those of other messages
    another_store(broker, tmp_path / "store", 60)
    query.start()
    with pytest.warns(UserWarning, match="the offset of group lake is not moved"):
        query.stream.commit(query.offsets[-1])
    query.stream.stop()


def test_another_selection_is_read_from_where_its_queues_are(broker: Neighbour) -> None:
    """Queues that are not selected any more keep their positions, and go on from there when they are again."""
    query = Query(broker, maxOffsetsPerTrigger="20")
    first = query.batch()
    del query._options["subscribe"]
    query.start(assign=json.dumps({TOPIC: {"a": [0, 1]}}))
    second = query.batch()
    assert (len(first), len(second), query.batch()) == (20, 10, [])
    del query._options["assign"]
    query.start(subscribe=TOPIC)
    third = query.batch()
    assert sorted(first + second + third) == list(range(40))


def test_only_streams_move_the_offsets_of_a_group() -> None:
    options = {"namesrv": "127.0.0.1:9876", "subscribe": TOPIC, "commitGroup": "lake"}
    with pytest.raises(BadValue, match="option commitGroup: only a stream"):
        live_request_of(options)
    with pytest.raises(BadValue, match="option commitGroup: the specified group"):
        live_request_of({**options, "commitGroup": "a b"}, streaming=True)
