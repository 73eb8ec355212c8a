"""Stores of 5.5: recognised as such, without findings, and with an index entry for the tags of each message."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.index import tag_key
from formats.message.properties import TAGS, parse
from formats.primitives import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqtool import NewMessage, Store
from rmqtool.errors import Refused
from rmqtool.rules.releases import V5_3, V5_5
from rmqtool.store.check.codes.code import INFO
from rmqtool.store.config.release import release_of
from rmqtool.store.index.reader import IndexView, open_index, physical_offsets
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.recovery.command import plan, recover
from tests import goldens
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.compiled import compiled_way
from tests.store.findings import check_store
from tests.store.helpers import tree

Opened = Callable[[str], StoreLayout]


def conf_path(case: str) -> str:
    """The broker's settings of a store."""
    return str(goldens.STORES_OF_5_5 / case / "broker.conf")


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """The layout of a fresh copy of a store, with its broker's settings."""

    def unpacked(case: str) -> StoreLayout:
        conf = load(conf_path(case))
        return StoreLayout(str(goldens.unpack(case, tmp_path)), conf)

    return unpacked


def faults(layout: StoreLayout) -> list[str]:
    """Findings of check other than infos."""
    return [str(finding) for finding in check_store(layout) if finding.severity != INFO]


def tagged(layout: StoreLayout) -> dict[tuple[str, str], list[int]]:
    """(topic, tags) → physical offsets of its messages, newest first."""
    result: dict[tuple[str, str], list[int]] = {}
    for item in CommitLog(layout).walk():
        if isinstance(item, LocatedRecord) and item.record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            tags = parse(item.record.properties).get(TAGS)
            if tags:
                result.setdefault((item.record.topic.decode(), tags), []).insert(0, item.physical_offset)
    return result


def indexed(layout: StoreLayout, topic: str, tags: str) -> list[int]:
    """Index entries under tags."""
    files = [file for file in open_index(layout) if isinstance(file, IndexView)]
    return list(dict.fromkeys(physical_offsets(files, topic, tag_key(tags), limit=10_000)))


def entries(layout: StoreLayout) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """(queue offset, physical offset) of each entry of each queue."""
    return {
        (queue.topic, queue.queue_id): [(entry.queue_offset, entry.physical_offset) for entry in queue.entries(0)]
        for queue in every_queue(layout)
    }


def test_a_healthy_store_is_healthy(opened: Opened) -> None:
    layout = opened("broker-5.5.0")
    assert release_of(layout) is V5_5
    assert faults(layout) == []
    before = tree(Path(layout.root))
    assert recover(layout).actions == []
    assert tree(Path(layout.root)) == before


def test_copies_that_consumers_sent_back_are_in_no_light_queue(opened: Opened, tmp_path: Path) -> None:
    """They still name the queues, and the offsets there, and are marked as committed without a half message."""
    layout = opened("light-5.5.0-crash")
    assert [finding.code for finding in check_store(layout) if finding.severity != INFO] == ["abort-present"]
    start = plan(layout)
    assert (start.warnings, start.notes, start.mended) == ([], [], [])
    assert not [action for action in start.actions if "consumequeue" in str(action)]
    assert rmqtool("export", layout.root, tmp_path / "new", "--broker-conf", conf_path("light-5.5.0-crash")).code == 0
    new = StoreLayout(str(tmp_path / "new"), layout.conf)
    assert entries(new) == entries(layout)
    assert faults(new) == []


@pytest.mark.parametrize("case", ["stopped-at-once-5.5.0", "rocksdb-stopped-at-once-5.5.0"])
def test_a_broker_that_ran_for_seconds_leaves_a_checkpoint_without_times(case: str, opened: Opened) -> None:
    layout = opened(case)
    assert faults(layout) == []
    assert "checkpoint-empty" not in {finding.code for finding in check_store(layout)}
    Path(layout.root, "abort").touch()  # killed: no fault either, but its next start reads all of the log
    (found,) = [finding for finding in check_store(layout) if finding.code == "checkpoint-empty"]
    assert found.severity == INFO


def test_a_broker_that_ran_for_longer_has_lost_its_times(opened: Opened) -> None:
    layout = opened("broker-5.5.0")
    Path(layout.root, "checkpoint").write_bytes(bytes(4096))
    assert [finding.code for finding in check_store(layout) if finding.severity != INFO] == ["checkpoint-empty"]


def test_tags_are_found_in_the_index_that_the_broker_wrote(opened: Opened) -> None:
    layout = opened("broker-5.5.0")
    wanted = tagged(layout)
    assert len(wanted) > 10
    assert {key: indexed(layout, *key) for key in wanted} == wanted


@pytest.mark.parametrize("compiled", [False, True])
def test_after_a_kill_the_index_is_brought_up_with_its_tags(compiled: bool, opened: Opened) -> None:
    layout = opened("broker-5.5.0-crash")
    if compiled:
        with compiled_way():
            report = recover(layout)
    else:
        report = recover(layout)
    layout = StoreLayout(layout.root, layout.conf)
    assert (report.engine, report.lost) == ("5.5", [])
    assert faults(layout) == []
    assert {key: indexed(layout, *key) for key in tagged(layout)} == tagged(layout)


def test_an_index_that_an_older_broker_began_goes_on_with_tags(opened: Opened) -> None:
    layout = opened("broker-5.5.0")
    for path in Path(layout.root, "index").iterdir():
        path.unlink()
    recover(StoreLayout(layout.root, layout.conf), release=V5_3)  # an index as of a store that 5.3 wrote
    layout = StoreLayout(layout.root, layout.conf)
    assert not any(indexed(layout, *key) for key in tagged(layout))
    assert faults(layout) == []
    assert plan(layout).actions == []
    topic = next(topic for topic, _tags in tagged(layout))
    with Store(layout.root, write=True, broker_conf=layout.conf.path) as store:
        assert store.append(NewMessage(topic=topic, body=b"x", tags="later", keys="k")).ok
        assert store.append(NewMessage(topic=topic, body=b"y", tags="later")).ok
    layout = StoreLayout(layout.root, layout.conf)
    assert len(indexed(layout, topic, "later")) == 2
    assert faults(layout) == []
    assert plan(layout).actions == []


def test_a_lost_index_is_rebuilt_with_tags(opened: Opened) -> None:
    layout = opened("broker-5.5.0")
    before = {key: indexed(layout, *key) for key in tagged(layout)}
    for path in Path(layout.root, "index").iterdir():
        path.unlink()
    recover(StoreLayout(layout.root, layout.conf))
    layout = StoreLayout(layout.root, layout.conf)
    assert {key: indexed(layout, *key) for key in before} == before
    assert faults(layout) == []


@pytest.mark.parametrize("name", ["indexRocksDBEnable", "transRocksDBEnable"])
def test_settings_whose_rules_are_not_followed_are_refused(name: str, opened: Opened) -> None:
    layout = opened("broker-5.5.0-crash")
    layout.conf.values[name] = "true"
    with pytest.raises(Refused, match=name):
        plan(layout)


def test_a_database_of_queues_in_its_new_place_is_not_taken_for_lost_queues(opened: Opened) -> None:
    layout = opened("broker-5.5.0")
    folder = Path(layout.root, "consumequeue_rocksdb")
    folder.mkdir()
    for name in ("CURRENT", "MANIFEST-000001"):
        folder.joinpath(name).write_bytes(b"MANIFEST-000001\n")
    report = plan(StoreLayout(layout.root, layout.conf))
    assert (report.loadOk, report.actions) == (False, []), "it cannot be opened"
    assert any("consumequeue_rocksdb" in reason for reason in report.refusals)


@pytest.mark.parametrize("name", ["indexRocksDBEnable", "transRocksDBEnable"])
def test_a_plan_for_a_store_whose_index_or_halves_are_in_a_database(name: str, opened: Opened, tmp_path: Path) -> None:
    """Recover does not write it; the plan shows what a broker does, and says so."""
    layout, conf = opened("broker-5.5.0-crash"), tmp_path / "broker.conf"
    conf.write_text(f"{Path(conf_path('broker-5.5.0-crash')).read_text()}\n{name}=true\n")
    before = tree(Path(layout.root))
    shown = rmqtool("recover", layout.root, "--dry-run", "--broker-conf", conf)
    assert shown.code == 1, shown.err
    assert "recover does none of this" in " ".join(shown.out.split())
    refused = rmqtool("recover", layout.root, "--yes", "--broker-conf", conf)
    assert refused.code == 4
    assert f"{name} is on: rmqtool does not modify that database" in refused.err
    assert tree(Path(layout.root)) == before


@pytest.mark.parametrize("written", [False, True])
def test_the_rest_of_a_page_is_no_damage_where_whole_pages_are_written(
    written: bool, opened: Opened, tmp_path: Path
) -> None:
    """With ``writeWithoutMmap`` a broker fills the page after each message with what its buffer had before."""
    layout, conf = opened("broker-5.5.0"), tmp_path / "broker.conf"
    conf.write_text(f"{Path(conf_path('broker-5.5.0')).read_text()}\nwriteWithoutMmap={str(written).lower()}\n")
    last = CommitLog(layout).last()
    assert last is not None
    path, end = Path(last.file.path), last.end - last.file.base
    data = bytearray(path.read_bytes())
    rest = -end % 4096
    data[end : end + rest] = b"g" * rest
    path.write_bytes(data)

    def results(*command: object) -> tuple[int, int, int]:
        verbs = (("check",), ("recover", "--dry-run"), ("export", tmp_path / f"new-{len(command)}"))
        results = [rmqtool(name, layout.root, *more, "--broker-conf", conf).code for name, *more in verbs]
        return results[0], results[1], results[2]

    assert results() == ((0, 0, 0) if written else (1, 1, 5))
    data[last.at + 4] ^= 1  # the magic of the last message: it still states its position
    path.write_bytes(data)
    assert results("damaged") == (1, 1, 5)


@pytest.mark.parametrize("writes", [1, 3])
def test_old_bytes_behind_the_last_message_show_whole_pages(writes: int, opened: Opened) -> None:
    """They are the ends of longer messages, or batches, that were in the broker's buffer before."""
    layout = opened("broker-5.5.0")
    records = [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    last = records[-1]
    path, end, size = Path(last.file.path), last.end - last.file.base, last.record.total_size
    before = [item for item in records[:-1] if item.file.path == last.file.path]
    at, longer = next((at, item) for at, item in enumerate(before) if item.record.total_size > size + 100)
    stop = before[min(at + writes, len(before) - 1)].at
    data = bytearray(path.read_bytes())
    old = bytes(data[longer.at + size : stop])[: -end % 4096]
    data[end : end + len(old)] = old
    path.write_bytes(data)
    assert rmqtool("check", layout.root).code == 0
    assert rmqtool("recover", layout.root, "--dry-run").code == 0
    data[end + 9] ^= 1
    path.write_bytes(data)
    assert "log-torn" in rmqtool("check", layout.root).out


def test_a_broker_that_writes_whole_pages_leaves_no_torn_message(golden: Unpacked) -> None:
    store = golden("whole-pages-5.5.0")
    codes = {json.loads(line)["code"] for line in rmqtool("check", store, "--output", "ndjson").out.splitlines()}
    assert codes == {"abort-present"}
