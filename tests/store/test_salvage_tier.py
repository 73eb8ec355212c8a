"""A tier is one of the copies of ``salvage``: what is whole in the log or in a segment is in the new store once."""

import json
import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from formats.layouts.derived import CQ_ENTRY
from formats.message.read import Record, read
from rmqtool.services.comparison.replicas import rank_copies
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.report import SalvageReport
from rmqtool.store.tier.tier import Tier
from tests import copies, roles
from tests.amounts import by_turns, some
from tests.cli.running import rmqtool
from tests.copies import Piece, identity
from tests.roles import TIERED, Node
from tests.services.build import never


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return roles.unpack(TIERED, "a", tmp_path_factory.mktemp("tiered"))


def copy_of(whole: Node, folder: Path, name: str = "a") -> Node:
    shutil.copytree(whole.store, folder / name)
    conf = folder / f"{name}.conf"
    conf.write_text(whole.conf.read_text().replace(str(whole.store), str(folder / name)))
    return Node(folder / name, conf)


@pytest.fixture
def node(whole: Node, tmp_path: Path) -> Node:
    return copy_of(whole, tmp_path)


def layout_of(node: Node) -> StoreLayout:
    return StoreLayout(str(node.store), load(str(node.conf)))


def salvage(node: Node, new: Path) -> SalvageReport:
    before = roles.prints(node.store)
    report = Salvage(layout_of(node), str(new)).run()
    assert roles.prints(node.store) == before
    return report


def pieces_of(node: Node) -> tuple[list[Piece], list[Piece]]:
    """Every record of the log, and every one of the tier."""
    layout = layout_of(node)
    log = [
        Piece(Path(item.file.path).relative_to(node.store), item.at, raw_of(item), item.record)
        for item in CommitLog(layout).walk()
        if isinstance(item, LocatedRecord)
    ]
    tier = Tier.of(layout)
    assert tier is not None
    tiered = []
    for queue in tier.queues.values():
        for file in queue.log:
            at, data = 0, Path(file.path).read_bytes()
            while at < len(data):
                record = read(memoryview(data), at, len(data))
                assert isinstance(record, Record)
                raw = data[at : at + record.total_size]
                tiered.append(Piece(Path(file.path).relative_to(node.store), at, raw, record))
                at += record.total_size
    return log, tiered


def raw_of(item: LocatedRecord) -> bytes:
    return bytes(item.file.map()[item.at : item.at + item.record.total_size])


def served_from(new: Path) -> Counter[copies.Identity]:
    return Counter(identity(item.record) for item in CommitLog(StoreLayout(str(new))).walk() if not_damage(item))


def not_damage(item: object) -> bool:
    assert isinstance(item, LocatedRecord), item
    return True


def offsets_of(new: Path) -> dict[copies.Identity, int]:
    return {
        identity(item.record): item.record.queue_offset
        for item in CommitLog(StoreLayout(str(new))).walk()
        if isinstance(item, LocatedRecord)
    }


def overwrite(node: Node, piece: Piece, at: int, data: bytes) -> None:
    with open(node.store / piece.file, "r+b") as file:
        file.seek(piece.at + at)
        file.write(data)


def in_both(node: Node) -> list[tuple[Piece, Piece]]:
    log, tiered = pieces_of(node)
    by_identity = {identity(piece.record): piece for piece in tiered}
    return [(piece, by_identity[key]) for piece in log if (key := identity(piece.record)) in by_identity]


# -- what comes from where --------------------------------------------------------------------------------------------


def test_nothing_is_damaged(node: Node, tmp_path: Path) -> None:
    both = len(in_both(node))
    report = salvage(node, tmp_path / "new")
    assert (report.messages, report.takenFromTier, report.lostRangeCount) == (370, 229, 0)
    log, tier = report.copies
    assert (log.taken, log.damaged, log.contradicting) == (141, 0, 0)
    assert (tier.store, tier.taken, tier.known) == (str(node.store / "tiered"), 229, both)
    assert (tier.damaged, tier.contradicting) == (0, 0)


def test_a_message_rotten_in_the_log_comes_from_the_tier(node: Node, tmp_path: Path) -> None:
    pair = in_both(node)[20]
    overwrite(node, pair[0], pair[0].raw.index(pair[0].record.body), b"\0\0")
    report = salvage(node, tmp_path / "new")
    assert (report.messages, report.takenFromTier, report.renumbered) == (370, 230, [])
    offsets = offsets_of(tmp_path / "new")
    assert offsets[identity(pair[1].record)] == pair[1].record.queue_offset
    assert set(served_from(tmp_path / "new").values()) == {1}


def test_the_end_of_the_log_comes_from_the_tier(node: Node, tmp_path: Path) -> None:
    """Of what the log has lost, only what was not uploaded yet is missing."""
    log, tiered = pieces_of(node)
    last = sorted({piece.file for piece in log})[-1]
    wanted = {identity(piece.record) for piece in (*log, *tiered) if piece.file != last}
    (node.store / last).unlink()
    assert salvage(node, tmp_path / "new").messages == len(wanted)
    found = served_from(tmp_path / "new")
    assert (found.keys(), set(found.values())) == (wanted, {1})


def test_torn_properties_in_the_log(node: Node, tmp_path: Path) -> None:
    pair = in_both(node)[5]
    overwrite(node, pair[0], len(pair[0].raw) - 20, bytes(20))
    report = salvage(node, tmp_path / "new")
    assert (report.messages, report.tornProperties, report.lostRangeCount) == (370, 0, 0)
    assert served_from(tmp_path / "new")[identity(pair[1].record)] == 1


def test_a_wrong_queue_offset_in_the_log(node: Node, tmp_path: Path) -> None:
    """No checksum covers it; the tier has the message under the right one."""
    pair = in_both(node)[30]
    overwrite(node, pair[0], 20, (pair[0].record.queue_offset + 7).to_bytes(8, "big"))
    report = salvage(node, tmp_path / "new")
    assert (report.messages, report.wrongOffsets) == (370, 1)
    assert set(served_from(tmp_path / "new").values()) == {1}
    assert offsets_of(tmp_path / "new")[identity(pair[1].record)] == pair[1].record.queue_offset


def test_records_that_contradict_each_other_are_both_kept(node: Node, tmp_path: Path) -> None:
    pair = in_both(node)[11]
    overwrite(node, pair[1], 16, b"\0\0\0\7")  # the flag
    report = salvage(node, tmp_path / "new")
    assert (report.messages, report.contradictions) == (370, 2)
    assert [copy.contradicting for copy in report.copies] == [1, 1]
    manifest = json.loads((tmp_path / "new" / "lost+found" / "manifest.json").read_text())
    kept = {(tmp_path / "new" / row["copy"]).read_bytes(): row["reason"] for row in manifest["ranges"]}
    other = bytearray(pair[1].raw)
    other[16:20] = b"\0\0\0\7"
    assert kept == {
        pair[0].raw: f"copies contradict each other: this is the record of {node.store}",
        bytes(other): f"copies contradict each other: this is the record of {node.store / 'tiered'}",
    }
    assert served_from(tmp_path / "new")[identity(pair[0].record)] == 1


@pytest.mark.parametrize("entries", [[0], [5], [12], [3, 4, 5], [0, 12]])
def test_entries_of_the_tier_that_lead_nowhere(entries: list[int], node: Node, tmp_path: Path) -> None:
    """The messages are in the tier's log all the same."""
    tier = Tier.of(layout_of(node))
    assert tier is not None
    path = Path(tier.queues["History", 0].units[0].path)
    data = bytearray(path.read_bytes())
    for entry in entries:
        data[entry * CQ_ENTRY.size : (entry + 1) * CQ_ENTRY.size] = b"\x55" * CQ_ENTRY.size
    path.write_bytes(data)
    report = salvage(node, tmp_path / "new")
    assert (report.messages, report.lostRangeCount) == (370, 0)
    assert set(served_from(tmp_path / "new").values()) == {1}


def test_the_tier_of_another_copy(whole: Node, tmp_path: Path) -> None:
    """A slave without a tier, and a master whose log is almost gone."""
    master, slave = copy_of(whole, tmp_path, "master"), copy_of(whole, tmp_path, "slave")
    shutil.rmtree(slave.store / "tiered")
    shutil.rmtree(slave.store / "tiered_index_file")
    for path in (slave.store / "config").glob("tieredStore*"):
        path.unlink()
    slave.conf.write_text("".join(line for line in slave.conf.read_text().splitlines(True) if "iered" not in line))
    sorted((master.store / "commitlog").iterdir())[-1].unlink()
    ranked = rank_copies([layout_of(master), layout_of(slave)], never)
    report = Salvage(ranked[0], str(tmp_path / "new"), others=ranked[1:]).run()
    assert report.messages == 370
    assert [copy.store for copy in report.copies][-1] == str(master.store / "tiered")
    assert set(served_from(tmp_path / "new").values()) == {1}
    assert report.lostRangeCount == 0


# -- random damage ----------------------------------------------------------------------------------------------------

_SAME_RECORD = (*copies.VERBS[:6], copies.lose_file)


@by_turns(7)
@pytest.mark.parametrize("seed", range(some(24, 200)))
def test_random_damage_of_log_and_tier(seed: int, whole: Node, tmp_path: Path) -> None:
    """A program compares every record with the bytes left of it in both."""
    rng, node = Random(seed), copy_of(whole, tmp_path)
    log, tiered = pieces_of(node)
    done = []
    for pieces in (log, tiered):
        for _ in range(rng.randint(1, 3)):
            left = [piece for piece in pieces if (node.store / piece.file).exists()]
            done.append(rng.choice(_SAME_RECORD)(rng, node.store, left))
    if rng.random() < 0.3:
        units = [path for path in (node.store / "tiered").rglob("CONSUME_QUEUE/*") if path.stat().st_size > 100]
        path = rng.choice(units)
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data) - 40)
        data[at : at + 40] = rng.randbytes(40)
        path.write_bytes(data)
        done.append(f"entries at {at} of {path}")
    everything = [*log, *tiered]
    here = copies._whole(node.store, everything)
    wanted = {identity(everything[number].record) for number in here}
    sent = {identity(piece.record)[2] for piece in everything}
    salvage(node, tmp_path / "new")
    found = served_from(tmp_path / "new")
    kept = set(copies._kept(tmp_path / "new"))
    alone = {identity(piece.record) for piece in everything if piece.raw in kept}  # two copies, and no third to decide
    assert wanted - found.keys() - alone == set(), done
    assert [key for key, number in found.items() if number > 1] == [], done
    assert {key[2] for key in found} <= sent, done


def test_a_file_of_messages_has_what_the_tier_has(node: Node, tmp_path: Path) -> None:
    """``--to``: the log lost its last file and two messages in the first one; then all of it."""
    files = sorted((node.store / "commitlog").iterdir())
    files[-1].unlink()
    data = bytearray(files[0].read_bytes())
    data[3000:3500] = bytes(500)
    files[0].write_bytes(data)
    report = salvage(node, tmp_path / "new")
    for form in ("ndjson", "parquet"):
        out = tmp_path / form
        result = rmqtool("salvage", node.store, out, "--to", form, *node.options(), "-o", "json")
        assert (json.loads(result.out)["messages"], report.messages) == (370, 370)
        assert json.loads(result.out)["notTaken"] == []
    lines = [json.loads(line) for line in (tmp_path / "ndjson").read_text().splitlines()]
    assert len({(line["topic"], line["queueId"], line["queueOffset"], line["msgId"]) for line in lines}) == 370
    for file in files[:-1]:
        file.unlink()
    tier = Tier.of(layout_of(node))
    assert tier is not None
    tiered = sum(queue.max_offset - queue.min_offset for queue in tier.queues.values())
    assert salvage(node, tmp_path / "of the tier alone").messages == tiered == 348
    result = rmqtool("salvage", node.store, tmp_path / "alone", "--to", "ndjson", *node.options())
    assert (result.code, len((tmp_path / "alone").read_text().splitlines())) == (0, 348)
