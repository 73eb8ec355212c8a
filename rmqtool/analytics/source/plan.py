"""Plans a query: divides what it asks for into pieces that a scheduler can assign to readers."""

import glob
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtool.analytics.bodies.columns import ADDED, add_fields
from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.ranges.splits import SPLIT_BYTES, Split, plan, plan_tier
from rmqtool.analytics.remote.stores import is_remote, local_of, new_listing, open_log
from rmqtool.analytics.source.filter import Wanted
from rmqtool.analytics.source.narrow import Way, between, shortest
from rmqtool.analytics.source.tables import SCHEMAS, TABLES, NamedStore, pieces_of
from rmqtool.analytics.source.times import prove_times
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.store.disk.directories import list_dir
from rmqtool.store.disk.remote import show_uri, uri_of
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.roles.elsewhere import messages_elsewhere, need_readable_log

THROUGH = ("auto", "log")
TIMES = ("any", "ordered")
_PARTS = ("commitlog", "consumequeue", "index", "config")  # by which a directory is a store
_TEXTS = frozenset({"body", "properties", "keys", "tags", "msgId", "offsetMsgId", *ADDED})  # expensive to decode
_OF_CONFIG = {"topics": ("topics.json",), "offsets": ("topics.json", "consumerOffset.json")}
_SMALL = 4 << 20  # bytes of splits that one task reads together, as spark.sql.files.openCostInBytes
_LARGE_SPLIT_BYTES = (
    2 * SPLIT_BYTES
)  # for columns that are cheap to decode, where the overhead of a Spark task dominates


@dataclass(frozen=True)
class ReadRequest:
    """What is asked for, before any filters of a query.

    Attributes:
        split_bytes: bytes of log per task; None for the default.
        through: ``auto`` uses index and queues if they lead to few messages; ``log`` never does.
        store_times: ``ordered`` if they are known to increase along the log, up to a minute; otherwise ``any``.
        counters: directory in which each reader stores its counters; None for no counters.
        paths: paths of the stores as given.
        columns: columns of the table; None for all.
        bodies: the schema of bodies, by which messages have the columns ``decoded`` and ``decodeError``.
    """

    stores: tuple[NamedStore, ...]
    table: str = "messages"
    wanted: Wanted = field(default_factory=Wanted)
    split_bytes: int | None = None
    through: str = "auto"
    counters: str | None = None
    store_times: str = "any"
    paths: str | tuple[str, ...] = ()
    broker_conf: str | None = None
    columns: tuple[str, ...] | None = None
    bodies: TableSchema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return add_fields(SCHEMAS[self.table], self.bodies if self.table == "messages" else None)

    def with_split_size(self, columns: Collection[str]) -> "ReadRequest":
        """Return the request with a split size that suits the columns, unless one was given."""
        if self.split_bytes is not None or self.table != "messages" or not _TEXTS.isdisjoint(columns):
            return self
        return replace(self, split_bytes=_LARGE_SPLIT_BYTES)


@dataclass(frozen=True)
class Piece:
    """What one task reads: part of one store's table.

    Attributes:
        splits: splits of the commit log.
        ranges: for each split, the bytes of the file in which records begin and end, int64 of shape (n, 2); None for
            all.
        part: part of another table, see :func:`rmqtool.analytics.source.tables.pieces_of`.
    """

    store: NamedStore
    table: str
    choice: MessageChoice = field(default_factory=MessageChoice)
    splits: tuple[Split, ...] = ()
    ranges: tuple[Any, ...] = ()
    part: tuple[str, ...] = ()


def warn_of_elsewhere(stores: Iterable[NamedStore], *, reads: bool = False) -> None:
    """Warn about messages of stores that are not read because they are stored elsewhere.

    Args:
        reads: whether messages only in tiered storage are read.

    Raises:
        CorruptFile: the messages of a store are in a DLedger log.
    """
    for store in stores:
        layout = store.layout()
        need_readable_log(layout)
        for warning in messages_elsewhere(layout, what="not read", reads=reads):
            warnings.warn(warning, stacklevel=3)


def stores_of(paths: str | list[str], broker_conf: str | None = None) -> tuple[NamedStore, ...]:
    """Return the stores for comma-separated paths and URIs, which may contain wildcards.

    Raises:
        UnreadableStore: a path does not match any directory.
        BadValue: there is no path, or a URI of an unknown file system.
    """
    listed = [part.strip() for part in paths.split(",")] if isinstance(paths, str) else paths
    if isinstance(paths, str) and os.path.isdir(paths):
        listed = [paths]  # the name of a store may itself contain such characters
    uris: dict[str, str | None] = {}  # by root of the store
    for path in filter(None, listed):
        if is_remote(path):
            from rmqtool.analytics.remote.place import expand_pattern

            uris.update((show_uri(uri), uri) for uri in expand_pattern(path))
        else:
            uris.update((os.path.abspath(root), None) for root in _here(local_of(path)))
    if not uris:
        raise BadValue(
            "no path of a store is given (CREATE TABLE keeps it without a list of columns: give the option columns)"
        )
    listing = new_listing()
    return tuple(
        NamedStore(root, broker, broker_conf, uri, listing)
        for (root, uri), broker in zip(uris.items(), _brokers(list(uris)), strict=True)
    )


def _here(path: str) -> list[str]:
    """Return the local directories that match a path; of one that only has stores in it, these."""
    paths = [path] if os.path.isdir(path) else sorted(filter(os.path.isdir, glob.glob(path)))
    if not paths:
        raise UnreadableStore(f"{os.path.abspath(path)}: no such directory")
    return [root for path in paths for root in _stores_below(path) or [path]]


def _stores_below(path: str) -> list[str]:
    """Return the stores in a directory that is none: ``PATH/NAME``, or ``PATH/NAME/store`` as brokers have it."""
    if any(os.path.isdir(os.path.join(path, part)) for part in _PARTS):
        return []
    names = sorted(entry.name for entry in list_dir(path))
    roots = [os.path.join(path, name, *below) for name in names for below in ((), ("store",))]
    return [root for root in roots if os.path.isdir(os.path.join(root, "commitlog")) and not is_unfinished(root)]


def is_unfinished(root: str) -> bool:
    """Return whether a directory is one of rmqtool's own, for example a store that it is still creating."""
    return root.endswith((".importing", ".salvaging", ".rmqtool", ".rmqtool-part"))


def _brokers(roots: list[str]) -> list[str]:
    """Return a distinguishing name for each path: without the common prefix and suffix. For a single path, its name."""
    parts = [root.strip(os.sep).split(os.sep) for root in roots]
    if len(parts) == 1:
        return [parts[0][-1] or os.sep]
    shortest_path = min(map(len, parts)) - 1  # every name keeps at least one part
    begin = _common(parts, shortest_path)
    end = _common([path[::-1] for path in parts], shortest_path - begin)
    return ["/".join(path[begin : len(path) - end]) for path in parts]


def _common(paths: list[list[str]], limit: int) -> int:
    same = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return min(sum(1 for _names in same), max(limit, 0))


def request_of(options: Mapping[str, str]) -> ReadRequest:
    """Return the request described by the options of the data source.

    Raises:
        BadValue: an option is unknown or has an invalid value.
        UnreadableStore: a path does not match any directory.
    """
    import json

    from rmqtool.analytics.source.options import condition_of
    from rmqtool.analytics.spark.option_values import number_of

    options = known_options(options)
    paths: str | list[str] = _plain(options.get("path", ""))
    if not paths and "paths" in options:
        paths = list(json.loads(options["paths"]))
    table = options.get("table", "messages")
    if table not in TABLES:
        raise BadValue(f"table {table!r} is none of {', '.join(TABLES)}")
    through = options.get("through", "auto")
    if through not in THROUGH:
        raise BadValue(f"through {through!r} is none of {', '.join(THROUGH)}")
    store_times = options.get("storeTimes", "any")
    if store_times not in TIMES:
        raise BadValue(f"storeTimes {store_times!r} is none of {', '.join(TIMES)}")
    columns = tuple(part.strip() for part in options["columns"].split(",")) if "columns" in options else None
    conditions = [condition for name, value in options.items() if (condition := condition_of(name, value))]
    return ReadRequest(
        stores_of(paths, options.get("brokerConf")),
        table,
        Wanted().narrow(conditions),
        number_of(options, "splitBytes", SPLIT_BYTES) if "splitBytes" in options else None,
        through,
        options.get("counters"),
        store_times,
        paths if isinstance(paths, str) else tuple(paths),
        options.get("brokerConf"),
        columns,
    )


def known_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return our options by their documented names, without those that Spark's catalog adds to tables.

    Raises:
        BadValue: an option is unknown.
    """
    from rmqtool.analytics.source.options import OPTIONS
    from rmqtool.analytics.spark.option_values import OF_A_CATALOG, suggest

    ours, unknown = {}, []
    for name, value in options.items():
        if name.lower() in OPTIONS:
            ours[OPTIONS[name.lower()]] = value
        elif name.lower() not in OF_A_CATALOG and not name.lower().startswith("option."):
            unknown.append(name)
    if unknown:
        names = ", ".join(OPTIONS.values())
        raise BadValue(f"option {', '.join(unknown)} is not known; there are {names}{suggest(unknown)}")
    return ours


def bytes_of(request: ReadRequest) -> int | None:
    """Return how much there is to read at most, in bytes of file; None if that takes longer than looking at names."""
    size = 0
    for store in request.stores:
        if store.uri is not None:
            return None
        layout = store.layout()
        if request.table in _OF_CONFIG:
            names = [layout.path("config", name) for name in _OF_CONFIG[request.table]]
            size += sum(os.path.getsize(name) for name in names if os.path.isfile(name))
        else:
            paths = [file.path for file in open_log(layout).segments.files]
            # the newest file has its full length before anything is written there
            size += sum(min(status.st_size, status.st_blocks * 512) for status in map(os.stat, paths))
    return size


def _plain(path: str) -> str:
    """Return a path without the scheme that Spark's catalog adds."""
    return path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path


def pieces(request: ReadRequest, wanted: Wanted) -> tuple[list[Piece], int]:
    """Return (pieces that together cover what is wanted, bytes read to find out).

    Raises:
        CorruptFile: the messages of a store are in a DLedger log, which is not supported.
        UnreadableStore: not a store, or one of its files cannot be read.
    """
    planned: list[Piece] = []
    bytes_read = 0
    size = request.split_bytes or SPLIT_BYTES
    for store in request.stores:
        if request.table != "messages":
            parts = pieces_of(request.table, store, size)
            planned += [Piece(store, request.table, part=part) for part in parts]
            continue
        layout = store.layout()
        need_readable_log(layout)
        log = open_log(layout)
        way = shortest(log, wanted) if request.through == "auto" else None
        if way is not None:
            bytes_read += way.bytes_read
            planned += _exact(store, wanted.choice, log, way, size)
            stretches = way.scan
        else:
            narrow, looked = _of_a_time(log, wanted.choice, request.store_times)
            bytes_read += looked
            planned += _exact(store, wanted.choice, log, narrow, size)
            stretches = narrow.scan
        planned += [
            Piece(store, "messages", choice, splits=(split,), ranges=(None,))
            for start, stop in stretches
            for choice in [_within(wanted.choice, start, stop)]
            for split in plan(log, choice.start, choice.stop, size)[0]
        ]
        if reads_tier(wanted.choice):
            planned += [
                Piece(store, "messages", wanted.choice, splits=(split,), ranges=(None,)) for split in plan_tier(layout)
            ]
    return _join_small(planned, min(size, _SMALL)), bytes_read


def _join_small(planned: Iterable[Piece], most: int) -> list[Piece]:
    """Join small neighbours, as the start of a task takes longer than reading them: a tier has a file for each queue.

    Args:
        most: bytes of pieces that are joined.
    """
    joined: list[Piece] = []
    size = 0
    for piece in planned:
        own = sum(split.stop - split.start for split in piece.splits)
        before = joined[-1] if joined else None
        if before is not None and size + own <= most and _reads_alike(before, piece):
            splits, ranges = before.splits + piece.splits, before.ranges + piece.ranges
            joined[-1] = replace(before, splits=splits, ranges=ranges)
            size += own
        else:
            joined.append(piece)
            size = own
    return joined


def _reads_alike(left: Piece, right: Piece) -> bool:
    """Whether pieces are whole splits of one store that are read in the same way."""
    whole = all(piece.ranges and set(map(type, piece.ranges)) == {type(None)} for piece in (left, right))
    return whole and (left.store, left.table, left.choice) == (right.store, right.table, right.choice)


def reads_tier(choice: MessageChoice) -> bool:
    """Return whether messages only in tiered storage are read too; they have no place in the log for these options."""
    return choice.start is None and choice.stop is None


def _of_a_time(log: CommitLog, choice: MessageChoice, store_times: str) -> tuple[Way, int]:
    """Return (access path to the messages of a choice's period, bytes read to find out)."""
    none = np.empty(0, np.int64)
    if choice.since is None and choice.until is None:
        return Way(none, none, [(0, None)]), 0
    if store_times == "ordered":
        start, stop, looked = between(log, choice.since, choice.until)
        return Way(none, none, [(start or 0, stop)]), looked
    proof = prove_times(log, choice.since, choice.until)
    if proof is None:
        return Way(none, none, [(0, None)]), 0
    starts, stops, scan, looked = proof
    inside = (stops > (choice.start or 0)) & (starts < (choice.stop if choice.stop is not None else 1 << 62))
    return Way(starts[inside], stops[inside], scan), looked


def _within(choice: MessageChoice, start: int, stop: int | None) -> MessageChoice:
    starts = [bound for bound in (start or None, choice.start) if bound is not None]
    stops = [bound for bound in (stop, choice.stop) if bound is not None]
    return replace(choice, start=max(starts, default=None), stop=min(stops, default=None))


def _exact(store: NamedStore, choice: MessageChoice, log: CommitLog, way: Way, size: int) -> Iterator[Piece]:
    """Yield pieces of roughly equal size in bytes, each over one or more files."""
    splits: list[Split] = []
    ranges: list[Any] = []
    held = 0
    files = log.segments.files
    for file in files:
        low, high = np.searchsorted(way.starts, (file.base, min(file.end, 1 << 62)))
        for first, last in _runs(way.stops[low:high] - way.starts[low:high], size):
            records = np.stack((way.starts[low:high][first:last], way.stops[low:high][first:last]), axis=1) - file.base
            last, uri = file is files[-1], uri_of(file.path)
            splits.append(Split(0, file.path, file.base, file.size, 0, file.size, last, exact=True, uri=uri))
            ranges.append(records)
            held += int((records[:, 1] - records[:, 0]).sum())
            if held >= size:
                yield Piece(store, "messages", choice, tuple(splits), tuple(ranges))
                splits, ranges, held = [], [], 0
    if splits:
        yield Piece(store, "messages", choice, tuple(splits), tuple(ranges))


def _runs(sizes: Any, limit: int) -> Iterator[tuple[int, int]]:
    """Yield index ranges [first, last) of about ``limit`` bytes each."""
    group = (np.cumsum(sizes) - sizes) // limit
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(sizes)]
    yield from ((a, b) for a, b in pairwise(edges) if a < b)
