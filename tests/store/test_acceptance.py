"""Acknowledged messages are kept: no accepted message makes a start of either release cut later ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.message.bodies import BatchItem, build_batch
from formats.message.properties import parse
from formats.message.read import SCHEDULE_TOPIC, java_int
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.store.append.answers import Illegal
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.salvage.carve import Salvage
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.services.build import Builder

pytestmark = pytest.mark.slow

SIZES = {"mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "20000"}
SCHEDULE = SCHEDULE_TOPIC.decode()
DISPATCH, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"

REFUSED: list[dict[str, Any]] = [
    {"topic": SCHEDULE, "was_stored": True, "properties": {"DELAY": "x"}},
    {"topic": SCHEDULE, "was_stored": True, "properties": {"DELAY": "99999999999"}},
    {"topic": SCHEDULE, "was_stored": True, "properties": {"DELAY": "4294967295"}},
    {"topic": SCHEDULE, "was_stored": True, "properties": {"DELAY": "\u0661"}},
    {"topic": SCHEDULE, "was_stored": True, "properties": {"DELAY": "+-3"}},
    {"topic": SCHEDULE, "was_stored": True, "properties": {"DELAY": "3 "}},
    {"topic": SCHEDULE, "was_stored": True, "properties": b"DELAY\x011\x02DELAY\x01x"},
    {"topic": SCHEDULE, "properties": {"DELAY": "3"}},  # delivered into itself, for ever
    {"topic": SCHEDULE},
    {"properties": {"DELAY": "x"}},
    {"properties": {"DELAY": "+-3"}},
    {"properties": {"DELAY": "4294967295"}},
    {"properties": {"DELAY": "\u0663"}},
    {"properties": {"DELAY": "\u00b2"}},
    {"properties": {"DELAY": ""}},
    {"properties": b"DELAY\x01x"},
    {"properties": {"a": "b\x02DELAY\x01x"}},
    {"properties": {"a": "b\x02"}},
    {"properties": {"a\x02DELAY": "1"}},
    {"properties": {"a\x01b": "c"}},
    {"properties": {"a": "b\x01c"}},
    {"tags": "a\x02DELAY\x01x"},
    {"tags": "a\x01"},
    {"keys": "a\x02b"},
    {"topic": "a\x02DELAY\x01x", "properties": {"DELAY": "2"}},  # it becomes the property REAL_TOPIC
    {"properties": {"INNER_BASE": "x"}},
    {"properties": {"INNER_NUM": "x", "INNER_BASE": "1"}},
    {"properties": {"INNER_NUM": "32768", "INNER_BASE": "1"}},
    {"properties": {"INNER_NUM": "1", "INNER_BASE": "9223372036854775808"}},
    {"properties": {"INNER_BASE": "\u0661"}},
    {"properties": b"INNER_NUM\x01\xff"},
    {"properties": {DISPATCH: "%LMQ%a", OFFSETS: "x"}},
    {"properties": {DISPATCH: "%LMQ%a", OFFSETS: "-1"}},
    {"properties": {DISPATCH: "%LMQ%a", OFFSETS: "9223372036854775807"}},
    {"properties": {DISPATCH: "%LMQ%a,../../x", OFFSETS: "0,0"}},
    {"properties": {"UNIQ_KEY": "\ud800"}},
    {"topic": "\u4e2d" * 43},  # 43 characters, 129 bytes
    {"topic": "T" * 128},
]  # fmt: skip
TAKEN: list[dict[str, Any]] = [
    {"properties": {"DELAY": "+5"}},
    {"properties": {"DELAY": "-2147483648"}},
    {"properties": {"DELAY": "0000000000003"}},
    {"properties": {"DELAY": "2147483647"}},
    {"properties": {"INNER_NUM": "10", "INNER_BASE": "5"}},
    {"properties": {"INNER_NUM": "-1", "INNER_BASE": "+1"}},
    {"properties": {"INNER_NUMBER": "x", "XDELAY": "y", "DELAYED": "z"}},
    {"properties": {DISPATCH: "%LMQ%a,%LMQ%b", OFFSETS: "3,4"}},
    {"properties": {DISPATCH: "%LMQ%a"}},
    {"properties": {"UNIQ_KEY": "a\0b", "KEYS": "\0 \x03\x7f"}},
    {"properties": {"__CRC32#": "nonsense", "CLUSTER": "c", "DUP_INFO": "x"}},
    {"properties": b"\x02\x02\x01\x01\x02x"},
    {"properties": b"\xff\xfe\x01\xff"},
    {"properties": {"PGROUP": "g", "TRAN_MSG": "true", "DELAY": "x"}, "sys_flag": 4},
    {"properties": {"PGROUP": "g"}, "sys_flag": 12},
    {"properties": {"a": "b\x01c"}, "was_stored": True},
    {"topic": SCHEDULE, "was_stored": True, "properties": {"DELAY": "19", "REAL_TOPIC": "a/b", "REAL_QID": "x"}},
    {"topic": SCHEDULE, "was_stored": True, "queue_id": 2**31 - 1, "properties": {"DELAY": "-5"}},
    {"topic": "\u4e2d" * 42, "queue_id": 70000},
    {"store_timestamp": -(2**63), "born_timestamp": 2**63 - 1},
    {"store_timestamp": 2**63 - 1, "properties": {"DELAY": "18"}},
    {"sys_flag": -1, "flag": -(2**31), "reconsume_times": 2**31 - 1, "prepared_transaction_offset": -(2**63)},
]  # fmt: skip


def message(**fields: Any) -> NewMessage:
    return NewMessage(**{"topic": "T", "body": b"x", **fields})


def kept_by_both(path: Path, count: int) -> None:
    """Check that neither release cuts any message of a killed writer's store."""
    (path / "abort").touch()
    for engine in ("4.9", "5.3"):
        report = plan(StoreLayout(str(path), BrokerConf(SIZES)), release=RELEASES[engine])
        assert (report.loadOk, report.lost) == (True, []), engine
        assert not [action for action in report.actions if "cut" in str(action)], report.actions
        recovered = StoreLayout(str(path), BrokerConf(SIZES))
        recover(recovered, release=RELEASES[engine], backup=str(path.parent / f"backup-{engine}"))
        assert sum(isinstance(item, LocatedRecord) for item in CommitLog(recovered).walk()) == count
        (path / "abort").touch()


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_what_a_start_would_stumble_over_is_refused_in_every_way(engine: str, tmp_path: Path) -> None:
    for settings_ in (SIZES, SIZES | {"enableMultiDispatch": "true", "enableLmq": "true"}):
        path = tmp_path / str(len(settings_))
        with Store.create(path, broker_conf=settings_, release=RELEASES[engine]) as store:
            for fields in REFUSED:
                nasty = message(**fields)
                assert not store.append(nasty).ok, fields
                assert not store.append_many([nasty])[0].ok, fields
                many = store.append_many([message()] * 150 + [nasty] + [message()] * 150)
                assert [result.ok for result in many] == [True] * 150 + [False] + [True] * 150, fields
                with pytest.raises(Illegal):
                    store.append_batch([message(topic=nasty.topic), nasty])
        if settings_ is SIZES:
            kept_by_both(path, 300 * len(REFUSED))


@pytest.mark.parametrize(
    ("topic", "own"),
    [("T", b"INNER_BASE\x01x"), ("T", b"a\x01b\x02INNER_NUM\x01x"), ("T", b"a\x01b\x02INNER_BASE\x019" * 1),
     ("T", b"INNER_MULTI_DISPATCH\x01q\x02INNER_MULTI_QUEUE_OFFSET\x01x"), (SCHEDULE, b"a\x01b")],
)  # fmt: skip
def test_batches_as_clients_send_them_are_looked_at_too(topic: str, own: bytes, tmp_path: Path) -> None:
    bodies = [BatchItem(0, b"x", b"a\x01b"), BatchItem(0, b"y", own), BatchItem(0, b"INNER_BASE\x01x", b"")]
    with Store.create(tmp_path / "s", broker_conf=SIZES) as store:
        if b"x" in own or topic == SCHEDULE:
            with pytest.raises(Illegal):
                store.live.append_encoded(message(topic=topic, body=build_batch(bodies)))
            assert store.live.end == 0
        else:
            assert store.live.append_encoded(message(topic=topic, body=build_batch(bodies))).messages == 3
        with pytest.raises(Illegal):
            store.live.append_encoded(message(body=build_batch(bodies[:1]), properties={"INNER_NUM": "x"}))
        assert store.live.append_encoded(message(body=build_batch(bodies[:1]))).messages == 1


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_what_is_taken_is_kept_with_all_behind_it(engine: str, tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", broker_conf=SIZES, release=RELEASES[engine]) as store:
        for fields in TAKEN:
            result = store.append(message(**fields))
            assert result.ok, (fields, result)
            assert all(sent.ok for sent in store.append_many([message(), message(**fields)] * 10))
        last = [store.append(message(body=b"%d" % n)).physical_offset for n in range(500)]
        assert store.message_at(last[-1]) is not None
    kept_by_both(tmp_path / "s", 21 * len(TAKEN) + 500)


TEXT = st.text(alphabet="aDELAYINR_BSUMx+-019\x00\x01\x02\u0661\ud800, ", max_size=8)
NAMES = TEXT | st.sampled_from(["DELAY", "INNER_BASE", "INNER_NUM", DISPATCH, OFFSETS, "TAGS", "KEYS", "REAL_QID"])
NUMBERS = st.sampled_from(["x", "-5", "+5", "+-3", "19", "4294967295", "32768", "", "3,4", "1\x02DELAY\x01x"])
VALUES = TEXT | NUMBERS
STORED = st.lists(st.tuples(NAMES, VALUES), max_size=4).map(
    lambda items: "\x02".join(f"{name}\x01{value}" for name, value in items).encode("utf-8", "surrogatepass")
)
MESSAGES = st.builds(
    message,
    topic=st.sampled_from(["T", SCHEDULE, "%LMQ%a", "RMQ_SYS_TRANS_HALF_TOPIC"]) | TEXT,
    queue_id=st.sampled_from([0, 1, 17, 2**31 - 1, -1]),
    tags=st.none() | TEXT,
    keys=st.none() | TEXT,
    properties=st.dictionaries(NAMES, VALUES, max_size=4) | STORED,
    sys_flag=st.sampled_from([0, 4, 8, 12, 1, 0x80, 0xC0, -1]),
    store_timestamp=st.none() | st.integers(-(2**63), 2**63 - 1),
    was_stored=st.booleans(),
    body=st.sampled_from([b"", b"x", b"DELAY\x01x"]),
)


@by_turns(13)
@given(messages=st.lists(MESSAGES, max_size=12), engine=st.sampled_from(["4.9", "5.3"]), light=st.booleans())
@settings(max_examples=40)
def test_whatever_is_taken_is_kept(
    messages: list[NewMessage], engine: str, light: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "store"
    conf = SIZES | ({"enableMultiDispatch": "true", "enableLmq": "true"} if light else {})
    with Store.create(path, broker_conf=conf, release=RELEASES[engine]) as store:
        results = [store.append(stored) for stored in messages] + list(store.append_many(messages))
        results += [store.append(message()) for _ in range(5)]
        assert all(result.ok for result in results[-5:])
    kept_by_both(path, sum(result.ok for result in results))


def test_the_command_refuses_them(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"topic": SCHEDULE, "physicalOffset": 1, "properties": {"DELAY": "x"}, "body": "x"},
        {"topic": "T", "properties": {"a": "b\u0002DELAY\u0001x"}},
        {"topic": "T", "properties": {"a\u0001": "b"}},
        {"topic": "T", "properties": {"INNER_BASE": "x"}},
        {"topic": "T", "tags": "a\u0001b"},
        {"topic": "T", "keys": ["a", "b\u0002c"]},
        {"topic": "T", "properties": {"DELAY": "4294967295"}},
    ]
    source = tmp_path / "rows.ndjson"
    good = [{"topic": "T", "body": str(n)} for n in range(500)]
    source.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *good]))
    store = tmp_path / "s"
    Store.create(store, broker_conf=SIZES).close()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
    result = rmqtool("append", store, source, "--engine", "5.3", "--output", "ndjson", "--broker-conf", conf)
    assert result.code == 1
    answers = [json.loads(line)["status"] for line in result.out.splitlines()]
    assert answers == ["MESSAGE_ILLEGAL"] * len(rows) + ["PUT_OK"] * 500
    kept_by_both(store, 500)


def test_a_light_queue_message_that_grows_too_long_is_refused(tmp_path: Path) -> None:
    """Its offsets are added to the properties when it is stored."""
    conf = SIZES | {"enableMultiDispatch": "true", "enableLmq": "true"}
    with Store.create(tmp_path / "s", broker_conf=conf) as store:
        dispatch = ",".join(f"%LMQ%{n}" for n in range(100))
        long = message(properties={DISPATCH: dispatch, "a": "a" * (32767 - len(dispatch) - 30)})
        assert not store.append(long).ok
        assert [result.ok for result in store.append_many([message(), long, message()])] == [True, False, True]
        own = message(properties={DISPATCH: "T"})  # it would count twice in its own queue
        assert not store.append(own).ok


def test_salvage_sets_aside_what_either_release_stumbles_over(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("T", body=b"a")
    builder.put("T", body=b"bad", properties={"INNER_BASE": "x", "INNER_NUM": "1"})  # 4.9 passes it
    for n in range(20):
        builder.put("T", body=b"%d" % n)
    source = builder.write(tmp_path)
    report = Salvage(StoreLayout(str(source)), str(tmp_path / "new")).run()
    assert (report.messages, report.lostRangeCount) == (21, 1)
    assert "INNER_BASE" in report.lostRanges[0].reason
    for engine in ("4.9", "5.3"):
        (tmp_path / "new" / "abort").touch()
        assert plan(StoreLayout(str(tmp_path / "new")), release=RELEASES[engine]).lost == []


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("+5", 5), ("-5", -5), ("2147483647", 2**31 - 1), ("2147483648", None), ("-2147483648", -(2**31)),
     ("4294967295", None), ("+-3", None), ("", None), ("+", None), (" 1", None), ("1_0", None), ("\u0661", None),
     ("\u00b2", None), ("007", 7), ("0x1", None), ("\ud800", None)],
)  # fmt: skip
def test_numbers_of_java(text: str, number: int | None) -> None:
    assert java_int(text) == number


def test_properties_out_of_a_store_keep_what_they_have(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", broker_conf=SIZES) as store:
        result = store.append(message(properties={"a": "b\x01c"}, from_store=True))
        located = store.message_at(result.physical_offset)
        assert located is not None
        assert parse(located.record.properties) == {"a": "b\x01c"}


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@pytest.mark.parametrize("properties", [{"a": ""}, {"": "b"}, {"a": "1", "b": ""}, {"b": "", "a": "1"}, {"": ""}])
def test_what_no_reader_would_get_is_not_stored(properties: dict[str, str], engine: str, tmp_path: Path) -> None:
    """RocketMQ ignores properties without a name or a value, and check would warn about them."""
    with Store.create(tmp_path / "store", release=RELEASES[engine]) as store:
        lacking = NewMessage(topic="T", properties=properties)
        refused = store.append(lacking)
        assert not refused.ok
        assert "no value" in str(refused.reason) or "no name" in str(refused.reason)
        good = NewMessage(topic="T", properties={"a": "1"})
        assert [result.ok for result in store.append_many([good, lacking, good])] == [True, False, True]
        assert not store.append(NewMessage(topic="T", tags="")).ok
    assert [message.properties for message in Store(tmp_path / "store").messages()] == [{"a": "1"}] * 2
