"""The Python API of a store: a program reads what the engine reports for the same store."""

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from rmqtool import Damage, NewMessage, Store, StoredMessage, consumer_groups, consumer_lag
from rmqtool.errors import CorruptFile
from rmqtool.services.consumers.groups import ConsumerGroups
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked


def texts(messages: list[StoredMessage]) -> list[str]:
    return [message.text for message in messages]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A store with ten messages in two queues, an hour apart, the first at the beginning of 2026."""
    clock = iter(1_767_225_600_000 + hour * 3_600_000 for hour in range(1000))
    with Store.create(tmp_path / "store", clock=lambda: next(clock)) as store:
        for n in range(10):
            hours = 1_767_225_600_000 + n * 3_600_000
            store.append(
                NewMessage(
                    topic="Orders" if n % 3 else "Bills",
                    queue_id=n % 2,
                    body=f"n{n}".encode(),
                    tags="even" if n % 2 == 0 else "odd",
                    keys=f"k{n} all",
                    store_timestamp=hours,
                )
            )
    return tmp_path / "store"


@pytest.mark.parametrize("case", ["clean", "broker", "ipv6", "large-bodies"])
def test_messages_are_what_the_engine_gave_its_clients(case: str, golden: Unpacked) -> None:
    expected = [row["message"] for row in goldens.messages(case)]
    store = Store(golden(case))
    at = {message.physical_offset: message for message in store.messages()}
    assert len(expected) > 10
    for row in expected:
        message = at[row["physicalOffset"]]
        assert (message.topic, message.queue_id, message.queue_offset) == (
            row["topic"], row["queueId"], row["queueOffset"],
        )  # fmt: skip
        assert message.properties == row["properties"]
        assert (message.born_timestamp, message.store_timestamp) == (row["bornTimestamp"], row["storeTimestamp"])
        assert (message.born_host, message.store_host) == (row["bornHost"], row["storeHost"])
        assert message.offset_id == row["offsetMsgId"]
        assert message.reconsume_times == row["reconsumeTimes"]
        assert len(message.body) == row["bodyLength"]
        assert hashlib.sha256(message.body).hexdigest() == row["bodySha256"]
        given = message.to_dict("none")
        assert {name: given[name] for name in row if name in given and name != "msgId"} == {
            name: row[name] for name in row if name in given and name != "msgId"
        }


@pytest.mark.parametrize("case", ["broker", "broker-5.3.3", "lmq"])
def test_queues_lead_to_the_messages_that_say_they_are_in_them(case: str, golden: Unpacked) -> None:
    store = Store(golden(case))
    in_log = {(m.topic, m.queue_id, m.queue_offset) for m in store.messages()}
    seen = 0
    for queue in store.queues():
        result = list(store.queue_messages(queue.topic, queue.queueId))
        seen += len(result)
        if queue.topic.startswith("%LMQ%"):  # messages of other topics, at their own offsets
            assert all(queue.topic in m.properties["INNER_MULTI_DISPATCH"].split(",") for m in result)
        else:
            assert {(m.topic, m.queue_id) for m in result} <= {(queue.topic, queue.queueId)}
            assert [m.queue_offset for m in result] == list(range(queue.minOffset, queue.maxOffset))
        assert len(result) == queue.maxOffset - queue.minOffset
        assert {(m.topic, m.queue_id, m.queue_offset) for m in result} <= in_log
    assert store.warnings == []
    assert seen > 100


def test_conditions_hold_all_at_once(written: Path) -> None:
    store = Store(written)
    assert len(list(store.messages())) == 10
    assert texts(list(store.messages(topic="Orders", tag="even"))) == ["n2", "n4", "n8"]
    assert texts(list(store.messages(topic=["Bills", "Ord*"], queue_id=1))) == ["n1", "n3", "n5", "n7", "n9"]
    assert texts(list(store.messages(key="k7"))) == ["n7"]
    assert texts(list(store.messages(key="k"))) == []
    third = next(iter(store.messages(key="k3"))).physical_offset
    assert texts(list(store.messages(third, key="all")))[0] == "n3"
    assert texts(list(store.messages(0, third))) == ["n0", "n1", "n2"]


def test_a_time_is_a_number_or_has_a_zone(written: Path) -> None:
    store = Store(written)
    start = datetime(2026, 1, 1, 2, tzinfo=UTC)
    assert texts(list(store.messages(since=start, until=start + timedelta(hours=2)))) == ["n2", "n3"]
    east = datetime(2026, 1, 1, 10, tzinfo=timezone(timedelta(hours=8)))
    assert next(store.messages(since=east)).stored_at == start
    assert texts(list(store.messages(since=1_767_225_600_000, until=1_767_225_600_001))) == ["n0"]
    with pytest.raises(ValueError, match="has no time zone"):
        store.messages(since=datetime(2026, 1, 1))  # noqa: DTZ001


def test_the_index_finds_the_same_as_the_log(written: Path) -> None:
    store = Store(written)
    assert texts(store.query_key("Orders", "all")) == texts(list(store.messages(topic="Orders", key="all")))
    since = datetime(2026, 1, 1, 4, tzinfo=UTC)
    assert texts(store.query_key("Orders", "all", since=since, until=since + timedelta(hours=4))) == ["n4", "n5", "n7"]
    assert texts(store.query_key("Orders", "all", limit=2)) == ["n1", "n2"]
    (hits,) = store.query_id(store.query_key("Orders", "k4")[0].message_id)
    assert (hits.text, hits.keys, hits.tags) == ("n4", ["k4", "all"], "even")


def test_queue_offsets_bound_what_is_read(written: Path) -> None:
    store = Store(written)
    assert store.topics() == ["Bills", "Orders"]
    assert [(q.queueId, q.maxOffset) for q in store.queues("Orders")] == [(0, 3), (1, 3)]
    assert texts(list(store.queue_messages("Orders", 0))) == ["n2", "n4", "n8"]
    assert texts(list(store.queue_messages("Orders", 0, 1, 2))) == ["n4"]
    assert list(store.queue_messages("Orders", 7)) == []
    assert list(store.queue_messages("None", 0)) == []


def tear(store: Path) -> tuple[int, int]:
    """Damage the fourth message; returns (physical offset, size)."""
    *_, third = (m for m in Store(store).messages() if m.text == "n3")
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(third.physical_offset)
        log.write(b"\xaa" * third.record.total_size)
    return third.physical_offset, third.record.total_size


def test_damage_is_never_passed_over_without_a_word(written: Path) -> None:
    at, size = tear(written)
    with pytest.raises(CorruptFile, match=f"byte {at}: .*{size} bytes cannot be read"):
        list(Store(written).messages())
    # whatever the conditions are: the message may have met them
    with pytest.raises(CorruptFile):
        list(Store(written).messages(key="k9"))
    damage: list[Damage] = []
    rest = texts(list(Store(written).messages(on_damage=damage.append)))
    assert rest == ["n0", "n1", "n2", *(f"n{n}" for n in range(4, 10))]
    assert [(part.physical_offset, part.length) for part in damage] == [(at, size)]


def test_entries_without_a_message_are_counted(written: Path) -> None:
    tear(written)
    store = Store(written)
    assert texts(list(store.queue_messages("Bills", 1))) == ["n9"]
    assert len(store.warnings) == 1
    assert "Bills queue 1: 1 entry without a message" in store.warnings[0]


def test_a_body_that_does_not_inflate_names_its_file(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store") as store:
        store.append(NewMessage(topic="T", body=b"not zlib", sys_flag=1))
    (message,) = Store(tmp_path / "store").messages()
    with pytest.raises(CorruptFile, match=r"commitlog/0{20}: byte 0: body of the message"):
        message.body  # noqa: B018
    assert message.record.body == b"not zlib"


def test_groups_and_lag_are_those_of_the_command_line(golden: Unpacked) -> None:
    path = golden("broker")
    expected = ConsumerGroups(CommitLog(StoreLayout(str(path))), lambda _line: None)
    store = Store(path)
    assert consumer_lag(store) == list(expected.lag())
    assert consumer_groups(store) == list(expected.infos())
    lag = consumer_lag(store)[0]
    assert consumer_lag(store, lag.group, lag.topic) == [
        row for row in expected.lag() if (row.group, row.topic) == (lag.group, lag.topic)
    ]


def test_reading_leaves_no_trace(written: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in written.rglob("*")}

    before = state()
    store = Store(written)
    json.dumps([message.to_dict() for message in store.messages()])
    store.query_key("Orders", "all"), store.queues(), consumer_groups(store), consumer_lag(store)
    assert state() == before


def test_examples_import_what_is_promised_and_nothing_else() -> None:
    import ast

    import rmqtool

    folder = Path(__file__).parents[2] / "examples"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in ("rmqtool", "formats"):
                assert node.module == "rmqtool", path
                assert set(names) <= set(rmqtool.__all__), path
            elif isinstance(node, ast.Import):
                assert not {name.split(".")[0] for name in names} & {"formats"}, path
                assert "." not in "".join(name for name in names if name.startswith("rmqtool")), path


@by_turns(13)
def test_a_program_of_others_sees_our_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from rmqtool import Store\n"
        "for message in Store('store').messages(topic='T'):\n"
        "    reveal_type(message.properties)\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "dict[str, str]" in result.stdout.replace("builtins.", ""), result.stdout
    assert result.returncode == 0, result.stdout


def test_the_old_name_of_what_is_appended() -> None:
    import rmqtool

    assert rmqtool.Message is rmqtool.NewMessage
