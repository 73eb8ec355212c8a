"""Set consumer offsets: first plan, with the range of each queue; then write, under the broker's lock.

Source: broker.offset.ConsumerOffsetManager, tools ResetOffsetByTimeCommand and CloneGroupOffsetCommand.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from formats.topics import RETRY_PREFIX
from rmqtool.contract import PlainRow
from rmqtool.errors import BadValue, CorruptFile, Refused, UnreadableStore
from rmqtool.rules.sending import Rejected, check_group
from rmqtool.services.lookup.configs import Warn, topics_of
from rmqtool.services.lookup.query_time import offset_by_time
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.offsets.files import Key, OffsetFile
from rmqtool.store.changes.places import Places, named_outside
from rmqtool.store.changes.writing import changing, hold_to_plan, pending_runs
from rmqtool.store.disk.directories import read_small
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue
from rmqtool.store.roles.table import heed
from rmqtool.store.tier.tier import Tier
from rmqtool.words import counted


class OffsetTarget(NamedTuple):
    """Where to move offsets."""

    kind: str  # earliest, latest, time, offset or shift
    value: int = 0  # ms since the epoch, an offset, or how far to move


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove(PlainRow):
    """One offset to set, with the range of its queue."""

    group: str
    topic: str
    queueId: int
    consumerOffset: int | None  # before; None if the group has none
    newOffset: int
    change: int | None
    minOffset: int
    brokerOffset: int
    note: str | None = None

    @property
    def key(self) -> Key:
        """As offset files have it."""
        return self.topic, self.group, self.queueId


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPlan:
    """Offsets to set, or that were set."""

    store: str
    file: str | None  # null of a live cluster
    moves: list[OffsetMove]
    warnings: list[str] = field(default_factory=list)
    applied: bool = False
    backup: str | None = None

    @property
    def changes(self) -> dict[Key, int]:
        """The moves that change something."""
        return {move.key: move.newOffset for move in self.moves if move.newOffset != move.consumerOffset}

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


def effect_of(moves: Iterable[OffsetMove]) -> str | None:
    """How many messages will be consumed again or skipped; None where none is."""
    steps = [move.newOffset - move.consumerOffset for move in moves if move.consumerOffset is not None]
    again, skipped = -sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
    effects = [f"{counted(again, 'message is', 'messages are')} consumed again"] * bool(again) + [
        f"{counted(skipped, 'is', 'are')} skipped"
    ] * bool(skipped)
    return ", ".join(effects).capitalize() or None


LAST = "lastMessage"
"""Column of the fingerprint of the message before an offset, which proves that the queue is still the same."""
BROKER = "brokerName"
"""Column of the broker that a row is about, in files of live clusters."""
_COLUMNS = tuple(field.name for field in fields(OffsetMove))  # of a plan, and of a list of offsets

Opener = Callable[[StoreLayout, Warn], OffsetFile]
Planner = Callable[["QueueRanges", OffsetFile], list[OffsetMove]]


def plan_move(
    key: Key, before: int | None, wanted: int, low: int, high: int, *, clamp: bool, where: str = ""
) -> OffsetMove:
    """One row of the plan.

    Args:
        before: the offset that the group has, if any.
        wanted: the offset to set.
        low, high: the range of the queue.
        clamp: move an offset outside that range to the nearest end instead of refusing it.
        where: what the reason for refusing it begins with.

    Raises:
        Refused: it is out of the queue's range.
    """
    topic, group, queue_id = key
    offset = min(max(wanted, low), high)
    if offset != wanted and not clamp:
        raise Refused(
            f"{where}{topic} queue {queue_id}: offset {wanted} is outside {low} to {high}, where the queue's messages "
            "are (--clamp takes the nearest)"
        )
    return OffsetMove(
        group=group,
        topic=topic,
        queueId=queue_id,
        consumerOffset=before,
        newOffset=offset,
        change=offset - before if before is not None else None,
        minOffset=low,
        brokerOffset=high,
        note=f"{wanted} is outside the queue" if offset != wanted else None,
    )


class QueueRanges:
    """The ranges of queues, within which offsets must be.

    Args:
        clamp: move an offset outside its range to the nearest end instead of refusing it.
    """

    def __init__(self, layout: StoreLayout, *, clamp: bool) -> None:
        self.log, self.clamp = CommitLog(layout), clamp
        self.tier = Tier.of(layout)
        self._queues = TopicQueues(layout)
        self._topics = topics_of(layout, lambda _text: None)

    def why_not(self, topic: str, queue_id: int) -> tuple[str, str] | None:
        """(column, reason) why no broker can have this queue, or None."""
        on_disk = self.ids(topic)
        config = self._topics.topics.get(topic) if self._topics is not None else None
        if config is None and not on_disk:
            return "topic", f"{topic!r} is not a topic of this store"
        configured = max(config.read_queue_nums, config.write_queue_nums) if config is not None else 0
        if queue_id not in on_disk and queue_id >= configured:
            return "queueId", f"topic {topic} has no queue {queue_id}"
        return None

    def ids(self, topic: str) -> set[int]:
        """Queues that a topic has on disk."""
        return {queue.queue_id for queue in self._queues.every(topic)}

    def offset_by_time(self, queue: AnyQueue, low: int, timestamp: int) -> int:
        """The first queue offset at or after a time. Messages only in the tier come before the local ones.

        Args:
            low: the lowest offset that consumers can read.

        Raises:
            Refused: the offset is in the tier, and the tier's files are not available.
        """
        local = queue.min_offset(self.log.min_offset)
        if self.tier is not None and low < local:
            if self.tier.folder is None:
                raise Refused(
                    f"{queue.topic} queue {queue.queue_id}: the times of offsets {low} to {local} are in the tier, "
                    "whose files are not here (tieredStoreFilePath): give an offset"
                )
            at = self.tier.offset_by_time(queue.topic, queue.queue_id, local, timestamp)
            if at is not None:
                return at
        return offset_by_time(self.log, queue, timestamp)

    def move(self, key: Key, before: int | None, new: Callable[[AnyQueue | None, int, int], int]) -> OffsetMove:
        """One row of the plan.

        Args:
            new: the offset for (queue, lowest offset, highest offset); the lowest is the tier's where there is one.

        Raises:
            Refused: it is out of the queue's range.
        """
        topic, _group, queue_id = key
        queue = self._queues.either(topic, queue_id)
        low = queue.min_offset(self.log.min_offset) if queue is not None else 0
        high = queue.max_offset if queue is not None else 0
        if self.tier is not None and high:
            low = self.tier.begin(topic, queue_id, low)
        return plan_move(key, before, new(queue, low, high), low, high, clamp=self.clamp)


def reset(group: str, topics: list[str] | None, queue_ids: list[int] | None, target: OffsetTarget) -> Planner:
    """Plan to move a group's offsets.

    Args:
        topics: globs over the topics that the group has offsets in, or names of others that have queues; None for all
            that it has offsets in, its retry topic aside.
    """

    def plan(queues: QueueRanges, file: OffsetFile) -> list[OffsetMove]:
        _check_group(group, file)
        own = {topic for topic, owner, _queue in file.offsets if owner == group}
        chosen = own - {RETRY_PREFIX + group}
        if topics:
            chosen = {topic for topic in own if any(fnmatchcase(topic, glob) for glob in topics)}
            chosen |= {topic for topic in topics if queues.ids(topic)}
        moves = []
        for topic in sorted(chosen):
            ids = {n for t, owner, n in file.offsets if (t, owner) == (topic, group)} | queues.ids(topic)
            for number in sorted(ids if not queue_ids else ids.intersection(queue_ids)):
                before = file.offsets.get((topic, group, number))
                new = _new_offset(queues, target, before)
                moves.append(queues.move((topic, group, number), before, new))
        return moves

    return plan


def _new_offset(
    queues: QueueRanges, target: OffsetTarget, before: int | None
) -> Callable[[AnyQueue | None, int, int], int]:
    def new(queue: AnyQueue | None, low: int, high: int) -> int:
        if target.kind == "earliest":
            return low
        if target.kind == "latest":
            return high
        if target.kind == "offset":
            return target.value
        if target.kind == "shift":
            return (before or 0) + target.value
        return queues.offset_by_time(queue, low, target.value) if queue is not None else 0

    return new


def clone(
    source: str, group: str, topics: list[str] | None, origin: Callable[[], Mapping[Key, int]] | None = None
) -> Planner:
    """Plan to give a group the offsets of another, except for its retry topic.

    Args:
        origin: gives the offsets of the other group; None to read the file that is written.
    """

    def plan(queues: QueueRanges, file: OffsetFile) -> list[OffsetMove]:
        _check_group(group, file)
        moves = []
        for (topic, owner, number), offset in sorted((origin() if origin is not None else file.offsets).items()):
            if owner != source or topic == RETRY_PREFIX + source:
                continue
            if not topics or any(fnmatchcase(topic, glob) for glob in topics):
                key = (topic, group, number)
                moves.append(queues.move(key, file.offsets.get(key), lambda _q, _low, _high, at=offset: at))  # type: ignore[misc]
        return moves

    return plan


class PlanRow(NamedTuple):
    """One row of a CSV plan."""

    key: Key
    offset: int
    before: int | None  # the offset on which the plan was based; None if the file does not say
    line: int = 0  # of the file
    last: int | None = None  # fingerprint of the message before the offset; None if the file does not say
    broker: str | None = None  # None if the file does not say


def from_rows(group: str, rows: Iterable[PlanRow]) -> Planner:
    """Plan the offsets in a file.

    Raises:
        BadValue: a row of another group, or an invalid group.
        Refused: an offset has moved since the file was made, or there is no such queue.
    """

    def plan(queues: QueueRanges, file: OffsetFile) -> list[OffsetMove]:
        _check_group(group, file)
        moves = []
        for key, offset, before, line, _last, _broker in rows:
            row = f"line {line}: " if line else ""
            if key[1] != group:
                raise BadValue(f"{row}column group: {key[0]} queue {key[2]}: of group {key[1]!r}, not {group}")
            if key not in file.offsets and (why := queues.why_not(key[0], key[2])) is not None:
                raise Refused(f"{row}column {why[0]}: {why[1]}")
            if key[2] and file.one_offset(group):
                raise Refused(
                    f"{row}column queueId: a broker keeps one offset of an LMQ group in a topic, as of queue 0"
                )
            now = file.offsets.get(key)
            if before is not None and now != before:
                text = f"{key[0]} queue {key[2]}: is at {now} now, not at {before} as in the plan: make a new plan"
                raise Refused(row + text)
            moves.append(queues.move(key, now, lambda _q, _low, _high, at=offset: at))  # type: ignore[misc]
        return moves

    return plan


def read_rows(path: str, *, brokers: bool = False) -> list[PlanRow]:
    """The rows of a CSV file as ``group reset`` and ``group offsets`` print it: ``newOffset``, else ``consumerOffset``.

    Args:
        brokers: of several brokers, which may have the same queues.

    Raises:
        UnreadableStore: there is no such file.
        CorruptFile: it is not such a file.
    """
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise CorruptFile(path, err.start, "not UTF-8") from err
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        return list(_rows(table, brokers=brokers))
    except (ValueError, csv.Error) as err:
        raise CorruptFile(path, None, f"line {table.line_num}: {err}") from err


def _rows(table: "csv.DictReader[str]", *, brokers: bool) -> Iterator[PlanRow]:
    names = table.fieldnames or ()
    if missing := {"group", "topic", "queueId"}.difference(names):
        raise ValueError(f"no column {' or '.join(sorted(missing))}")
    column = "newOffset" if "newOffset" in names else "consumerOffset"
    if column not in names:
        raise ValueError("no column newOffset or consumerOffset")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"column {twice[0]!r} is there twice")
    if unknown := [name for name in names if name not in (*_COLUMNS, LAST, BROKER)]:
        raise ValueError(f"column {unknown[0]!r} is not known: {', '.join(_COLUMNS)} are")
    lines: dict[tuple[Key, str | None], int] = {}
    for row in table:
        if None in row or None in row.values():
            raise ValueError(f"{'more' if None in row else 'fewer'} cells than columns")
        before = row.get("consumerOffset") if column == "newOffset" else None
        key = (row["topic"], row["group"], _number("queueId", row["queueId"], 31))
        broker = row.get(BROKER) or None
        place = (key, broker if brokers else None)
        if place in lines:
            line = lines[place]
            raise ValueError(f"topic {key[0]!r} queue {key[2]} of group {key[1]!r} is in line {line} already")
        lines[place] = table.line_num
        number = _number(column, row[column], 63)
        last = _number(LAST, row[LAST], 32) if row.get(LAST) else None
        known = _number("consumerOffset", before, 63) if before else None
        yield PlanRow(key, number, known, table.line_num, last, broker)


def _number(column: str, text: str | None, bits: int) -> int:
    number = (text or "").strip()
    if not (number.isascii() and number.isdigit()) or len(number) > 19 or int(number) >= 1 << bits:
        raise ValueError(f"column {column}: {text!r} is not an offset or queue id")
    return int(number)


def _check_group(group: str, file: OffsetFile) -> None:
    """Refuse an invalid group; one that a broker has stored may have any name.

    Raises:
        BadValue: with the broker's reason.
    """
    if "@" not in group and any(owner == group for _topic, owner, _queue in file.offsets):
        return
    try:
        check_group(group)
    except Rejected as err:
        raise BadValue(f"group {group[:80]!r}: {err}") from err


def make(layout: StoreLayout, opener: Opener, planner: Planner, *, clamp: bool = False) -> OffsetPlan:
    """Make a plan for the store as it is now; nothing is written."""
    warnings: list[str] = []
    file = opener(layout, warnings.append)
    moves = planner(QueueRanges(layout, clamp=clamp), file)
    for pending in pending_runs(Places.of(layout, named_outside([file.path]))):
        warnings += [pending.action(), *pending.warnings(layout.root)]
    kept = [move for move in moves if not move.queueId or not file.one_offset(move.group)]
    if len(kept) < len(moves):
        left = f"{len(moves) - len(kept)} of {len(moves)} queues are left out"
        warnings.append(f"{file.path}: a broker keeps one offset of an LMQ group in a topic, as of queue 0: {left}")
        moves = kept
    return OffsetPlan(store=layout.root, file=file.path, moves=moves, warnings=warnings)


def _steps(plan: OffsetPlan) -> list[tuple[Key, int | None, int]]:
    """The moves that change something: key, offset before and after."""
    return [
        (move.key, move.consumerOffset, move.newOffset) for move in plan.moves if move.newOffset != move.consumerOffset
    ]


def apply(
    layout: StoreLayout,
    opener: Opener,
    planner: Planner,
    *,
    command: str,
    clamp: bool = False,
    backup: str | None = None,
    shown: OffsetPlan | None = None,
) -> OffsetPlan:
    """Plan once more under the broker's lock and carry it out; the old file becomes ``.bak``.

    If nothing changes, nothing is written. A killed run is finished first; if it was of the same command, nothing more
    is done, as its offsets must not be moved twice.

    Args:
        shown: a plan that was confirmed; setting other offsets is refused.

    Raises:
        Refused: the store is in use, was not stopped cleanly, there is no place for the backup, or the plan has
            changed.
    """
    heed(layout, command.replace("-", " "))
    if layout.aborted:
        first = layout.command("recover")
        raise Refused(f"{layout.root}: was not stopped cleanly, its queues may change: run {first} first")
    named = named_outside([opener(layout, lambda _text: None).path])
    if not pending_runs(Places.of(layout, named), backup):
        plan = make(layout, opener, planner, clamp=clamp)
        if not plan.changes:
            return plan
    with changing(layout, command, backup, named=named) as change:
        if change.finished is not None and change.finished[1] == command:
            folder = change.finished[0]
            done = f"finished the interrupted run in {folder}; nothing else was done"
            path = opener(layout, lambda _text: None).path
            return OffsetPlan(store=layout.root, file=path, moves=[], warnings=[done], applied=True, backup=folder)
        layout = StoreLayout(layout.root, layout.conf)
        plan = make(layout, opener, planner, clamp=clamp)
        if not plan.changes:
            return plan
        hold_to_plan(layout.root, shown and _steps(shown), _steps(plan))
        file = opener(layout, lambda _text: None)
        if file.previous is not None:
            change.put_content(file.path + ".bak", file.previous)
        change.put_content(file.path, file.build(plan.changes))
        kept = change.path
        change.commit()
    return replace(plan, applied=True, backup=kept)
