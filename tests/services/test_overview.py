"""An overview has the numbers of the commands it stands beside, and without names none is left."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from formats.config.files import ConsumerOffsets
from rmqtool.services.consumers.groups import ConsumerGroups
from rmqtool.services.delays.delays import Delays
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.overview.overview import Overview, look_over
from rmqtool.services.overview.redacting import redact
from rmqtool.services.retries.retries import Retries
from rmqtool.services.usage.usage import measure
from rmqtool.store.check.run import check_store
from rmqtool.store.config.files import keep_parsed, read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.conftest import Unpacked
from tests.services.build import TIME, Builder, never

NOW = 1_795_300_000_000
STORES = ("broker", "broker-5.3.3", "broker-5.5.0", "broker-crash")


def overview_of(store: Path, now: int = NOW) -> tuple[Overview, StoreLayout]:
    layout = StoreLayout(str(store))
    return look_over(layout, now), layout


@pytest.mark.parametrize("case", STORES)
def test_numbers_are_those_of_the_commands(case: str, golden: Unpacked) -> None:
    overview, layout = overview_of(golden(case))
    log = CommitLog(layout)
    usage = measure(log, "topic", Selection(), never)
    assert [(row.topic, row.purpose, row.messages, row.bytes) for row in overview.topics] == [
        (row["topic"], row["purpose"], row["messages"], row["bytes"]) for row in usage.rows
    ]
    infos = {info.group: info for info in ConsumerGroups(log, lambda _text: None).infos()}
    assert {row.group for row in overview.groups} == {*infos}
    for row in overview.groups:
        info = infos[row.group]
        assert (row.lag, row.retry_lag, row.dead_letters) == (info.diff, info.retryDiff, info.deadLetters)
    letters = [letter for letter, _message in Retries(log, NOW, lambda _text: None).dead_letters()]
    counts = Counter((letter.group, letter.originTopic, letter.reconsumeTimes) for letter in letters)
    assert {(row.group, row.topic, row.failed): row.letters for row in overview.letters} == counts
    assert sum(row.letters for row in overview.letters) == len(letters)
    levels = {row.level: row for row in Delays(log, NOW, lambda _text: None).levels() if row.pending}
    assert {row.level: row for row in overview.delays if row.pending and row.kind == "level"} == levels
    assert overview.reading is not None
    codes = {code.code: code.count for cause in overview.reading.causes for code in cause.all}
    result = Counter[str]()
    for finding in check_store(layout):
        result[finding.code] += finding.count
    assert codes == result
    assert overview.findings == result.total()


def test_an_offsets_file_is_parsed_once_unless_it_changes(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_copy("broker")
    path, parse, seen = store / "config" / "consumerOffset.json", ConsumerOffsets.parse, list[bytes]()

    def count(data: bytes) -> ConsumerOffsets:
        seen.append(data)
        return parse(data)

    monkeypatch.setattr(ConsumerOffsets, "parse", count)
    path.with_name(path.name + ".bak").unlink()
    overview_of(store)
    assert len(seen) == 1
    with keep_parsed():
        layout, changed = StoreLayout(str(store)), path.read_bytes().replace(b"Orders", b"Orderz")
        assert read_config(layout, path.name) is read_config(layout, path.name)
        path.write_bytes(changed)
        table = read_config(layout, path.name)
    assert isinstance(table, ConsumerOffsets)
    assert "Orderz" in {row.topic for row in table.tables()}
    assert seen[1:] == [seen[0], changed]


def consumed(tmp_path: Path) -> Path:
    """Twelve messages each in two queues of a topic, forty in a third; a group that has read some."""
    builder = Builder()
    for queue, count in ((0, 12), (1, 12), (2, 40)):
        for number in range(count):
            builder.put("T", queue, store_timestamp=TIME + queue * 1000 + number)
    for number in range(3):
        builder.put("%DLQ%G", reconsume_times=16, properties={"RETRY_TOPIC": "T"}, store_timestamp=TIME + 5000 + number)
    builder.put("%DLQ%G", reconsume_times=2, properties={"RETRY_TOPIC": "T"}, store_timestamp=TIME + 6000)
    topics = {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}}
    groups = {"subscriptionGroupTable": {"G": {"groupName": "G", "retryMaxTimes": 16, "retryQueueNums": 1}}}
    return builder.write(
        tmp_path,
        {
            "topics.json": json.dumps(topics),
            "subscriptionGroup.json": json.dumps(groups),
            "consumerOffset.json": json.dumps({"offsetTable": {"T@G": {"0": 12, "1": 5, "2": 39}}}),
        },
    )


def test_lag_age_skew_and_causes(tmp_path: Path) -> None:
    overview, _layout = overview_of(consumed(tmp_path))
    (group,) = [row for row in overview.groups if row.group == "G"]
    assert (group.lag, group.oldest, group.dead_letters) == (8, TIME + 1005, 4)
    (topic,) = [row for row in overview.topics if row.topic == "T"]
    # 64 messages in four queues, one of them empty
    assert (topic.queues, topic.largest, topic.skew) == (4, 40, 2.5)
    assert [(row.topic, row.failed, row.letters, row.first, row.last) for row in overview.letters] == [
        ("T", 16, 3, TIME + 5000, TIME + 5002), ("T", 2, 1, TIME + 6000, TIME + 6000),
    ]  # fmt: skip
    assert "as many deliveries failed as the group allows (16)" in overview.letters[0].cause
    assert "gave up before the group's limit of 16" in overview.letters[1].cause


def test_what_cannot_be_read_is_named(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    for name in ("topics.json", "topics.json.bak", "consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_bytes(b"\xff{")
    overview, _layout = overview_of(store)
    assert any("topics.json" in failure for failure in overview.failures)
    assert any("consumerOffset.json" in failure for failure in overview.failures)
    assert overview.topics
    assert overview.contents is not None


@pytest.mark.parametrize("case", STORES)
def test_no_name_is_left(case: str, golden: Unpacked) -> None:
    overview, layout = overview_of(golden(case))
    redacted = redact(overview, layout)
    names = {row.topic for row in overview.topics if row.purpose is None} | {
        row.group for row in overview.groups if row.topics
    }
    own = {name for name in names if not name.startswith(("CID_RMQ_SYS", "rmq_sys_"))}
    assert own
    text = repr(asdict(redacted))
    assert [name for name in own if name in text] == []
    assert layout.root not in text
    # nothing but texts differs
    assert [row.messages for row in redacted.topics] == [row.messages for row in overview.topics]
    assert [row.lag for row in redacted.groups] == [row.lag for row in overview.groups]
    assert redacted.contents is not None
    assert overview.contents is not None
    assert redacted.contents.queues == overview.contents.queues


def test_codes_stay_words_even_if_a_topic_has_one_as_its_name(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("log-torn")
    builder.put("error")
    store = builder.write(tmp_path)
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.write(b"\0\0")
    overview, layout = overview_of(store)
    redacted = redact(overview, layout)
    assert redacted.reading is not None
    assert overview.reading is not None
    assert [each.root.code for each in redacted.reading.causes] == [each.root.code for each in overview.reading.causes]
    assert redacted.reading.severity == overview.reading.severity
