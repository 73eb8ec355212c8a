"""One store out of several copies: every message that is whole in any of them, once."""

import json
import shutil
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from formats.layouts.derived import HEAD_V4_V4
from formats.variants.dledger import HEAD_SIZE
from rmqtool import NewMessage, Store
from rmqtool.errors import Refused
from rmqtool.services.comparison.replicas import rank_copies
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.report import SalvageReport
from tests import copies, roles
from tests.amounts import by_turns, some
from tests.cli.running import rmqtool
from tests.services.build import Builder, never
from tests.services.test_comparison import builder_of
from tests.store.crashes import Killed, Seam
from tests.store.helpers import content

Queue = tuple[bytes, int, int]


def layouts_of(nodes: list[roles.Node]) -> list[StoreLayout]:
    return [StoreLayout(str(node.store), load(str(node.conf))) for node in nodes]


def records_of(layout: StoreLayout) -> list[LocatedRecord]:
    items = [*CommitLog(layout).walk()]
    return [item for item in items if isinstance(item, LocatedRecord)]


def salvage(layouts: list[StoreLayout], new: Path) -> SalvageReport:
    ranked = rank_copies(layouts, never)
    return Salvage(ranked[0], str(new), others=ranked[1:]).run()


def by_identity(layout: StoreLayout) -> dict[copies.Identity, Queue]:
    """The queue offset of every message; none may be there twice."""
    items = records_of(layout)
    result = {
        copies.identity(item.record): (item.record.topic, item.record.queue_id, item.record.queue_offset)
        for item in items
    }
    assert len(result) == len(items)
    return result


# -- what real brokers wrote ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "messages", "from_base"),
    [
        (roles.OLD_DLEDGER, 381, 381), (roles.DLEDGER, 338, 329), (roles.CONTROLLER, 359, 359), (roles.SLAVE, 482, 482),
        (roles.NEW_SLAVE, 384, 384),
    ],
)  # fmt: skip
def test_all_copies_of_a_group(case: str, messages: int, from_base: int, tmp_path: Path) -> None:
    layouts = layouts_of(roles.unpack_all(case, tmp_path))
    before = [roles.prints(Path(layout.root)) for layout in layouts]
    report = salvage(layouts, tmp_path / "new")
    assert (report.messages, report.copies[0].taken) == (messages, from_base)
    assert [copy.store for copy in report.copies[1:]] == [
        layout.root for layout in layouts if layout.root != report.copies[0].store
    ]
    assert sum(copy.taken for copy in report.copies) == messages
    identities = by_identity(StoreLayout(str(tmp_path / "new")))
    assert len(identities) == messages
    for layout in layouts:
        torn = 1 if (case, Path(layout.root).name) == (roles.SLAVE, "slave") else 0
        own = by_identity(layout)
        assert len(own.keys() - identities.keys()) == torn, (
            "only a record with torn properties, of which the master has all"
        )
        if layout.root == report.copies[0].store:
            assert all(identities[key] == place for key, place in own.items()), "queue offsets are those of the base"
    assert [roles.prints(Path(layout.root)) for layout in layouts] == before


@by_turns(2)
@pytest.mark.parametrize("case", [roles.OLD_DLEDGER, roles.DLEDGER, roles.CONTROLLER, roles.SLAVE, roles.NEW_SLAVE])
def test_each_pair_in_each_order(case: str, tmp_path: Path) -> None:
    """Also with the copy first that is behind."""
    layouts = layouts_of(roles.unpack_all(case, tmp_path))
    for number, pair in enumerate(permutations(layouts, 2)):
        new = tmp_path / f"new-{number}"
        Salvage(pair[0], str(new), others=pair[1:]).run()
        identities = by_identity(StoreLayout(str(new)))
        for layout in pair:
            torn = 1 if (case, Path(layout.root).name) == (roles.SLAVE, "slave") else 0
            assert len(by_identity(layout).keys() - identities.keys()) == torn
        assert len(identities) == len({key for layout in pair for key in by_identity(layout)}) - (case == roles.SLAVE)


def test_both_histories_are_kept(tmp_path: Path) -> None:
    """Nine messages of n2 have the queue offsets of nine others of n0 and n1."""
    layouts = layouts_of(roles.unpack_all(roles.DLEDGER, tmp_path))
    report = salvage(layouts, tmp_path / "new")
    assert [(copy.taken, copy.known, copy.damaged, copy.contradicting) for copy in report.copies] == [
        (329, 0, 0, 0), (0, 329, 0, 0), (9, 228, 0, 9),
    ]  # fmt: skip
    assert (report.contradictions, report.lostRangeCount) == (18, 18)
    origins = Counter(row.reason.rpartition("/")[2] for row in report.lostRanges)
    assert origins == {"n0": 9, "n2": 9}
    new = by_identity(StoreLayout(str(tmp_path / "new")))
    n0, n2 = (by_identity(layouts[number]) for number in (0, 2))
    own = n2.keys() - n0.keys()
    assert len(own) == 9
    ends = Counter((topic, queue) for topic, queue, _offset in n0.values())
    assert all(new[key][2] >= ends[new[key][:2]] for key in own), "they follow those that were acknowledged"


def test_torn_properties_come_from_the_master(tmp_path: Path) -> None:
    master, slave = layouts_of(roles.unpack_all(roles.SLAVE, tmp_path))
    report = Salvage(slave, str(tmp_path / "new"), others=[master]).run()
    assert report.tornProperties == 0
    assert by_identity(StoreLayout(str(tmp_path / "new"))) == by_identity(master)
    assert [record.record for record in records_of(StoreLayout(str(tmp_path / "new")))] == [
        record.record for record in records_of(master)
    ]


# -- damage -----------------------------------------------------------------------------------------------------------


def located(store: Path) -> list[LocatedRecord]:
    return records_of(StoreLayout(str(store), BrokerConf()))


def overwrite(item: LocatedRecord, at: int, data: bytes) -> None:
    with open(item.file.path, "r+b") as file:
        file.seek(item.at + at)
        file.write(data)


def three(tmp_path: Path, builder: Builder) -> list[Path]:
    first = builder.write(tmp_path / "a")
    return [first, *(shutil.copytree(first, tmp_path / name) for name in ("b", "c"))]


def test_the_majority_decides_between_intact_records(tmp_path: Path) -> None:
    """A field that no checksum covers, changed in the first copy."""
    stores = three(tmp_path, builder_of(range(20)))
    items = located(stores[0])
    overwrite(items[7], HEAD_V4_V4.offsets["born_timestamp"] + 6, b"\x7f")
    layouts = [StoreLayout(str(store), BrokerConf()) for store in stores]
    report = Salvage(layouts[0], str(tmp_path / "new"), others=layouts[1:]).run()
    assert by_identity(StoreLayout(str(tmp_path / "new"))) == by_identity(layouts[1])
    assert report.contradictions == 2, "the record of each side is kept"
    assert [copy.contradicting for copy in report.copies] == [1, 0, 0]


def test_a_broken_head_of_a_dledger_entry_in_one_copy(tmp_path: Path) -> None:
    """Its record is intact, and stands against the same record of the first copy, in which a field is wrong."""
    nodes = []
    for name in "abc":
        (tmp_path / name).mkdir()
        nodes.append(roles.unpack(roles.DLEDGER, "n0", tmp_path / name))
    layouts = layouts_of(nodes)
    items = [records_of(layout)[70] for layout in layouts]
    overwrite(items[0], HEAD_V4_V4.offsets["born_timestamp"] + 6, b"\x7f")
    overwrite(items[1], -HEAD_SIZE, b"\x55" * 7)
    expected = Counter(copies.identity(item.record) for item in records_of(layouts[2]))
    Salvage(layouts[0], str(tmp_path / "new"), others=layouts[1:]).run()
    new = StoreLayout(str(tmp_path / "new"))
    assert Counter(copies.identity(item.record) for item in records_of(new)) == expected


def test_a_wrong_queue_offset_in_one_of_two_copies(tmp_path: Path) -> None:
    """The one that follows the message before it counts."""
    stores = three(tmp_path, builder_of(range(20)))[:2]
    items = located(stores[0])
    overwrite(items[8], HEAD_V4_V4.offsets["queue_offset"] + 7, b"\x6f")
    layouts = [StoreLayout(str(store), BrokerConf()) for store in stores]
    report = Salvage(layouts[0], str(tmp_path / "new"), others=layouts[1:]).run()
    assert by_identity(StoreLayout(str(tmp_path / "new"))) == by_identity(layouts[1])
    assert (report.wrongOffsets, report.messages) == (0, 20)


def test_what_is_damaged_in_all_copies_is_lost_and_said(tmp_path: Path) -> None:
    stores = three(tmp_path, builder_of(range(20)))
    items = [located(store) for store in stores]
    for own in items:
        overwrite(own[5], 0, b"\xff" * own[5].record.total_size)
    overwrite(items[1][9], 0, bytes(40))
    layouts = [StoreLayout(str(store), BrokerConf()) for store in stores]
    report = Salvage(layouts[1], str(tmp_path / "new"), others=[layouts[0], layouts[2]]).run()
    assert (report.messages, report.lostRangeCount) == (19, 1)
    assert report.lostRanges[0].physicalOffset == items[0][5].physical_offset
    assert report.lostBytes == items[0][5].record.total_size
    assert [copy.damaged for copy in report.copies] == [2, 1, 1]


def test_a_head_that_only_another_copy_has_still(tmp_path: Path) -> None:
    node = roles.unpack(roles.SLAVE, "master", tmp_path)
    short = shutil.copytree(node.store, tmp_path / "short")
    for name in (f"{0:020d}", f"{40960:020d}"):
        (short / "commitlog" / name).unlink()
    conf = load(str(node.conf))
    whole, expired = StoreLayout(str(node.store), conf), StoreLayout(str(short), conf)
    Salvage(expired, str(tmp_path / "new"), others=[whole]).run()
    assert [item.record for item in records_of(StoreLayout(str(tmp_path / "new")))] == [
        item.record for item in records_of(whole)
    ]


@pytest.mark.parametrize("seed", range(some(8, 40)))
def test_randomly_damaged_copies(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """``python -m tests.copies`` runs any number of them."""
    outcome = copies.run(seed, tmp_path_factory.mktemp("case"), _originals(tmp_path_factory))
    assert not outcome.wrong, outcome.done


def _originals(factory: pytest.TempPathFactory) -> Path:
    place = factory.getbasetemp() / "originals"
    place.mkdir(exist_ok=True)
    return place


def test_the_judge_sees_what_is_missing(tmp_path: Path) -> None:
    """A new store out of one copy alone lacks what only the others have."""
    (tmp_path / "originals").mkdir()
    source = copies.source_of(roles.NEW_SLAVE, tmp_path / "originals")
    outcome = copies.Outcome()
    Salvage(StoreLayout(str(source.node.store), load(str(source.node.conf))), str(tmp_path / "new")).run()
    every = {*range(len(source.pieces))}
    copies.judge(source.pieces, [every], tmp_path / "new", outcome)
    assert outcome.wrong == []
    log = sorted((tmp_path / "new" / "commitlog").iterdir())[1]
    log.write_bytes(bytes(log.stat().st_size))
    copies.judge(source.pieces, [every], tmp_path / "new", outcome)
    assert any(text.startswith("missing: 1 of ") for text in outcome.wrong)


# -- killed, refused, reported ----------------------------------------------------------------------------------------

SIZES = {"mappedFileSizeCommitLog": "2048", "mappedFileSizeConsumeQueue": "200", "maxHashSlotNum": "7"}
SIZES |= {"maxIndexNum": "40"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # who is killed closes no file
def test_killed_anywhere_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "a"
    with Store.create(first, broker_conf=SIZES) as made:
        made.append_many(
            [NewMessage(topic="ab"[n % 2], queue_id=0, body=b"x" * n, born_timestamp=n) for n in range(30)]
        )
    other = shutil.copytree(first, tmp_path / "b")
    for store, name in ((first, f"{0:020d}"), (other, f"{2048:020d}")):
        with open(store / "commitlog" / name, "r+b") as file:
            file.seek(500)
            file.write(b"\xff" * 100)
    layouts = [StoreLayout(str(store), BrokerConf(SIZES)) for store in (first, other)]
    before = [content(store) for store in (first, other)]

    def run(new: Path) -> dict[str, str]:
        Salvage(layouts[0], str(new), others=layouts[1:]).run()
        return content(new)

    seam = Seam(monkeypatch)
    expected = run(tmp_path / "whole")
    steps = seam.count
    assert len(by_identity(StoreLayout(str(tmp_path / "whole"), BrokerConf(SIZES)))) == 30
    for stop in [*range(1, steps - 4, some(13, 1)), *range(steps - 4, steps + 1)]:
        new = tmp_path / str(stop)
        seam.begin(stop)
        with pytest.raises(Killed):
            run(new)
        seam.begin()
        state = content(new) if new.exists() else run(new)
        assert state == expected, f"killed at step {stop} of {steps}"
    assert [content(store) for store in (first, other)] == before


def test_the_new_store_lies_in_none_of_them(tmp_path: Path) -> None:
    stores = three(tmp_path, builder_of(range(3)))
    layouts = [StoreLayout(str(store), BrokerConf()) for store in stores]
    with pytest.raises(Refused, match="give a place outside of it"):
        Salvage(layouts[0], str(stores[1] / "new"), others=layouts[1:]).run()
    assert not (stores[1] / "new").exists()


def test_topics_and_groups_that_only_another_copy_knows(tmp_path: Path) -> None:
    stores = three(tmp_path, builder_of(range(3)))[:2]
    for store, name in zip(stores, ("Known", "Other"), strict=True):
        (store / "config").mkdir(exist_ok=True)
        topic = {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {name: topic}}))
    offsets = {"offsetTable": {"Orders@readers": {0: 1}}}
    (stores[1] / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    layouts = [StoreLayout(str(store), BrokerConf()) for store in stores]
    report = Salvage(layouts[0], str(tmp_path / "new"), others=layouts[1:]).run()
    new = StoreLayout(str(tmp_path / "new"))
    topics, groups = read_config(new, "topics.json"), read_config(new, "consumerOffset.json")
    assert topics is not None
    assert groups is not None
    assert {*topics.topics} == {"Known", "Other"}  # type: ignore[attr-defined]
    assert dict(groups.offsets["Orders@readers"]) == {0: 1}  # type: ignore[attr-defined]
    assert "config/topics.json: only other copies have Other: added" in report.warnings


def test_the_command(tmp_path: Path) -> None:
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    stores = [str(node.store) for node in nodes]
    result = rmqtool("salvage", *stores, tmp_path / "new", "-o", "json")
    assert result.code == 1, "copies contradict each other"
    report = json.loads(result.out)
    assert (report["messages"], report["contradictions"]) == (338, 18)
    assert f"{stores[2]}: 9 messages taken, 228 that another copy had, too, 0 damaged, 9 contradicting" in result.err
    assert "nothing was unreadable" in result.err
    assert "18 records of copies that contradict each other" in result.err
    assert rmqtool("check", tmp_path / "new", "--severity", "error").code == 0
    assert rmqtool("salvage", *stores[:2], tmp_path / "two").code == 0
    wrong = rmqtool("salvage", *stores, tmp_path / "x.ndjson", "--to", "ndjson")
    assert (wrong.code, "give one STORE" in wrong.err) == (2, True)
