"""A store as an Arrow stream: the rows that the library's messages and the commands have."""

import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtool import NewMessage, Store, read_arrow
from rmqtool.analytics.source.tables import SCHEMAS, TABLES
from rmqtool.errors import BadValue, UnreadableStore
from tests.conftest import Unpacked

STORES = ("broker", "broker-5.3.3", "broker-5.5.0")


@pytest.fixture(scope="module")
def store(golden: Unpacked) -> Path:
    return golden("broker")


@pytest.mark.parametrize("case", STORES)
def test_messages_are_those_of_the_library(case: str, golden: Unpacked) -> None:
    path = golden(case)
    table = read_arrow(str(path), columns=["topic", "queueId", "queueOffset", "physicalOffset", "body"]).read_all()
    wanted = [
        (message.topic, message.queue_id, message.queue_offset, message.physical_offset, message.body)
        for message in Store(path).messages()
    ]
    assert sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)) == sorted(wanted)


def test_an_open_store_is_a_stream(store: Path, tmp_path: Path) -> None:
    """Also of what it has just appended; settings of the broker are those of the store."""
    with Store(store) as opened:
        assert pa.table(opened).equals(read_arrow(str(store)).read_all())
        selected = opened.to_arrow(columns=["keys", "topic"], topic="Orders").read_all()
        assert selected.equals(read_arrow(str(store), columns=["keys", "topic"], topic="Orders").read_all())
        assert opened.to_arrow("offsets").schema.equals(SCHEMAS["offsets"])
    with Store.create(tmp_path / "new") as created:
        created.append(NewMessage(topic="Orders", body=b"just now"))
        assert created.to_arrow(columns=["body"]).read_all().to_pylist() == [{"body": b"just now"}]
    with pytest.raises(BadValue, match="as a file, not as a dict"):
        Store(store, broker_conf={"mappedFileSizeConsumeQueue": "4000"}).to_arrow()


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_columns(table: str, store: Path) -> None:
    reader = read_arrow(str(store), table)
    assert reader.schema.names == SCHEMAS[table].names
    rows = reader.read_all()
    assert (rows.num_rows > 0) == (table not in ("compacted", "findings"))


def test_other_libraries_read_it_without_knowing_of_us(store: Path) -> None:
    class Stream:
        def __init__(self, reader: Any) -> None:
            self._reader = reader

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self._reader.__arrow_c_stream__(requested_schema)

    table = pa.table(Stream(read_arrow(str(store), columns=["topic"])))  # type: ignore[arg-type]
    assert table.num_rows == sum(1 for _message in Store(store).messages())


def test_messages_are_selected(store: Path) -> None:
    def rows(**chosen: Any) -> int:
        return read_arrow(str(store), columns=["topic"], **chosen).read_all().num_rows

    everything = [*Store(store).messages()]
    middle = everything[len(everything) // 2].store_timestamp
    assert rows(topic="Orders") == sum(message.topic == "Orders" for message in everything)
    assert rows(topic=["Orders", "Sequenced"]) > rows(topic="Orders")
    assert rows(topic="Orders", queue_id=[0, 1]) < rows(topic="Orders")
    assert rows(key="order-1") == sum("order-1" in message.keys for message in everything) > 0
    before, after = rows(until=middle), rows(since=datetime.fromtimestamp(middle / 1000, UTC))
    assert before + after == len(everything)
    assert after == sum(message.store_timestamp >= middle for message in everything)


def test_damage_is_said_at_the_end(golden: Unpacked) -> None:
    reader = read_arrow(str(golden("size-field-negative")), columns=["topic"])
    with pytest.warns(UserWarning, match=r"1 damaged range with \d+ bytes skipped"):
        assert reader.read_all().num_rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_arrow(str(golden("broker")), columns=["topic"]).read_all().num_rows


def test_what_is_wrong_is_said_at_once(store: Path, tmp_path: Path) -> None:
    for wrong in (
        {"table": "nothing"}, {"columns": ["nothing"]}, {"table": "queues", "topic": "Orders"},
        {"since": datetime(2026, 11, 20)},  # noqa: DTZ001 (that is what is wrong)
    ):  # fmt: skip
        with pytest.raises(BadValue):
            read_arrow(str(store), **wrong)  # type: ignore[arg-type]
    with pytest.raises(UnreadableStore):
        read_arrow(str(tmp_path / "nowhere"))
