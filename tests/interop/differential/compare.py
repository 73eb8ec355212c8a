"""Compare the engine's state of its copy with our report and with our recovered store."""

import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from formats import checkpoint
from formats.message.read import Record
from formats.queues.consume import is_valid
from rmqtool.store.disk.segments import Segment
from rmqtool.store.index.reader import BadIndex, open_index, physical_offsets
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.reader import SCANNED_FILES, ConsumeQueue, QueueEntry
from rmqtool.store.recovery.report import RecoveryReport, StoreState
from tests import damage
from tests.interop.differential.case import Case

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
BOGUS = "a first unit that is none, and that the engine shows"

Row = tuple[str, int, int, int, int, int]
QueueKey = tuple[str, int]


def hangs(report: RecoveryReport) -> bool:
    """Whether we predict that the engine hangs."""
    return any("hangs here at its start" in warning for warning in report.warnings)


def excused(damaged: Path, seen: dict[str, Any], report: RecoveryReport) -> str | None:
    """Why the engine's behaviour cannot be compared; reasons are as narrow as possible."""
    error = seen.get("error", "")
    if giant_sizes(damaged) and ("OutOfMemoryError" in error or "hangs" in error):
        # It allocates what a record claims as its size, and an Error is caught nowhere: load() dies of it, or the
        # dispatch thread does and start() waits for it for ever.
        return "a size field beyond the engine's memory"
    if any("no queue directory can be named after" in warning for warning in report.warnings):
        # A '/' in a damaged topic makes the engine write outside of the queue's directory, where it finds nothing at
        # its next start; a NUL makes it try for 30 s and then give up all queues.
        return "a topic that no directory can be named after"
    return None


def displaced(layout: StoreLayout) -> bool:
    """Whether a record in the log states a wrong position."""
    found = (item for item in CommitLog(layout).walk(crc=False) if isinstance(item, LocatedRecord))
    return any(item.record.physical_offset != item.physical_offset for item in found)


def giant_sizes(store: Path) -> bool:
    """Whether an apparent record claims more bytes than the judge's JVM has."""
    pattern = re.compile(rb"(.{4})\xda\xa3\x20\xa7", re.DOTALL)
    return any(
        struct.unpack(">i", match[1])[0] > 200 << 20
        for path in damage.log_files(store)
        for match in pattern.finditer(path.read_bytes())
    )


def compare(case: Case, report: RecoveryReport, seen: dict[str, Any], judged: Path, mine: Path) -> None:
    """Compare the engine's session with our report, and with our recovered store."""
    if "loadOk" not in seen:
        case.problems.append(f"the engine says nothing: {seen}")
        return
    case.same("loadOk", report.loadOk, seen["loadOk"])
    if not report.loadOk or not seen["loadOk"]:
        compare_state(case, "afterLoad", report.afterLoad, seen["afterLoad"], queues=False)
        return
    compare_state(case, "afterLoad", report.afterLoad, seen["afterLoad"])
    case.same("hang at start", hangs(report), "hangs" in seen.get("error", ""))
    if "error" in seen:
        if "hangs" not in seen["error"]:
            case.problems.append(seen["error"])
        return
    assert report.afterStart is not None
    compare_state(case, "afterStart", report.afterStart, seen["afterStart"])
    layout = StoreLayout(str(mine), case.base.conf)
    case.same("entries", entries(case, layout, report.afterStart), engine_entries(seen))
    compare_queries(case, layout, seen, unchanged=not report.actions)
    if case.engine != "4.9" and any(action.endswith(" checkpoint") for action in report.actions):
        fields = [checkpoint.parse((store / "checkpoint").read_bytes())[3:5] for store in (mine, judged)]
        case.same("offsets in the checkpoint", *fields)
    theirs = files(judged)
    # the engine keeps its abort file when a queue knows more of the log than there is (store-engine 1.6)
    if seen["dispatchBehind"] < 0:
        theirs = [row for row in theirs if row[0] != "abort"]
    # It leaves a last queue file that holds no entry, and makes one for a message that the queue has already. Its next
    # start may take the zeros there for an entry, and 5.3 refuses to load such a store, so we leave that file out.
    ours = files(mine)
    unwritten = {
        f"consumequeue/{q.topic}/{q.queueId}/{q.maxOffset * damage.UNIT:020d}" for q in report.afterStart.queues
    }
    if kept := {row for row in theirs if row[0] in unwritten and row[0][-20:].strip("0")} - set(ours):
        case.excepted.add("a last queue file without entries")
        theirs = [row for row in theirs if row not in kept]
    case.same("files", ours, theirs)


def compare_state(case: Case, what: str, mine: StoreState, theirs: dict[str, Any], *, queues: bool = True) -> None:
    """Compare the ends of the log and of all queues."""
    case.same(f"{what} minPhyOffset", mine.minPhyOffset, theirs["minPhyOffset"])
    case.same(f"{what} maxPhyOffset", mine.maxPhyOffset, theirs["maxPhyOffset"])
    if queues:
        case.same(
            f"{what} queues",
            {(q.topic, q.queueId): (q.minOffset, q.maxOffset) for q in mine.queues if is_listed(q.topic, q.maxOffset)},
            engine_queues(theirs),
        )


def is_listed(topic: str, max_offset: int) -> bool:
    """The queues of our report, plus those of all delay levels: the engine's schedule service creates them in
    memory.
    """
    return topic != SCHEDULE or max_offset > 0


def engine_queues(state: dict[str, Any]) -> dict[QueueKey, tuple[int, int]]:
    """(min, max) of each queue."""
    return {
        (q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"])
        for q in state["queues"]
        if is_listed(q["topic"], q["maxOffset"])
    }


def entries(case: Case, layout: StoreLayout, state: StoreState) -> list[Row]:
    """Entries of our store on disk, from the lowest to the highest offset in the report."""
    rows = []
    for reported in state.queues:
        queue = ConsumeQueue(layout, reported.topic, reported.queueId)
        numbers = range(reported.minOffset, reported.maxOffset)
        mine = [(queue.topic, queue.queue_id, *entry[:4]) for n in numbers if (entry := queue.entry(n))]
        checked = queue.segments.files[-SCANNED_FILES:]
        number = next((n for n in range(first_of(checked), reported.maxOffset) if not valid(queue.entry(n))), None)
        if number is None:
            read = [(queue.topic, queue.queue_id, *entry[:4]) for entry in queue.entries(reported.minOffset)]
            case.same(f"entries as they are read of {queue}", read, mine)
        elif number == first_of(checked[-1:]):
            # The engine keeps the first unit of a last file whatever it holds, in memory only; a reader that follows
            # its recovery of queues does not see it (store-engine 4.6, row K).
            case.excepted.add(BOGUS)
        else:
            # The last file went, by the engine's rules; so now the last three include one that was not checked before.
            case.excepted.add("a zero unit in an older queue file")
        rows += mine
    return sorted(rows)


def first_of(segments: list[Segment]) -> int:
    """Queue offset of the first unit of the first file."""
    return segments[0].base // damage.UNIT if segments else 0


def valid(entry: QueueEntry | None) -> bool:
    """Whether the engine accepts it as an entry; a missing file does not end a queue either."""
    return entry is None or is_valid(entry.physical_offset, entry.size)


def engine_entries(seen: dict[str, Any]) -> list[Row]:
    """Visible entries as listed by the engine."""
    names = ("cqTopic", "cqQueueId", "cqOffset", "cqPhysicalOffset", "cqSize", "cqTagsCode")
    return sorted(tuple(row[name] for name in names) for row in seen["messages"])


def compare_queries(case: Case, layout: StoreLayout, seen: dict[str, Any], *, unchanged: bool) -> None:
    """Compare key queries. The engine returns records unchecked, with the positions that they state.

    If a message without a queue entry ends the log, such as a half message, each start of 5.x adds its keys to the
    index again. That alone is no reason for rmqtool to change a store.

    Args:
        unchanged: whether rmqtool had nothing to do.
    """
    found = list(open_index(layout))
    views = [view for view in found if not isinstance(view, BadIndex)]
    last = max((view.header.end_physical_offset for view in views), default=-1)
    log = CommitLog(layout)
    for row in seen["queries"]:
        if row["physicalOffsets"] is None:
            case.excepted.add("a query that the engine dies of, out of memory")
            continue
        hits = [log.read(o, crc=False) for o in physical_offsets(views, row["topic"], row["key"], limit=64)]
        mine = Counter(hit.record.physical_offset for hit in hits if hit and decodable(hit.record))
        theirs = Counter(row["physicalOffsets"])
        again = theirs[last] - mine[last]
        if unchanged and again > 0 and mine[last]:
            theirs[last] -= again
            case.excepted.add("keys of the last message, which each start adds to the index again")
        # what we cannot read it may still give out, so damaged as it is
        if mine - theirs or (theirs - mine).total() > sum(not hit or not decodable(hit.record) for hit in hits):
            case.same(f"query {row['topic']}#{row['key']}", sorted(mine.elements()), sorted(theirs.elements()))


def decodable(record: Record) -> bool:
    """Whether the engine's decoder accepts it. Except for damage, no message here is compressed, and ports are
    valid.
    """
    ports = record.born_port, record.store_port
    return not record.sys_flag & 1 and all(0 <= port <= 0xFFFF for port in ports)


def files(store: Path) -> list[tuple[str, int]]:
    """Name and size of files that recovery changes; names of index files are not comparable."""
    found = [("abort", 0)] if (store / "abort").exists() else []
    for part in ("commitlog", "consumequeue", "index"):
        paths = [path for path in (store / part).rglob("*") if path.is_file()]
        if part == "consumequeue":
            paths = [path for path in paths if path.parent != store / part]  # those are of a database
        found += [(part if part == "index" else str(p.relative_to(store)), p.stat().st_size) for p in paths]
    return sorted(found)
