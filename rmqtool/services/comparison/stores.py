"""Compare two stores: logs, messages, queues, consumer offsets and settings, as uniform rows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from formats.config.files import kind_of
from rmqtool.contract import PlainRow, row_dict
from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.services.consumers.groups import compare
from rmqtool.services.lookup.configs import Warn, known_offsets, sort_offsets
from rmqtool.store.config.files import list_configs, raw_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.comparison import Differing, LogComparison, compare_logs
from rmqtool.store.queues.batch import AnyQueue, every_queue
from rmqtool.store.queues.reader import ConsumeQueue

OFFSETS = ("consumerOffset.json", "lmqConsumerOffset.json")
_VERSION = "dataVersion"  # a counter and a time, different in every broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(PlainRow):
    """One difference between two stores.

    Attributes:
        part: ``log``, ``record``, ``messages``, ``queue``, ``offset`` or ``config``.
        what: what differs: a name such as ``minOffset``, the differing fields of a record, or for messages
            ``onlyFirst``, ``onlySecond`` or ``different``.
        name: config file, and the path of a value in it.
        fromOffset, toOffset: queue offsets [from, to) of messages, or the physical offset of a record.
        messages: number of messages.
        first, second: the value in each store; None if it has none.
    """

    part: str
    what: str
    topic: str | None = None
    queueId: int | None = None
    group: str | None = None
    name: str | None = None
    fromOffset: int | None = None
    toOffset: int | None = None
    messages: int | None = None
    first: str | None = None
    second: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreComparison:
    """The comparison of two stores.

    Attributes:
        first, second: their paths.
        commonFrom, commonTo: physical offsets [from, to) with a common history.
        partedAt: physical offset at which the logs diverge although both continue.
        records: number of differing records, and of damaged places, in the common range.
        onlyFirst, onlySecond, different: number of messages outside it that only one store has, or that differ.
        damagedFirst, damagedSecond: number of damaged ranges, which are not compared.
        differences: all differences, in the order log, records, messages, queues, offsets, config.
    """

    first: str
    second: str
    commonFrom: int | None
    commonTo: int | None
    partedAt: int | None
    records: int
    onlyFirst: int
    onlySecond: int
    different: int
    damagedFirst: int
    damagedSecond: int
    differences: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether nothing differs and everything was compared."""
        return not self.differences and not self.damagedFirst and not self.damagedSecond

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**row_dict(self), "differences": [row.to_dict() for row in self.differences]}


def compare_stores(first: StoreLayout, second: StoreLayout, warn: Warn) -> StoreComparison:
    """Compare two stores, without changing them.

    Args:
        warn: called for each unreadable config file, which is not compared.
    """
    logs = CommitLog(first), CommitLog(second)
    compared = compare_logs(*logs)
    start, stop = compared.common or (None, None)
    return StoreComparison(
        first=first.root,
        second=second.root,
        commonFrom=start,
        commonTo=stop,
        partedAt=compared.parted_at,
        records=sum(not differing.is_other_message for differing in compared.differing),
        onlyFirst=compared.count("onlyFirst"),
        onlySecond=compared.count("onlySecond"),
        different=compared.count("different"),
        damagedFirst=compared.damaged[0],
        damagedSecond=compared.damaged[1],
        differences=[
            *_log_rows(*logs, compared),
            *_queue_rows(first, second, same_history=compared.common is not None and compared.parted_at is None),
            *offset_rows(first, second, warn),
            *config_rows(first, second, warn),
        ],
    )


def _text(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else str(value)


def _log_rows(first: CommitLog, second: CommitLog, compared: LogComparison) -> Iterator[Difference]:
    for what, this, other in (
        ("minOffset", first.min_offset, second.min_offset), ("writtenEnd", *compared.ends),
    ):  # fmt: skip
        if this != other:
            yield Difference(part="log", what=what, first=_text(this), second=_text(other))
    if compared.parted_at is not None:
        here, there = map(_describe, compared.there)
        yield Difference(part="log", what="partedAt", fromOffset=compared.parted_at, first=here, second=there)
    # other messages are among the runs
    yield from (_record_row(differing) for differing in compared.differing if not differing.is_other_message)
    for run in compared.runs:
        yield Difference(
            part="messages",
            what=run.kind,
            topic=run.topic.decode("utf-8", "replace"),
            queueId=run.queue_id,
            fromOffset=run.start,
            toOffset=run.stop,
            messages=run.stop - run.start,
        )


def _describe(item: LocatedRecord | Damage) -> str:
    if isinstance(item, Damage):
        return f"no record: {item.reason}"
    record = item.record
    topic = record.topic.decode("utf-8", "replace")
    return f"record of {record.total_size} bytes: {topic} queue {record.queue_id} offset {record.queue_offset}"


def _record_row(differing: Differing) -> Difference:
    sides = differing.first, differing.second
    located = next((side for side in sides if isinstance(side, LocatedRecord)), None)
    first, second = map(_describe, sides) if differing.is_damage else (None, None)
    return Difference(
        part="record",
        what=" ".join(differing.fields) or ("unreadable" if differing.is_damage else "entry"),
        topic=located.record.topic.decode("utf-8", "replace") if located is not None else None,
        queueId=located.record.queue_id if located is not None else None,
        fromOffset=(located if located is not None else differing.first).physical_offset,
        messages=1,
        first=first,
        second=second,
    )


# -- queues -----------------------------------------------------------------------------------------------------------


def _queue_rows(first: StoreLayout, second: StoreLayout, *, same_history: bool) -> Iterator[Difference]:
    """Differences in queue ends and, if the logs have a common history, the first differing entry."""
    queues = [{(queue.topic, queue.queue_id): queue for queue in every_queue(layout)} for layout in (first, second)]
    lows = [CommitLog(layout).min_offset for layout in (first, second)]
    for key in sorted({*queues[0], *queues[1]}):
        this, other = queues[0].get(key), queues[1].get(key)
        ends = [
            None if queue is None else (queue.min_offset(low), queue.max_offset)
            for queue, low in zip((this, other), lows, strict=True)
        ]
        for at, what in enumerate(("minOffset", "maxOffset")):
            values = [None if end is None else end[at] for end in ends]
            if values[0] != values[1]:
                yield _of_queue(key, what, first=_text(values[0]), second=_text(values[1]))
        if this is not None and other is not None and same_history:
            start = max(this.min_offset(lows[0]), other.min_offset(lows[1]))
            stop = min(this.max_offset, other.max_offset)
            if (at_offset := _first_other_entry(this, other, start, stop)) is not None:
                entries = [_text(queue.entry(at_offset)) for queue in (this, other)]
                yield _of_queue(key, "entry", fromOffset=at_offset, first=entries[0], second=entries[1])


def _of_queue(key: tuple[str, int], what: str, **values: Any) -> Difference:
    return Difference(part="queue", what=what, topic=key[0], queueId=key[1], **values)


def _first_other_entry(this: AnyQueue, other: AnyQueue, start: int, stop: int) -> int | None:
    """The first queue offset in [start, stop) at which two queues differ."""
    if isinstance(this, ConsumeQueue) and isinstance(other, ConsumeQueue):
        for low, units in this.runs(start, stop):
            for first, others in other.runs(low, low + len(units)):
                differ = (units[first - low : first - low + len(others)] != others).nonzero()[0]
                if len(differ):
                    return first + int(differ[0])
        return None
    for entry, entry_there in zip(this.entries(start, stop), other.entries(start, stop), strict=False):
        if entry != entry_there:
            return entry.queue_offset
    return None


# -- offsets and settings ---------------------------------------------------------------------------------------------


def offset_rows(first: StoreLayout, second: StoreLayout, warn: Warn) -> Iterator[Difference]:
    """Differing offsets of consumer groups."""
    tables = [sort_offsets(known_offsets(layout, warn)) for layout in (first, second)]
    for change in compare(*tables):
        yield Difference(
            part="offset",
            what="offset",
            topic=change.topic,
            queueId=change.queueId,
            group=change.group,
            first=_text(change.offset),
            second=_text(change.otherOffset),
        )


def config_rows(first: StoreLayout, second: StoreLayout, warn: Warn) -> Iterator[Difference]:
    """Differing settings by file; consumer offsets have separate rows."""
    layouts = first, second
    listed = (entry for layout in layouts for entry in list_configs(layout))
    names = sorted({entry.name for entry in listed if entry.kind is not None and not entry.name.endswith(".bak")})
    for name in names:
        if name in OFFSETS or kind_of(name) is None:
            continue
        this, other = (_settings(layout, name, warn) for layout in layouts)
        for path, ours, theirs in differing_values("", this, other):
            yield Difference(
                part="config", what=name, name=path or None, first=json_text(ours), second=json_text(theirs)
            )


def _settings(layout: StoreLayout, name: str, warn: Warn) -> Any:
    """The values of a config file; None if it is missing or cannot be read."""
    try:
        return raw_config(layout, name)
    except UnreadableStore:
        return None
    except CorruptFile as err:
        warn(f"{err}: not compared")
        return None


def differing_values(path: str, this: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """(path, value, other value) of each difference; a table that only one has is one difference."""
    if isinstance(this, Mapping) and isinstance(other, Mapping):
        for name in sorted({*this, *other} - {_VERSION}, key=str):
            yield from differing_values(f"{path}.{name}" if path else str(name), this.get(name), other.get(name))
    elif this != other:
        yield path, this, other


def json_text(value: Any) -> str | None:
    """A value of a config file as text."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
