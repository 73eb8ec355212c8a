"""Queues and index built only from the log equal those written by the real engine."""

import shutil
from pathlib import Path

import pytest

from rmqtool.errors import CorruptFile, Refused
from rmqtool.rules.releases import RELEASES
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import check_store, flip, write
from tests.store.helpers import conf_of, content, entries_of, tree

CASES = ["clean", "broker", "delay", "ipv6", "large-bodies", "lmq"]


def part_of(store: Path, part: str) -> dict[str, str]:
    return {name: digest for name, digest in content(store).items() if name.startswith(part)}


@by_turns(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_rebuilt_files_are_the_engines(case: str, part: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = content(store)
    report = rebuild(StoreLayout(str(store), conf_of(case)), (part,))
    assert report.applied
    assert len(part_of(store, part)) > 0
    assert content(store) == before
    assert plan(StoreLayout(str(store), conf_of(case))).actions == []


@pytest.mark.parametrize("case", [case for case in CASES if case != "lmq"])
@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_lost_files_come_back(case: str, part: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    expected = part_of(store, part)
    shutil.rmtree(store / part)
    rebuild(StoreLayout(str(store), conf_of(case)), (part,))
    assert part_of(store, part) == expected


def test_one_broken_queue(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    before = content(store)
    queue = next((store / "consumequeue" / "TopicA" / "1").iterdir())
    queue.write_bytes(bytes(queue.stat().st_size))
    rebuild(StoreLayout(str(store)), ("consumequeue",))
    assert content(store) == before


def test_queues_with_an_expired_head(golden_copy: Unpacked) -> None:
    from rmqtool.store.recovery.command import recover

    store = golden_copy("head-file-deleted")
    conf = conf_of("head-file-deleted")
    recover(StoreLayout(str(store), conf))
    entries = entries_of(StoreLayout(str(store), conf))
    rebuild(StoreLayout(str(store), conf), ("consumequeue", "index", "checkpoint"))
    assert entries_of(StoreLayout(str(store), conf)) == entries
    assert plan(StoreLayout(str(store), conf)).actions == []


def test_a_dry_run_and_an_undo(golden_copy: Unpacked) -> None:
    store = golden_copy("delay")
    before = tree(store)
    layout = StoreLayout(str(store), conf_of("delay"))
    planned = rebuild(layout, ("consumequeue", "index", "checkpoint"), dry_run=True)
    assert not planned.applied
    assert tree(store.parent) == {f"store/{name}": value for name, value in before.items()}
    done = rebuild(layout, ("consumequeue", "index", "checkpoint"))
    assert [a for a in done.actions if "index/" not in a] == [a for a in planned.actions if "index/" not in a]
    undo(str(store))
    assert tree(store) == before


def test_a_log_that_lacks_a_message_of_a_queue_moves_no_entries(golden_copy: Unpacked) -> None:
    """Dispatch would place all later entries of that queue one too low."""
    store = golden_copy("clean")
    layout = StoreLayout(str(store))
    victim = [i for i in CommitLog(layout).walk() if isinstance(i, LocatedRecord)][250]
    with open(victim.file.path, "r+b") as file:
        file.seek(victim.at + 12)
        file.write((77).to_bytes(4, "big"))  # its queue id
    before = tree(store)
    with pytest.raises(CorruptFile, match=r"\d+ messages do not follow the one before: salvage renumbers"):
        rebuild(StoreLayout(str(store)), ("consumequeue",))
    assert tree(store) == before
    rebuild(StoreLayout(str(store)), ("index",))
    assert part_of(store, "index")


def test_a_record_that_says_another_position_is_not_dispatched(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    with open(store / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(2867 + 28)
        log.write((5).to_bytes(8, "big"))
    before = tree(store)
    for part in ("consumequeue", "index"):
        with pytest.raises(CorruptFile, match="byte 2867: a record that states another position"):
            rebuild(StoreLayout(str(store)), (part,))
    assert tree(store) == before


def test_the_index_is_built_past_damage_and_wrong_bodies(golden_copy: Unpacked) -> None:
    """It numbers nothing, so damage shifts nothing; queues are built only past wrong bodies."""
    store = golden_copy("clean")
    for path in (store / "index").iterdir():
        path.unlink()
    flip(store / "commitlog" / f"{0:020d}", 24198 + 100)
    layout = StoreLayout(str(store), conf_of("clean"))
    report = rebuild(layout, ("consumequeue", "index"))
    assert (report.messages, report.warnings) == (
        500,
        ["1 message has a body that does not match its checksum (see check)"],
    )
    assert {f.code for f in check_store(layout)} == {"log-crc"}
    write(store / "commitlog" / f"{0:020d}", 2867, b"\1\2\3\4")
    with pytest.raises(CorruptFile, match="byte 2867"):
        rebuild(layout, ("consumequeue",))
    report = rebuild(layout, ("index", "checkpoint"))
    assert report.messages == 499
    assert "hold no message and were skipped" in report.warnings[1]
    assert {f.code for f in check_store(layout)} == {"log-crc", "log-damage", "cq-no-message"}


def test_queues_are_not_emptied_where_the_log_is_not_there(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    (store / "commitlog").rename(store / "elsewhere")
    (store / "commitlog").mkdir()
    before = tree(store)
    for parts in (("consumequeue",), ("index",), ("checkpoint",)):
        with pytest.raises(Refused, match="is its disk mounted"):
            rebuild(StoreLayout(str(store)), parts)
    assert tree(store) == before


def test_queues_of_expired_messages_do_not_ask_for_a_log(golden_copy: Unpacked) -> None:
    """All of the log's messages are lost, and its first ones had expired before."""
    store = golden_copy("compaction-5.3.3")
    layout = StoreLayout(str(store), conf_of("compaction-5.3.3"))
    first = CommitLog(layout).segments.files[0]
    assert first.base > 0
    write(Path(first.path), 4, bytes(4))
    recover(layout, release=RELEASES["5.3"], exactly=True)
    left = StoreLayout(str(store), conf_of("compaction-5.3.3"))
    assert any(finding.code == "index-ghost" for finding in check_store(left))
    rebuild(left, ("index",))
    assert not [finding for finding in check_store(left) if finding.code.startswith("index")]


def test_a_damaged_or_unclean_store_is_refused(golden_copy: Unpacked) -> None:
    torn = golden_copy("clean-exit-torn-last-record")
    before = tree(torn)
    with pytest.raises(CorruptFile, match="recover cuts the log here"):
        rebuild(StoreLayout(str(torn)), ("consumequeue",))
    assert tree(torn) == before
    assert not Path(f"{torn}.rmqtool").exists()
    with pytest.raises(Refused, match=r"run rmqtool recover .*crash.* first"):
        rebuild(StoreLayout(str(golden_copy("crash"))), ("index",))
    (torn / "commitlog" / "00000000000000049152").unlink()
    with pytest.raises(CorruptFile, match="of a wrong length"):
        rebuild(StoreLayout(str(torn)), ("index",))
