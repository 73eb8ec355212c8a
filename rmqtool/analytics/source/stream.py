"""``spark.readStream.format("rocketmq")``: the messages of live stores, each exactly once per checkpoint.

An offset contains a :class:`~rmqtool.analytics.dump.position.Position` per store path: a physical offset at which a
record ends, and a proof of the preceding log. The messages between two offsets are the same whenever they are read, so
a batch that Spark repeats after a failure has the same rows. If the log is not the one that was read before, because it
was truncated and rewritten or replaced, the stream stops.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmqtool.analytics.spark.option_values import number_of
from rmqtool.analytics.spark.worker import without_traceback
from rmqtool.errors import BadValue, Refused, UnreadableStore

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.analytics.dump.position import Position
    from rmqtool.analytics.ranges.tail import Budget
    from rmqtool.analytics.source.plan import Piece, ReadRequest
    from rmqtool.analytics.source.tables import NamedStore
    from rmqtool.analytics.spark.columns import SparkColumns
    from rmqtool.store.log.commit_log import CommitLog

Offsets = dict[str, Any]  # JSON form of positions, by store path
_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class TailOptions:
    """Options specific to streams.

    Attributes:
        begin: ``earliest``, ``latest``, or a physical offset per store path.
        max_bytes, max_records: maximum amount of log per batch; None for no limit.
        skip_expired: skip what retention has deleted instead of failing.
        accept_unproven: continue from offsets of earlier versions, which contain no proof.
    """

    begin: str | dict[str, int] = "earliest"
    max_bytes: int | None = None
    max_records: int | None = None
    skip_expired: bool = False
    accept_unproven: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TailOptions":
        """Create from the options of the data source.

        Raises:
            BadValue: an option has an invalid value.
        """
        begin: str | dict[str, int] = options.get("startingPosition", "earliest")
        if begin not in ("earliest", "latest"):
            try:
                begin = {os.path.abspath(path): int(offset) for path, offset in json.loads(str(begin)).items()}
                if any(offset < 0 for offset in begin.values()):
                    raise ValueError
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                raise BadValue(
                    f'option startingPosition: {begin!r} is neither earliest, latest nor JSON like {{"/store": 1024}}'
                ) from None
        expired = options.get("onExpired", "fail")
        if expired not in ("fail", "skip"):
            raise BadValue(f"option onExpired: {expired!r} is neither fail nor skip")
        unproven = options.get("onUnproven", "fail")
        if unproven not in ("fail", "accept"):
            raise BadValue(f"option onUnproven: {unproven!r} is neither fail nor accept")
        return cls(
            begin,
            number_of(options, "maxBytesPerTrigger", _NO_LIMIT) if "maxBytesPerTrigger" in options else None,
            number_of(options, "maxRecordsPerTrigger", _NO_LIMIT) if "maxRecordsPerTrigger" in options else None,
            expired == "skip",
            unproven == "accept",
        )


@dataclass
class Tail(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. Only the table ``messages`` grows, so no other can be streamed."""

    request: "ReadRequest"
    options: TailOptions
    columns: "SparkColumns"
    target: dict[str, int] | None = field(default=None)
    stores: tuple["NamedStore", ...] = field(init=False)
    # by store: the position for which it was found out, and up to where no message is selected from there
    _without_match: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.stores = self.request.stores
        if self.request.table != "messages":
            raise BadValue(f"table {self.request.table} cannot be streamed, only messages")
        if far := [store.root for store in self.request.stores if store.uri is not None]:
            raise BadValue(f"{', '.join(far)}: a store at a URI cannot be streamed, only read")
        from rmqtool.analytics.source.plan import warn_of_elsewhere

        warn_of_elsewhere(self.stores, reads=self.options.begin == "earliest")

    @without_traceback()
    def initialOffset(self) -> Offsets:
        return {store.root: self._initial(store) for store in self.stores}

    def _initial(self, store: "NamedStore") -> dict[str, Any]:
        """Return where a store's messages begin: with those only in tiered storage, if all are wanted."""
        from rmqtool.analytics.source.tier_left import all_of, with_left

        while True:
            position = self._begin(store)
            if self.options.begin != "earliest":
                return position.to_dict()
            left = all_of(store.layout())
            if self._begin(store) == position:  # otherwise messages have left the log meanwhile
                return with_left(position.to_dict(), left)

    def _look_around(self) -> None:
        """Add stores that have appeared at the paths since the stream began; stores that disappear are kept."""
        from rmqtool.analytics.source.plan import stores_of

        paths, known = self.request.paths, {store.root for store in self.stores}
        if not paths:
            return
        try:
            stores = stores_of(paths if isinstance(paths, str) else list(paths), self.request.broker_conf)
        except UnreadableStore:  # all stores have disappeared; reading them will report it
            return
        self.stores += tuple(store for store in stores if store.root not in known and _is_store(store))

    def _begin(self, store: "NamedStore") -> "Position":
        from rmqtool.analytics.dump.position import Inside, Position

        log = _log(store)
        if not isinstance(self.options.begin, dict):
            return Position.at(log, _end(store) if self.options.begin == "latest" else _first(store))
        if store.root not in self.options.begin:
            raise BadValue(f"option startingPosition names no position in {store.root}")
        begin = self.options.begin[store.root]
        files = log.segments.files
        if begin > (files[-1].end if files else 0):
            raise BadValue(f"option startingPosition: {store.root}: {begin} is beyond the end of the log")
        try:
            position = Position.at(log, begin)
        except Inside as err:
            raise BadValue(f"option startingPosition: {store.root}: {err}; begin where a message begins") from err
        if log.min_offset < begin < _end(store) and not _begins(log, begin):
            raise BadValue(f"option startingPosition: {store.root}: no message begins or ends at {begin}")
        return position

    def _from(self, store: "NamedStore", log: "CommitLog", offsets: Offsets) -> "Position":
        """Return the position of a store in an offset, after verifying it.

        Raises:
            Refused: the log is not the one that was read up to there, or the offset contains no proof.
            BadValue: not an offset.
        """
        from rmqtool.analytics.dump.position import Inside, Position

        saved = offsets.get(store.root)
        if saved is None:  # a new store, of which nothing has been read
            return Position.at(log, max(log.min_offset, 0))
        if type(saved) is int:
            where = f"{store.root}: the offset {saved} of this checkpoint is of an earlier version"
            if not self.options.accept_unproven and saved > max(log.min_offset, 0):
                raise Refused(
                    f"{where}, which does not prove that the log is still the one that was read up to there. To go on: "
                    "option onUnproven=accept if the store was neither cut nor replaced since; else "
                    f"{_ANEW.format(json.dumps({store.root: 0}))}"
                )
            try:
                position = Position.at(log, saved) if saved >= log.min_offset else Position(saved)
            except Inside as err:
                raise Refused(f"{where}, and the log was cut and rewritten since: {err}. {_how(store)}") from err
        else:
            try:
                position = Position.from_dict(_without_tier(saved))
            except ValueError as err:
                raise BadValue(f"{store.root}: the checkpoint holds {saved!r}, which is not an offset: {err}") from err
        if (changed := position.differs(log)) is not None:
            raise Refused(
                f"{store.root}: was read up to {position.next}, and the log is not the one that was read: {changed}. "
                f"Nothing is read, so that nothing is lost or comes twice. {_how(store)}"
            )
        return position

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        if self.options.max_records is not None:
            return ReadMaxRows(self.options.max_records)
        return ReadAllAvailable()

    @without_traceback()
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        from rmqtool.analytics.dump.position import Position
        from rmqtool.analytics.ranges.tail import Budget, frontier
        from rmqtool.analytics.source.tier_left import after_batch, all_of, of_offset, with_left
        from rmqtool.analytics.table.choice import MessageChoice

        budget = Budget()
        if not isinstance(limit, ReadAllAvailable):
            budget = Budget(self.options.max_bytes, self.options.max_records)
        if isinstance(limit, ReadMaxBytes):
            budget.bytes = limit.max_bytes
        elif isinstance(limit, ReadMaxRows):
            budget.records = limit.max_rows
        if self.target is None:
            self._look_around()
        stores = self.stores
        logs = {store.root: _log(store) for store in stores}
        positions = {store.root: self._from(store, logs[store.root], start) for store in stores}
        # a limit may not allow for every store, so a different one comes first each time
        turn = sum(position.next for position in positions.values()) % len(stores)
        latest = dict(start)
        for store in (*stores[turn:], *stores[:turn]):
            log, position = logs[store.root], positions[store.root]
            if store.root not in start:
                # a new store: this batch records its start and the next one reads it, so that a repeated batch reads
                # the same and messages that expire in the meantime are noticed
                latest[store.root] = with_left(position.to_dict(), all_of(store.layout()))
                continue
            left = after = of_offset(start[store.root])
            if left:
                after = after_batch(store.layout(), left, budget)
            reached = begin = max(position.next, log.min_offset) if self.options.skip_expired else position.next
            if self.target is None or begin < self.target.get(store.root, 0):
                stop = _NO_LIMIT if self.target is None else self.target[store.root]
                again = replace(budget)
                reached = min(frontier(log, begin, budget), stop)
                if self.request.wanted.choice != MessageChoice():
                    reached = self._to_a_match(store, log, begin, reached, stop, again)
            if reached != position.next or after != left:
                latest[store.root] = with_left(Position.at(log, reached).to_dict(), after)
            elif type(start[store.root]) is int:
                latest[store.root] = position.to_dict()
        return latest

    def _to_a_match(
        self, store: "NamedStore", log: "CommitLog", begin: int, reached: int, stop: int, budget: "Budget"
    ) -> int:
        """Return where a batch of selected messages ends: at ``reached``, or later if there is none before it.

        Without any, the batch waits, so that none is empty; but not for longer than a file of the log, because the
        position must not stay behind what retention deletes.

        Args:
            stop: physical offset at which the stream ends.
            budget: of each step.
        """
        from rmqtool.analytics.ranges.tail import frontier

        known_begin, at = self._without_match.get(store.root, (begin, begin))
        at = at if known_begin == begin else begin
        while True:
            if at < reached and self._has_match(store, log, at, reached):
                return reached
            at = max(at, reached)
            reached = min(frontier(log, at, replace(budget)), stop)
            if reached <= at:
                break
        self._without_match[store.root] = begin, at
        return at if at - begin >= log.file_size else begin

    def _has_match(self, store: "NamedStore", log: "CommitLog", begin: int, end: int) -> bool:
        from rmqtool.analytics.ranges.splits import SPLIT_BYTES, plan
        from rmqtool.analytics.source.plan import Piece
        from rmqtool.analytics.source.read import Counters, read_piece

        choice = replace(self.request.wanted.choice, start=begin, stop=end)
        return any(
            batch.num_rows
            for split in plan(log, begin, end, SPLIT_BYTES)[0]
            for exact in [replace(split, exact=split.exact or split.base + split.start == begin)]
            for batch in read_piece(Piece(store, "messages", choice, (exact,), (None,)), ["queueId"], Counters())
        )

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        self._look_around()
        self.target = {store.root: _end(store) for store in self.stores}

    @without_traceback()
    def reportLatestOffset(self) -> Offsets:
        from rmqtool.analytics.dump.position import Position

        return {store.root: Position.at(_log(store), _end(store)).to_dict() for store in self.stores}

    @without_traceback()
    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        from rmqtool.analytics.ranges.splits import SPLIT_BYTES, plan
        from rmqtool.analytics.source.plan import Piece
        from rmqtool.analytics.source.tier_left import of_offset, splits_between

        stretches = []
        if not end.keys() <= {store.root for store in self.stores}:
            self._look_around()
        gone = end.keys() - {store.root for store in self.stores}
        missed = sorted(root for root in gone if start.get(root) != end[root])
        if missed and not self.options.skip_expired:
            raise UnreadableStore(f"{', '.join(missed)}: no such directory, and what was stored there is to be read")
        for store in self.stores:
            if store.root not in end:
                continue
            log = _log(store)
            stop = self._from(store, log, end)
            begin = self._from(store, log, start).next
            wanted = self.request.wanted.choice
            left, after = of_offset(start.get(store.root)), of_offset(end[store.root])
            for split in splits_between(store.layout(), left, after, skip_expired=self.options.skip_expired):
                piece = Piece(store, "messages", wanted, (split,), (None,))
                stretches.append(InputPartition(_Stretch(piece, stop)))
            if begin >= stop.next:
                continue
            if begin < log.min_offset and not self.options.skip_expired:
                raise UnreadableStore(f"{store.root}: what lies between {begin} and {log.min_offset} has expired")
            choice = replace(wanted, start=begin, stop=stop.next)
            for split in plan(log, begin, stop.next, self.request.split_bytes or SPLIT_BYTES)[0]:
                exact = replace(split, exact=split.exact or split.base + split.start == begin)
                piece = Piece(store, "messages", choice, (exact,), (None,))
                stretches.append(InputPartition(_Stretch(piece, stop)))
        return stretches

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from rmqtool.analytics.source.read import Counters, read_piece

        if partition.value is None:
            return
        piece, end = partition.value.piece, partition.value.end
        with without_traceback():
            try:
                yield from self.columns.fit(read_piece(piece, self.columns.names, Counters(), self.request.bodies))
            except UnreadableStore:
                (split,) = piece.splits
                if not self.options.skip_expired or os.path.exists(split.path):
                    raise
            # the result is valid only if the log was not truncated in the meantime; a failed batch is read again
            self._from(piece.store, _log(piece.store), {piece.store.root: end.to_dict()})


@dataclass(frozen=True)
class _Stretch:
    """What one task of a batch reads, and the batch's end in that store."""

    piece: "Piece"
    end: "Position"


def _without_tier(saved: Any) -> Any:
    """Return the offset of a store without what is left of its tier."""
    from rmqtool.analytics.source.tier_left import NAME

    return {name: value for name, value in saved.items() if name != NAME} if isinstance(saved, dict) else saved


_ANEW = (
    "a new checkpointLocation, with startingPosition earliest for all messages again, or {} with the physical offset "
    "from which on none was read"
)


def _how(store: "NamedStore") -> str:
    return f"To go on: {_ANEW.format(json.dumps({store.root: 0}))}."


def _begins(log: "CommitLog", physical_offset: int) -> bool:
    """Return whether a message, a blank or a file begins at an offset."""
    from formats.endings import Ending
    from rmqtool.store.log.commit_log import Damage

    record = log.look(physical_offset, crc=False)
    return not isinstance(record, Damage) or record.ending is Ending.FILLER or record.at == 0


def _is_store(store: "NamedStore") -> bool:
    """Return whether a new directory is a complete store, not one that rmqtool is still creating."""
    from rmqtool.analytics.source.plan import is_unfinished

    if is_unfinished(store.root):
        return False
    try:
        return any(map(os.path.isdir, store.layout().commit_log_paths))
    except UnreadableStore:
        return False


def _log(store: "NamedStore") -> "CommitLog":
    from rmqtool.store.log.commit_log import CommitLog
    from rmqtool.store.roles.elsewhere import need_readable_log

    layout = store.layout()
    need_readable_log(layout)
    return CommitLog(layout)


def _first(store: "NamedStore") -> int:
    return max(_log(store).min_offset, 0)


def _end(store: "NamedStore") -> int:
    from rmqtool.analytics.ranges.tail import Budget, frontier

    log = _log(store)
    return frontier(log, log.segments.files[-1].base, Budget()) if log.segments.files else 0
