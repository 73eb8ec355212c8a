"""The real engines of both versions start on stores that we recovered, salvaged, cut and rebuilt, and read
everything.
"""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import recover, truncate
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.store.salvage.carve import Salvage
from tests.amounts import by_turns
from tests.interop.engine import Engine, golden_config, golden_recovered, unpack_golden
from tests.store.helpers import conf_of, entries_of
from tests.store.test_old_queues import CONF, OLD, make_expired, zero_a_unit
from tests.store.test_whole_log import GAPPED, WHOLE, damaged
from tests.whole import make_bases

pytestmark = pytest.mark.interop

CASES = [
    "body-bit-flip-first-file-no-checkpoint",
    "broker-crash",
    "consumequeue-deleted-no-checkpoint",
    "head-file-deleted",
    "size-field-negative",
    "torn-last-record",
]


def opened(engine: Engine, store: Path, case: str) -> list[tuple[str, int, int, int, int, int]]:
    """Every queue entry read by the engine, each with a readable message."""
    answer = engine.open(store, golden_config(case))
    assert answer["loadOk"], answer
    return rows_of(answer)


def rows_of(answer: dict[str, Any]) -> list[tuple[str, int, int, int, int, int]]:
    """The entries in an engine's answer."""
    assert all(row["message"] is not None for row in answer["messages"])
    rows = (
        (r["cqTopic"], r["cqQueueId"], r["cqOffset"], r["cqPhysicalOffset"], r["cqSize"], r["cqTagsCode"])
        for r in answer["messages"]
    )
    return sorted(rows)


@by_turns(2)
@pytest.mark.parametrize("case", CASES)
def test_a_recovered_store(case: str, engine: Engine, tmp_path: Path) -> None:
    store = unpack_golden(case, tmp_path)
    assert golden_recovered(case) is not None
    recover(StoreLayout(str(store), conf_of(case)))
    ours = entries_of(StoreLayout(str(store), conf_of(case)))
    assert opened(engine, store, case) == ours


@by_turns(11)
@pytest.mark.parametrize("case", [*CASES, "broker", "lmq", "delay", "short-last-file"])
def test_a_salvaged_store(case: str, engine: Engine, tmp_path: Path) -> None:
    source = unpack_golden(case, tmp_path / "source")
    report = Salvage(StoreLayout(str(source), conf_of(case)), str(tmp_path / "new")).run()
    layout = StoreLayout(str(tmp_path / "new"), conf_of(case))
    records = [item.record for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    assert len(records) == report.messages
    ours = entries_of(layout)
    answer = opened(engine, tmp_path / "new", case)
    assert answer == ours
    by_queue = Counter((record.topic.decode(), record.queue_id) for record in records)
    assert {
        key: n for key, n in Counter(row[:2] for row in answer).items() if not key[0].startswith("%LMQ%")
    } == by_queue


@by_turns(2)
@pytest.mark.parametrize("case", ["clean", "broker", "ipv6"])
def test_a_truncated_store(case: str, engine: Engine, tmp_path: Path) -> None:
    store = unpack_golden(case, tmp_path)
    layout = StoreLayout(str(store), conf_of(case))
    offsets = [located.physical_offset for located in CommitLog(layout).walk()]
    cut = offsets[len(offsets) * 3 // 4]
    truncate(layout, cut)
    layout = StoreLayout(str(store), conf_of(case))
    ours = entries_of(layout)
    answer = engine.open(store, golden_config(case))
    assert answer["afterStart"]["maxPhyOffset"] == cut
    assert rows_of(answer) == ours
    assert (
        engine.write(store, [{"topic": "New", "body": b"x"}], golden_config(case))["results"][0]["wroteOffset"] == cut
    )


@pytest.mark.parametrize("case", ["clean", "broker"])
def test_a_rebuilt_store(case: str, engine: Engine, tmp_path: Path) -> None:
    store = unpack_golden(case, tmp_path)
    before = entries_of(StoreLayout(str(store), conf_of(case)))
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    (store / "checkpoint").unlink()
    rebuild(StoreLayout(str(store), conf_of(case)), ("consumequeue", "index", "checkpoint"))
    assert opened(engine, store, case) == before


def test_a_queue_whose_messages_have_expired_takes_new_ones(engine: Engine, tmp_path: Path) -> None:
    """Its end is one unit; after a filler unit 4.9 dispatches nothing, and 5.3 no message of this queue."""
    layout = make_expired(tmp_path / "store", engine.version[:3])
    zero_a_unit(tmp_path / "store")
    assert recover(StoreLayout(layout.root, CONF), release=RELEASES[engine.version[:3]]).applied
    answer = engine.write(tmp_path / "store", [{"topic": "Old", "body": b"new"}], CONF.values)
    assert [result["logicsOffset"] for result in answer["results"]] == [OLD]
    read = engine.open(tmp_path / "store", CONF.values, gets=[("Old", 0, OLD, 8)])
    rows = [row for row in read["messages"] if row["cqTopic"] == "Old" and row["cqOffset"] >= OLD]
    assert [row["message"] is not None for row in rows] == [True], read["getMessage"]


@by_turns(23)
@pytest.mark.parametrize("name", ["last without its second half", "last but one half", "second empty", "first empty"])
def test_a_log_whose_files_were_put_right(name: str, engine: Engine, tmp_path: Path) -> None:
    """It loads, serves every remaining message, and a second start changes nothing."""
    base = next(made_base for made_base in make_bases(tmp_path / "bases") if made_base.name == "clean-small")
    store = tmp_path / "store"
    left = damaged(base, store, (WHOLE | GAPPED)[name], abort=True)
    recover(StoreLayout(str(store), base.conf), release=RELEASES[engine.version[:3]])
    for _start in range(2):
        answer = engine.open(store, base.conf.values)
        assert answer["loadOk"], answer
        read = {_place(row["message"]) for row in answer["messages"] if row["message"] is not None}
        kept = (finding.split(b" ", 3) for finding in left)
        assert read == {(topic.decode(), int(queue), int(offset)) for topic, queue, offset, _body in kept}


def _place(message: dict[str, Any]) -> tuple[str, int, int]:
    return message["topic"], message["queueId"], message["queueOffset"]
