"""Check the index against the commit log, and every index file by itself.

Entries are in the order of the log. The lowest and highest physical offset of each block of entries are kept, so that
the entries of any stretch of the log are found without reading the others, even if a damaged one points far away.
"""

from collections.abc import Iterator

import numpy as np

from formats.arrays import Column
from formats.index import ENTRY_SIZE, entries_array, entry_at, file_size, read_header, slot_at
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.check.advice.steps import REBUILD_INDEX, RECOVER
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.files import steps_of
from rmqtool.store.check.index.chains import check_chains
from rmqtool.store.check.log.log import RecordRun
from rmqtool.store.disk.mapping import forget
from rmqtool.store.disk.sparse import data_end
from rmqtool.store.index.chains import used_entries
from rmqtool.store.index.reader import BadIndex, IndexView, open_index, segment_of
from rmqtool.store.layout.mending import remedy_for
from rmqtool.store.queues.message_store import rocks_index_of
from rmqtool.words import counted

BLOCK = 4096
_AT_SECONDS = 12
_INT_MAX = 2**31 - 1


class _File:
    """One index file, with the offset range of each block of entries.

    As the header's count may be wrong, non-zero entries count; a wrong header is reported once.

    Attributes:
        count: number after the last non-zero entry.
        moot: whether the next start removes the file and rebuilds it.
        begin_timestamp: base time of the entries: the header's, or that of the first message if known.
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
        """The entries in use, from number 0; the file is mapped while they are in use."""
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
            # release pages, so that a long check does not count as memory of this process
            first_at, last_at = (entry_at(self.slots, 1 + BLOCK * int(block)) for block in (blocks[0], blocks[-1]))
            forget(self.view.view, first_at, min(last_at, len(self.view.view)))


class IndexCheck:
    """Checks all index files: call :meth:`load`, :meth:`take` for every stretch of the log, then :meth:`finish`."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.enabled = ctx.layout.conf.writes_index_files
        self.files: list[_File] = []
        self._all_read = True
        self._next = 0  # physical offset up to which the log was compared
        self._missing = 0  # number of keys in the current run of messages without entries
        self._missing_from = self._missing_to = 0
        self._keys_seen = False
        self._tags_seen = False  # whether an entry for tags was seen

    def load(self) -> Iterator[None]:
        """Open every file and check it by itself."""
        ctx = self.ctx
        for path in (strange := ctx.rules.index_directories()):
            ctx.found.situation.refused = ctx.found.situation.stuck = True
            ctx.found.add("file-foreign", ctx.name(path), steps=steps_of(remedy_for(path, None, 0, last=False)))
        for entry in ctx.layout.entries("index"):
            if entry.path not in strange and not (entry.name.isdecimal() and entry.is_file()):
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
                view = self._open_like_others(view)
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

    def _open_like_others(self, bad: BadIndex) -> IndexView | BadIndex:
        """Open a file that is too damaged to determine its geometry with that of the other files."""
        slots, entries = self.ctx.inputs.geometry
        file = segment_of(bad.path)
        if len(view := file.view()) != file_size(slots, entries):
            return bad
        return IndexView(file, read_header(view), slots, entries)

    def take(self, stretch: RecordRun) -> None:
        """Compare the keys of consecutive records with the entries that point to them, or to anything before them.

        If log files overlap, the first one counts, so that no entry is compared twice.
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
        done = 0  # number of keys with entries so far, as long as both are in the same order
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
                self._check_times(file, numbers, entries, batch.store_timestamp[rows])
                continue
            ordered = np.sort(wanted) if ordered is None else ordered
            good = _among(has, ordered)
            seen |= np.isin(wanted, has[good])
            rows = np.minimum(np.searchsorted(position, offsets), len(position) - 1)
            record = position[rows] == offsets
            self._check_times(file, numbers[good], entries[good], batch.store_timestamp[rows[good]])
            self._report_strangers(file, numbers[~good], entries[~good], record[~good])
        self._next = stop
        if self._all_read and self.files:
            self._note_missing(keys[0], seen | self._before_tags(seen, tags))

    def _before_tags(self, seen: Column, tags: Column) -> Column:
        """Which keys are tags that were never indexed, as the store was used by a broker before 5.4 then."""
        if self._tags_seen:
            return np.zeros(len(seen), bool)
        first = np.flatnonzero(seen & tags)
        self._tags_seen = len(first) > 0
        return tags & (np.arange(len(seen)) < first[0]) if len(first) else tags

    def _check_times(self, file: _File, numbers: Column, entries: Column, times: Column) -> None:
        header = file.header
        for number, at, time, offset in (
            (1, 0, header.begin_timestamp, header.begin_physical_offset),
            (file.count - 1, 8, header.end_timestamp, header.end_physical_offset),
        ):
            for row in np.flatnonzero(numbers == number):
                true = int(entries["physical_offset"][row]), int(times[row])
                if number == 1:
                    file.begin_timestamp = true[1]
                self._check_header(file, at, time, true[1])
                self._check_header(file, at + 16, offset, true[0])
        # the first entry of a file is relative to the end of the previous file
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

    def _check_header(self, file: _File, at: int, says: int, true: int) -> None:
        # a header with an outdated count is outdated as a whole, which has been reported
        if says != true and file.header.next_number == file.count:
            self.ctx.found.add("index-header", file.name, offset=at, expected=true, actual=says)

    def _report_strangers(self, file: _File, numbers: Column, entries: Column, record: Column) -> None:
        """Report entries that match no key: those of a message with other keys, and those without a message."""
        for code, chosen, expected in (
            ("index-entry", record, "the hash of a key of its message"),
            ("index-ghost", ~record, "the position of a message"),
        ):
            self._report(code, file, numbers[chosen], entries[chosen], expected)

    def _report(self, code: str, file: _File, numbers: Column, entries: Column, expected: str) -> None:
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
        """Report entries after the end of the log, or that there is no index at all."""
        self._end_run()
        if not self.enabled:
            return
        for file in self.files if not self.ctx.log_seen.absent else ():
            for numbers, entries in file.between(self._next, 2**63 - 1):
                self._report("index-ghost", file, numbers, entries, f"an offset before the log's end at {self._next}")
                yield
        if not self.files and self._all_read and self._keys_seen and not self._in_rocks():
            self.ctx.found.add("index-absent", "index")

    def _in_rocks(self) -> bool:
        """Whether a broker keeps the index in RocksDB, or would create it there."""
        try:
            return rocks_index_of(self.ctx.layout) is not None
        except (CorruptFile, MissingRuntime, UnreadableStore):
            return True  # reported by the check of the database


def _among(values: Column, ordered: Column) -> Column:
    """Which values occur in a sorted column; bool."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    among: Column = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return among


def _combine(offsets: Column, hashes: Column) -> Column:
    """Offset and hash combined in one number, which sorts fast.

    Two pairs collide only if multiples of the constant are within 2**31 of each other, which does not happen in
    practice.
    """
    return offsets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + hashes.astype(np.uint64)
