"""After the default recovery a store is consistent: a sample of random cases; ``python -m tests.whole`` runs more."""

import shutil
from pathlib import Path
from random import Random

import pytest

from formats import checkpoint
from rmqtool.rules.releases import RELEASES
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns
from tests.bench.queues import topic_of, write_store
from tests.conftest import Unpacked
from tests.damage import UNIT, log_files, records_of
from tests.store.helpers import conf_of, tree
from tests.whole import ENGINES, Base, faults_of, make_bases, run_case, wrong_entries

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    return make_bases(tmp_path_factory.mktemp("bases"))


@by_turns(13)
@pytest.mark.parametrize("part", range(4))
def test_random_damages_beside_the_log(part: int, bases: list[Base], tmp_path: Path) -> None:
    for number in range(part * 25, part * 25 + 25):
        rng, store = Random(f"1 {number}"), tmp_path / "store"
        outcome = run_case(rng, rng.choice(bases), store)
        assert not outcome.faults, f"case {number}: {outcome}"
        for path in (store, Path(f"{store}.rmqtool")):
            shutil.rmtree(path, ignore_errors=True)


def test_healthy_stores_are_left_alone(bases: list[Base]) -> None:
    for base in bases:
        before = tree(base.path)
        for engine in base.engines:
            assert recover(StoreLayout(str(base.path), base.conf), release=RELEASES[engine]).clean, base.name
        assert tree(base.path) == before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_queue_file_of_wrong_length_after_a_crash_is_no_dead_end(engine: str, golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    file = next((store / "consumequeue").glob("TopicA/*/*"))
    file.write_bytes(file.read_bytes()[:100])
    assert plan(StoreLayout(str(store), conf_of("crash")), release=RELEASES[engine], exactly=True).refusals
    report = recover(StoreLayout(str(store), conf_of("crash")), release=RELEASES[engine])
    assert any(str(file) in why for why in report.unloaded)
    assert faults_of(store, conf_of("crash"), engine) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_short_file_still_holds_does_not_count_as_put_in(engine: str, bases: list[Base], tmp_path: Path) -> None:
    base, store = bases[0], tmp_path / "store"
    shutil.copytree(base.path, store)
    first, *others = sorted((store / "consumequeue" / "order-events" / "3").iterdir())
    assert others
    first.write_bytes(first.read_bytes()[:-UNIT])
    report = recover(StoreLayout(str(store), base.conf), release=RELEASES[engine])
    assert [(queue.topic, queue.queueId, queue.entriesPutIn) for queue in report.mended] == [("order-events", 3, 1)]
    assert faults_of(store, base.conf, engine) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_entries_lead_to_where_a_record_lies_whatever_it_says(engine: str, bases: list[Base], tmp_path: Path) -> None:
    base, store = bases[0], tmp_path / "store"
    shutil.copytree(base.path, store)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    (store / "abort").touch()
    place = list(records_of(log_files(store)[0]))[3]
    with place.path.open("r+b") as file:
        file.seek(place.at + 28)
        file.write((place.at + 5).to_bytes(8, "big"))
    layout = StoreLayout(str(store), base.conf)
    recover(layout, release=RELEASES[engine])
    assert list(wrong_entries(StoreLayout(str(store), base.conf))) == []


def test_an_index_of_files_that_overlap_is_written_once(golden_copy: Unpacked) -> None:
    """A copy of a log file at an offset within it: its keys precede the last message of the index."""
    store = golden_copy("crash")
    file = sorted((store / "commitlog").iterdir())[2]
    shutil.copy2(file, file.with_name(f"{int(file.name) + 1351:020d}"))
    shutil.rmtree(store / "index")
    layout = StoreLayout(str(store), conf_of("crash"))
    assert recover(layout).applied
    assert plan(StoreLayout(str(store), conf_of("crash"))).actions == []


def test_fillers_that_are_in_the_way_are_named(bases: list[Base], tmp_path: Path) -> None:
    """A message of the first file and its entry are lost: in a log that begins at 0, nothing can stand for it."""
    base, store = bases[0], tmp_path / "store"
    shutil.copytree(base.path, store)
    log = log_files(store)[0]
    first, physical = next(
        (file, int.from_bytes(file.read_bytes()[UNIT : UNIT + 8], "big"))
        for file in sorted(store.glob("consumequeue/*/*/00000000000000000000"))
        if 0 < int.from_bytes(file.read_bytes()[2 * UNIT : 2 * UNIT + 8], "big") < log.stat().st_size
    )
    with log.open("r+b") as file:
        file.seek(physical + 4)
        file.write(bytes(4))
    with first.open("r+b") as file:
        file.seek(UNIT)
        file.write(bytes(UNIT))
    report = recover(StoreLayout(str(store), base.conf), release=RELEASES["5.3"])
    assert [note for note in report.notes if note.startswith("1 filler had to take the place")]
    assert plan(StoreLayout(str(store), base.conf), release=RELEASES["5.3"]).clean


@pytest.mark.parametrize("engine", ENGINES)
def test_of_many_queues_only_the_damaged_one_is_written(engine: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_store(store, 300, queue_size=400, log_size=1 << 16)
    file = store / "consumequeue" / topic_of(150) / "6" / f"{0:020d}"
    file.write_bytes(bytes(UNIT) + file.read_bytes()[UNIT:])
    before = tree(store)
    assert recover(StoreLayout(str(store)), release=RELEASES[engine]).applied
    after = tree(store)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed - {"checkpoint"} == {str(file.relative_to(store))}
    assert faults_of(store, BrokerConf({}), engine) == []


@pytest.mark.parametrize("offset", [10**6, 2**40, 2**62])
def test_a_queue_offset_that_no_queue_can_have_had_takes_no_time(
    offset: int, bases: list[Base], tmp_path: Path
) -> None:
    base, store = bases[0], tmp_path / "store"
    shutil.copytree(base.path, store)
    place = list(records_of(log_files(store)[5]))[3]
    with place.path.open("r+b") as file:
        file.seek(place.at + 20)
        file.write(offset.to_bytes(8, "big"))
    report = recover(StoreLayout(str(store), base.conf), release=RELEASES["5.3"])
    assert not report.mended
    assert [note for note in report.notes if "several messages for one queue offset" in note]
    assert plan(StoreLayout(str(store), base.conf), release=RELEASES["5.3"]).clean


def test_where_the_check_meets_no_message_the_checkpoint_has_the_time_of_the_one_before(
    bases: list[Base], tmp_path: Path
) -> None:
    base, store = bases[0], tmp_path / "store"
    shutil.copytree(base.path, store)
    *_, last = log_files(store)
    with last.open("r+b") as file:
        file.truncate(1)
    recover(StoreLayout(str(store), base.conf), release=RELEASES["5.3"])
    stored = [place.record.store_timestamp for path in log_files(store)[:-1] for place in records_of(path)]
    point = checkpoint.parse((store / "checkpoint").read_bytes())
    assert point.physic_msg_timestamp == stored[-1]
    assert faults_of(store, base.conf, "5.3") == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("messages", [1, 3])
def test_a_last_message_without_store_time_needs_one_recovery(
    messages: int, engine: str, bases: list[Base], tmp_path: Path
) -> None:
    """The checkpoint has the time of the last message that has one, wherever the check begins."""
    base, store = bases[0], tmp_path / "store"
    shutil.copytree(base.path, store)
    places = [place for path in log_files(store) for place in records_of(path)]
    for place in places[-messages:]:
        with place.path.open("r+b") as file:
            file.seek(place.at + 56)
            file.write(bytes(8))
    (store / "abort").write_bytes(b"")
    recover(StoreLayout(str(store), base.conf), release=RELEASES[engine])
    point = checkpoint.parse((store / "checkpoint").read_bytes())
    assert point.physic_msg_timestamp == places[-messages - 1].record.store_timestamp
    assert plan(StoreLayout(str(store), base.conf), release=RELEASES[engine]).clean
    assert faults_of(store, base.conf, engine) == []


def make_half_of_the_last_message(base: Base, store: Path) -> Path:
    """By a damaged flag, of a compacted topic, whose own log has the message still; returns its queue's file."""
    shutil.copytree(base.path, store)
    place = [place for path in log_files(store) for place in records_of(path) if place.record.topic == b"Prices"][-1]
    with place.path.open("r+b") as file:
        file.seek(place.at + 36)
        file.write((place.record.sys_flag | 4).to_bytes(4, "big"))
    return store / "consumequeue" / "Prices" / str(place.record.queue_id) / "00000000000000000000"


def test_a_compacted_queue_ends_behind_the_damaged_message_that_its_own_log_has(
    bases: list[Base], tmp_path: Path
) -> None:
    (base,), store = [base for base in bases if base.name == "compaction-5.3.3"], tmp_path / "store"
    make_half_of_the_last_message(base, store)
    assert plan(StoreLayout(str(store), base.conf), release=RELEASES["5.3"]).clean
    assert faults_of_check(store, base) == []


def test_a_compaction_log_is_built_beside_a_message_that_became_a_half_one(bases: list[Base], tmp_path: Path) -> None:
    (base,), store = [base for base in bases if base.name == "compaction-5.3.3"], tmp_path / "store"
    queue = make_half_of_the_last_message(base, store)
    units = queue.read_bytes()
    end = max(at for at in range(0, len(units), UNIT) if any(units[at : at + UNIT]))
    queue.write_bytes(units[:end] + bytes(len(units) - end))
    assert [fault.split()[1] for fault in faults_of_check(store, base)] == ["compaction-ahead"]
    rebuild(StoreLayout(str(store), base.conf), ("compaction",))
    assert faults_of_check(store, base) == []


def faults_of_check(store: Path, base: Base) -> list[str]:
    return [fault for fault in faults_of(store, base.conf, "5.3") if fault.startswith("check")]


@pytest.mark.parametrize("stored", [2**62, 2**63 - 1, 10**14])
def test_a_message_of_a_far_future_can_be_undone(stored: int, bases: list[Base], tmp_path: Path) -> None:
    """Its time becomes that of its queue's file; in ns it may take more than 63 bits."""
    base, store = bases[0], tmp_path / "store"
    shutil.copytree(base.path, store)
    place = list(records_of(log_files(store)[-1]))[-1]
    with place.path.open("r+b") as file:
        file.seek(place.at + 56)
        file.write(stored.to_bytes(8, "big"))
    shutil.rmtree(store / "consumequeue" / place.record.topic.decode())
    before = tree(store)
    assert recover(StoreLayout(str(store), base.conf)).applied
    assert plan(StoreLayout(str(store), base.conf)).clean
    undo(str(store))
    assert tree(store) == before
