"""The index against the commit log, and every index file by itself.

Entries lie in the order of the log, in blocks whose lowest and highest physical offset are kept: so each stretch of the
log finds its entries without reading the others, also where a damaged one points far away.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from formats.index import ENTRY_SIZE, entries_array, entry_at, file_size, read_header, slot_at
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.check.advice.steps import REBUILD_INDEX, RECOVER
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.index.chains import check_chains
from rmqtool.store.check.log.log import Stretch
from rmqtool.store.disk.mapping import forget
from rmqtool.store.disk.sparse import data_end
from rmqtool.store.index.chains import used_entries
from rmqtool.store.index.reader import BadIndex, IndexView, open_index, segment_of
from rmqtool.store.queues.message_store import rocks_index_of
from rmqtool.words import counted

Column = np.ndarray[Any, np.dtype[Any]]
BLOCK = 4096
_AT_SECONDS = 12
_INT_MAX = 2**31 - 1


class _File:
    """One index file: its entries, and the reach of each block of them.

    The header's count may be wrong; what is not zero counts, and a wrong header is reported once.

    Attributes:
        count: number after the last entry that is not zero.
        moot: the next start removes the file and rebuilds it.
        begin_timestamp: what entries count from: the header's, or that of the first message where it is known.
    """

    def __init__(self, ctx: Context, view: IndexView, name: str) -> None:
        self.view, self.name = view, name
        self.header, self.slots = view.header, view.slots
        self.begin_timestamp = view.header.begin_timestamp
        self.moot = ctx.inputs.aborted and view.header.end_timestamp > ctx.checkpoint.index_msg_timestamp
        table = entries_array(view.view, view.slots)[: view.entries]
        first, last = (entry_at(view.slots, number) for number in (0, len(table)))
        self.count = used_entries(table[: -(-(data_end(view.path, first, last) - first) // ENTRY_SIZE)])
        table = table[: self.count]
        blocks = range(1, len(table), BLOCK)
        self.low = np.empty(len(blocks), np.int64)
        self.high = np.empty(len(blocks), np.int64)
        for number, start in enumerate(blocks):
            offsets = table["physical_offset"][start : start + BLOCK]
            self.low[number], self.high[number] = offsets.min(), offsets.max()

    @property
    def table(self) -> Column:
        """The entries that are in use, from number 0; the file is mapped as long as they are in use."""
        return entries_array(self.view.view, self.slots)[: self.count]

    def between(self, first: int, stop: int) -> Iterator[tuple[Column, Column]]:
        """(numbers, entries) of entries that point into [first, stop), a block at a time."""
        blocks = np.flatnonzero((self.low < stop) & (self.high >= first))
        table = self.table if len(blocks) else None
        for block in blocks.tolist():
            start = 1 + block * BLOCK
            assert table is not None
            part = table[start : start + BLOCK]
            offsets = part["physical_offset"]
            rows = np.flatnonzero((offsets >= first) & (offsets < stop))
            if len(rows):
                yield start + rows, part[rows]
        if len(blocks):
            # a long check must not count as this process's memory
            first_at, last_at = (entry_at(self.slots, 1 + BLOCK * int(block)) for block in (blocks[0], blocks[-1]))
            forget(self.view.view, first_at, min(last_at, len(self.view.view)))


class IndexCheck:
    """All index files. :meth:`load`, then :meth:`take` for every stretch of the log, then :meth:`finish`."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.enabled = ctx.layout.conf.writes_index_files
        self.files: list[_File] = []
        self._all_read = True
        self._next = 0  # physical offset up to which the log was compared
        self._missing = 0  # keys of the run of messages without entries that is being met
        self._missing_from = self._missing_to = 0
        self._keys_seen = False
        self._tags_seen = False  # whether an entry for tags was met

    def load(self) -> Iterator[None]:
        """Open every file and check it by itself."""
        ctx = self.ctx
        for entry in ctx.layout.entries("index"):
            if not (entry.name.isdecimal() and entry.is_file()):
                ctx.found.add("file-ignored", ctx.name(entry.path))
        try:
            views = list(open_index(ctx.layout))
        except UnreadableStore as err:
            ctx.found.add("file-unreadable", "index", actual=str(err))
            self._all_read = False
            return
        size = file_size(*ctx.inputs.geometry)
        for view in reversed(views):
            name = ctx.name(view.path)
            if isinstance(view, BadIndex):
                view = self._by_the_others(view)
            if isinstance(view, BadIndex):
                ctx.found.add("index-unreadable", name, actual=view.reason)
                self._all_read = False
                continue
            if view.header.next_number > 1 and len(view.view) != size:
                actual = f"{len(view.view)} bytes"
                ctx.found.add(
                    "file-size",
                    name,
                    severity="warning",
                    expected=f"{size} bytes",
                    actual=actual,
                    steps=(REBUILD_INDEX,),
                )
                if slot_at(view.slots) > len(view.view):
                    self._all_read = False
                    continue
            file = _File(ctx, view, name)
            yield from check_chains(ctx, view, name, file.table, moot=file.moot)
            forget(view.view, 0, len(view.view))
            if file.count > 1:
                self.files.append(file)
            yield
        self._next = max(ctx.log.min_offset, 0)

    def _by_the_others(self, bad: BadIndex) -> IndexView | BadIndex:
        """A file too damaged to tell its numbers of slots and entries has those of the other files."""
        slots, entries = self.ctx.inputs.geometry
        file = segment_of(bad.path)
        if len(view := file.view()) != file_size(slots, entries):
            return bad
        return IndexView(file, read_header(view), slots, entries)

    def take(self, stretch: Stretch) -> None:
        """Compare the keys of consecutive records with the entries that point to them, and before them.

        Where log files overlap, the first that has a place in the log counts, so that no entry is met twice.
        """
        if not self.enabled:
            return
        batch, position = stretch.batch, stretch.position
        stop = max(int(position[-1] + batch.size[-1]), self._next)
        key_row, key_hash, tags = batch.key_row, batch.hashes, batch.tag_keys
        if position[0] < self._next:
            new = position[key_row] >= self._next
            key_row, key_hash, tags = key_row[new], key_hash[new], tags[new]
        keys = position[key_row], key_hash
        self._keys_seen = self._keys_seen or len(key_row) > 0
        seen = np.zeros(len(key_row), bool)
        wanted = _combine(*keys)
        ordered: Column | None = None
        done = 0  # keys that entries were found for, one after the other as both were written
        for file in self.files:
            parts = list(file.between(self._next, stop))
            if not parts:
                continue
            numbers, entries = (np.concatenate(column) for column in zip(*parts, strict=True))
            offsets = entries["physical_offset"].astype(np.int64)
            has = _combine(offsets, entries["key_hash"].astype(np.int64))
            if np.array_equal(has, wanted[done : done + len(has)]):
                rows = key_row[done : done + len(has)]
                seen[done : done + len(has)] = True
                done += len(has)
                self._times(file, numbers, entries, batch.store_timestamp[rows])
                continue
            ordered = np.sort(wanted) if ordered is None else ordered
            good = _among(has, ordered)
            seen |= np.isin(wanted, has[good])
            rows = np.minimum(np.searchsorted(position, offsets), len(position) - 1)
            record = position[rows] == offsets
            self._times(file, numbers[good], entries[good], batch.store_timestamp[rows[good]])
            self._strangers(file, numbers[~good], entries[~good], record[~good])
        self._next = stop
        if self._all_read and self.files:
            self._note_missing(keys[0], seen | self._before_tags(seen, tags))

    def _before_tags(self, seen: Column, tags: Column) -> Column:
        """Which keys are tags that nobody put into the index: a broker before 5.4 had the store when it took them."""
        if self._tags_seen:
            return np.zeros(len(seen), bool)
        first = np.flatnonzero(seen & tags)
        self._tags_seen = len(first) > 0
        return tags & (np.arange(len(seen)) < first[0]) if len(first) else tags

    def _times(self, file: _File, numbers: Column, entries: Column, times: Column) -> None:
        header = file.header
        for number, at, time, offset in (
            (1, 0, header.begin_timestamp, header.begin_physical_offset),
            (file.count - 1, 8, header.end_timestamp, header.end_physical_offset),
        ):
            for row in np.flatnonzero(numbers == number):
                true = int(entries["physical_offset"][row]), int(times[row])
                if number == 1:
                    file.begin_timestamp = true[1]
                self._header(file, at, time, true[1])
                self._header(file, at + 16, offset, true[0])
        # the first entry of a file is reckoned from the end of the file before it
        rest = numbers > 1
        begin = file.begin_timestamp
        expected = np.clip((times[rest] - begin) // 1000, 0, _INT_MAX) if begin > 0 else np.zeros(rest.sum(), np.int64)
        actual = entries["seconds"][rest].astype(np.int64)
        wrong = np.flatnonzero(actual != expected)
        if len(wrong):
            places = numbers[rest][wrong]
            self.ctx.found.many(
                "index-time",
                file.name,
                len(wrong),
                lambda i: {
                    "offset": entry_at(file.slots, int(places[i])) + _AT_SECONDS,
                    "expected": f"{expected[wrong[i]]} s",
                    "actual": f"{actual[wrong[i]]} s",
                },
            )

    def _header(self, file: _File, at: int, says: int, true: int) -> None:
        # a header whose count lags, lags as a whole, and was reported
        if says != true and file.header.next_number == file.count:
            self.ctx.found.add("index-header", file.name, offset=at, expected=true, actual=says)

    def _strangers(self, file: _File, numbers: Column, entries: Column, record: Column) -> None:
        """Entries that are no key of a message here: of a message with other keys, or of none."""
        for code, chosen, expected in (
            ("index-entry", record, "the hash of a key of its message"),
            ("index-ghost", ~record, "the position of a message"),
        ):
            self._tell(code, file, numbers[chosen], entries[chosen], expected)

    def _tell(self, code: str, file: _File, numbers: Column, entries: Column, expected: str) -> None:
        if not len(numbers):
            return
        self.ctx.found.many(
            code,
            file.name,
            len(numbers),
            lambda i: {
                "offset": entry_at(file.slots, int(numbers[i])),
                "expected": expected,
                "actual": f"hash {entries['key_hash'][i]}, physical offset {entries['physical_offset'][i]}",
            },
            **({"steps": (RECOVER,)} if file.moot else {}),
        )

    def _note_missing(self, offsets: Column, seen: Column) -> None:
        cuts = np.flatnonzero(np.diff(seen)) + 1
        for part in np.split(np.arange(len(seen)), cuts) if len(seen) else ():
            if seen[part[0]]:
                self._end_run()
                continue
            if not self._missing:
                self._missing_from = int(offsets[part[0]])
            self._missing += len(part)
            self._missing_to = int(offsets[part[-1]])

    def _end_run(self) -> None:
        if not self._missing:
            return
        start, ctx = self.ctx.start.redispatch_from, self.ctx
        count, self._missing = self._missing, 0
        code = "index-behind" if start is not None and self._missing_from >= start else "index-missing"
        ctx.found.add(
            code,
            "index",
            count=count,
            actual=f"no entries for the messages at physical offsets {self._missing_from} to {self._missing_to}",
            consequence=f"{counted(count, 'key is', 'keys are')} not found"
            + (" until the next start" if code == "index-behind" else ""),
        )

    def finish(self) -> Iterator[None]:
        """What the log cannot tell: entries behind its end, and that there is no index at all."""
        self._end_run()
        if not self.enabled:
            return
        for file in self.files if not self.ctx.log_seen.absent else ():
            for numbers, entries in file.between(self._next, 2**63 - 1):
                self._tell("index-ghost", file, numbers, entries, f"an offset before the log's end at {self._next}")
                yield
        if not self.files and self._all_read and self._keys_seen and not self._in_rocks():
            self.ctx.found.add("index-absent", "index")

    def _in_rocks(self) -> bool:
        """Whether a broker keeps the index in RocksDB, or would make it there."""
        try:
            return rocks_index_of(self.ctx.layout) is not None
        except (CorruptFile, MissingRuntime, UnreadableStore):
            return True  # reported where the database is checked


def _among(values: Column, ordered: Column) -> Column:
    """Which values are in a sorted column; bool."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    among: Column = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return among


def _combine(offsets: Column, hashes: Column) -> Column:
    """Offset and hash in one number, which sorts fast.

    Two pairs share one only where multiples of the constant come within 2**31 of each other: not in practice.
    """
    return offsets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + hashes.astype(np.uint64)
