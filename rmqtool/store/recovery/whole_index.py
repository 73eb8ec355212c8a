"""The index held against the keys of the log, in order, and rewritten from the first file that differs.

Index files hold the keys of messages in the order of the log, each file going on where the one before it ended. After a
start the keys of the last message may be there twice, for a broker puts them again; that is no fault.
"""

from typing import Any, NamedTuple

import numpy as np

from formats.index import ENTRY_SIZE, entries_array, entry_at, file_size, slots_array
from rmqtool.store.disk.mapping import map_file
from rmqtool.store.disk.sparse import data_end
from rmqtool.store.dispatch.batch import RecordBatch
from rmqtool.store.index.builder import INT_MAX, IndexBuilder, IndexFile
from rmqtool.store.index.chains import BLOCK, Chains, used_entries

Column = np.ndarray[Any, np.dtype[Any]]
Table = np.ndarray[Any, np.dtype[Any]]


class _Keys(NamedTuple):
    """Keys in the order in which they are put, and of each the message it is of."""

    physical_offset: Column
    hash: Column
    store_timestamp: Column

    def at(self, which: Column | slice) -> "_Keys":
        return _Keys(self.physical_offset[which], self.hash[which], self.store_timestamp[which])


class WholeIndex:
    """Compares the index with the log, as a broker's start leaves it and after it was finished.

    Args:
        index: with all its headers written.
        min_physical: where the log begins.

    Attributes:
        good: how many of its files are right.
        complete: all files are, and they have all keys.
    """

    def __init__(self, index: IndexBuilder, min_physical: int) -> None:
        self._index, self._min_physical = index, min_physical
        self.good = len(index.files)
        self.complete = True
        self._over = False  # nothing is compared any more
        self._files = index.files
        for number, file in enumerate(index.files):
            if not _is_sound(file):
                self.good = number
                self.complete = False
                break
        self._number = 0  # of the file that comes next
        self._table: Table = np.empty(0)
        self._at = self._stop = 0  # numbers of the entry that comes next, and of the one behind the last
        self._begin = 0  # time that the entries of this file count from
        self._last = -1  # physical offset of the message whose entry was met last
        self._last_hashes = np.empty(0, np.int64)
        self._tags_begun = False  # whether an entry for tags was met
        self._open()

    # -- files ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Go on with the next file that has an entry for a message of the log."""
        while self._at >= self._stop and self._number < self.good:
            file = self._files[self._number]
            self._table, self._stop = _entries(file), file.index_count
            old = self._table["physical_offset"][1 : self._stop] < self._min_physical
            fresh = np.flatnonzero(~old)
            self._at = 1 + int(fresh[0]) if len(fresh) else self._stop
            self._begin = file.begin_timestamp
            self._number += 1

    @property
    def _file(self) -> IndexFile:
        return self._files[self._number - 1]

    # -- keys -------------------------------------------------------------------------------------------------------

    def take(self, batch: RecordBatch, position: Column) -> None:
        """The keys of consecutive records.

        Args:
            position: where each of them lies.
        """
        if self._over or not len(batch.key_row):
            return
        keys = _Keys(position[batch.key_row], batch.hashes, batch.store_timestamp[batch.key_row])
        tags = batch.tag_keys
        # where files of the log overlap, the index takes no message in front of its last one
        ahead = keys.physical_offset >= self._last
        if not ahead.all():
            keys, tags = keys.at(ahead), tags[ahead]
        if self._tags_begun or not tags.any():
            self._take(keys)
        else:
            self._take_old(keys, np.flatnonzero(~tags))

    def _take_old(self, keys: "_Keys", others: Column) -> None:
        """Keys of records that a broker before 5.4 may have taken, which put no tags into the index.

        Args:
            others: positions of the keys that are no tags.
        """
        done = self._take(keys.at(others), ends=False)
        if self._over:
            return
        # the entry that comes next may be for the first tags of all, behind the keys that were met
        first = int(others[done - 1]) + 1 if done else 0
        stop = int(others[done]) if done < len(others) else len(keys.hash)
        self._open()
        if self._at < self._stop:
            entry = self._table[self._at]
            part = keys.at(slice(first, stop))
            met = (part.physical_offset == entry["physical_offset"]) & (part.hash == entry["key_hash"])
            if met.any():
                self._tags_begun = True
                self._take(keys.at(slice(first + int(np.argmax(met)), None)))
                return
        self._take(keys.at(others[done:]))

    def _take(self, keys: "_Keys", *, ends: bool = True) -> int:
        """How many of these keys have the entries that come next, one after the other.

        Args:
            ends: the first that has not is where the index ends to be right.
        """
        physical, hashes, times = keys
        done = 0
        while done < len(hashes):
            if self._at >= self._stop:
                self._open()
            if self._at >= self._stop:
                if ends:
                    self._differs(self._number)
                break
            part = self._table[self._at : min(self._at + len(hashes) - done, self._stop)]
            part_of_batch = slice(done, done + len(part))
            same = (part["physical_offset"] == physical[part_of_batch]) & (part["key_hash"] == hashes[part_of_batch])
            count = len(part) if same.all() else int(np.flatnonzero(~same)[0])
            if count and not self._are_timed(part[:count], times[done : done + count]):
                self._differs(self._number - 1)
                break
            if count:
                done += count
                self._at += count
                self._remember(physical[:done], hashes[:done])
            elif not self._pass_repeated():
                if ends:
                    self._differs(self._number - 1)
                break
        return done

    def _differs(self, good: int) -> None:
        self.good, self.complete, self._over = min(good, self.good), False, True

    def _remember(self, physical: Column, hashes: Column) -> None:
        last = int(physical[-1])
        own = hashes[int(np.searchsorted(physical, last)) :]
        self._last_hashes = own if last != self._last else np.concatenate((self._last_hashes, own))
        self._last = last

    def _pass_repeated(self) -> bool:
        """Go past an entry that the message before it has already."""
        entry = self._table[self._at]
        if int(entry["physical_offset"]) != self._last or int(entry["key_hash"]) not in self._last_hashes:
            return False
        self._at += 1
        return True

    def _are_timed(self, entries: Table, times: Column) -> bool:
        """Whether the times of entries are those of their messages, and the header's, too."""
        file, first, last = self._file, self._at, self._at + len(entries) - 1
        if first == 1:
            stated = file.begin_timestamp, file.begin_physical_offset
            if stated != (int(times[0]), int(entries["physical_offset"][0])):
                return False
        if last == file.index_count - 1:
            stated = file.end_timestamp, file.end_physical_offset
            if stated != (int(times[-1]), int(entries["physical_offset"][-1])):
                return False
        # the first entry of a file is reckoned from the end of the file before it
        rest = slice(1 if first == 1 else 0, None)
        begin = self._begin
        expected = np.clip((times[rest] - begin) // 1000, 0, INT_MAX) if begin > 0 else 0
        return bool((entries["seconds"][rest] == expected).all())

    def finish(self) -> None:
        """Behind the last message there must be no entry more."""
        while not self._over:
            self._open()
            if self._at >= self._stop:
                return
            if not self._pass_repeated():
                self._differs(self._number - 1)

    # -- writing ----------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Take out what is not right; from this physical offset on messages are to be put into the index again."""
        index = self._index
        index.removed = index.removed + [file for file in index.files[self.good :] if file.path is not None]
        index.files = index.files[: self.good]
        last = next((file for file in reversed(index.files) if file.index_count > 1), None)
        self._from, self._has = 0, 0
        if last is not None:
            self._from = max(last.end_physical_offset, 0)
            offsets = _entries(last)["physical_offset"][1 : last.index_count]
            self._has = int((offsets == self._from).sum())
        return self._from

    def put(self, batch: RecordBatch) -> None:
        """Put the keys of messages from there on; of the first one those that it lacks, where a file was full."""
        batch = batch.since(self._from)
        own = np.flatnonzero(batch.physical_offset[batch.key_row] == self._from)
        if len(own) and self._has:
            kept = np.ones(len(batch.key_row), bool)
            kept[own[: self._has]] = False
            batch = batch.with_columns(key_row=batch.key_row[kept], key_hash=batch.key_hash[kept])
        self._index.put(batch)


def _where(file: IndexFile) -> str:
    path = file.staged or file.path
    assert path is not None
    return path


def _entries(file: IndexFile) -> Table:
    return entries_array(memoryview(map_file(_where(file))), file.slots)[: file.entries]


def _is_sound(file: IndexFile) -> bool:
    """Whether a file has its length, and its counts and chains are right."""
    data = memoryview(map_file(_where(file)))
    if len(data) != file_size(file.slots, file.entries):
        return False
    table = entries_array(data, file.slots)[: file.entries]
    first, last = (entry_at(file.slots, number) for number in (0, len(table)))
    table = table[: -(-(data_end(_where(file), first, last) - first) // ENTRY_SIZE)]
    if used_entries(table) != max(file.index_count, 1) or not 0 < file.index_count <= file.entries:
        return False
    chains = Chains(file.slots)
    for start in range(1, file.index_count, BLOCK):
        part = table[start : min(start + BLOCK, file.index_count)]
        if (chains.previous(start, part["key_hash"]) != part["previous_entry"]).any():
            return False
    in_use = int((chains.newest > 0).sum())
    return bool((slots_array(data, file.slots) == chains.newest).all()) and in_use == file.hash_slot_count
