"""Compare the index with the keys of the log, in order; rewrite it from the first file that differs.

Index files contain the keys of messages in the order of the log, each file continuing the one before it. After a start
the keys of the last message may be there twice, since a broker adds them again; that is not a fault.
"""

from typing import NamedTuple

import numpy as np

from formats.arrays import Array, Column
from formats.index import ENTRY_SIZE, entries_array, entry_at, file_size, slots_array
from rmqtool.store.disk.mapping import map_file
from rmqtool.store.disk.sparse import data_end
from rmqtool.store.dispatch.batch import RecordBatch
from rmqtool.store.index.builder import INT_MAX, IndexBuilder, IndexFile
from rmqtool.store.index.chains import BLOCK, Chains, used_entries


class _Keys(NamedTuple):
    """Keys in the order in which they are added, with the message of each."""

    physical_offset: Column
    hash: Column
    store_timestamp: Column

    def at(self, which: Column | slice) -> "_Keys":
        return _Keys(self.physical_offset[which], self.hash[which], self.store_timestamp[which])


class WholeIndex:
    """Compares the index with the log, in the state after a broker's start.

    Args:
        index: all its headers must have been written.
        min_physical: where the log begins.

    Attributes:
        good: number of correct files.
        complete: whether all files are correct and no key is missing.
    """

    def __init__(self, index: IndexBuilder, min_physical: int) -> None:
        self._index, self._min_physical = index, min_physical
        self.good = len(index.files)
        self.complete = True
        self._stopped = False  # nothing more is compared
        self._files = index.files
        for number, file in enumerate(index.files):
            if not _is_sound(file):
                self.good = number
                self.complete = False
                break
        self._number = 0  # number of the next file
        self._table: Array = np.empty(0)
        self._at = self._stop = 0  # number of the next entry, and of the end
        self._begin = 0  # base time of this file's entries
        self._last = -1  # physical offset of the last entry's message
        self._last_hashes = np.empty(0, np.int64)
        self._tags_begun = False  # whether an entry for tags was seen
        self._open()

    # -- files ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Continue with the next file that has an entry for a message of the log."""
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
        """Compare the keys of consecutive records.

        Args:
            position: position of each record.
        """
        if self._stopped or not len(batch.key_row):
            return
        keys = _Keys(position[batch.key_row], batch.hashes, batch.store_timestamp[batch.key_row])
        tags = batch.tag_keys
        # if files of the log overlap, the index ignores messages before its last one
        ahead = keys.physical_offset >= self._last
        if not ahead.all():
            keys, tags = keys.at(ahead), tags[ahead]
        if self._tags_begun or not tags.any():
            self._compare(keys)
        else:
            self._compare_without_tags(keys, np.flatnonzero(~tags))

    def _compare_without_tags(self, keys: "_Keys", others: Column) -> None:
        """Compare keys of records that may have been indexed by a broker before 5.4, which does not index tags.

        Args:
            others: positions of the keys that are not tags.
        """
        done = self._compare(keys.at(others), ends=False)
        if self._stopped:
            return
        # the next entry may be the first one for tags, after the keys matched so far
        first = int(others[done - 1]) + 1 if done else 0
        stop = int(others[done]) if done < len(others) else len(keys.hash)
        self._open()
        if self._at < self._stop:
            entry = self._table[self._at]
            part = keys.at(slice(first, stop))
            met = (part.physical_offset == entry["physical_offset"]) & (part.hash == entry["key_hash"])
            if met.any():
                self._tags_begun = True
                self._compare(keys.at(slice(first + int(np.argmax(met)), None)))
                return
        self._compare(keys.at(others[done:]))

    def _compare(self, keys: "_Keys", *, ends: bool = True) -> int:
        """Compare keys with the next entries; returns how many match.

        Args:
            ends: whether the first mismatch makes the rest of the index wrong.
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
        self.good, self.complete, self._stopped = min(good, self.good), False, True

    def _remember(self, physical: Column, hashes: Column) -> None:
        last = int(physical[-1])
        own = hashes[int(np.searchsorted(physical, last)) :]
        self._last_hashes = own if last != self._last else np.concatenate((self._last_hashes, own))
        self._last = last

    def _pass_repeated(self) -> bool:
        """Skip an entry that the previous message has already."""
        entry = self._table[self._at]
        if int(entry["physical_offset"]) != self._last or int(entry["key_hash"]) not in self._last_hashes:
            return False
        self._at += 1
        return True

    def _are_timed(self, entries: Array, times: Column) -> bool:
        """Whether the times of entries, and those in the header, are those of their messages."""
        file, first, last = self._file, self._at, self._at + len(entries) - 1
        if first == 1:
            stated = file.begin_timestamp, file.begin_physical_offset
            if stated != (int(times[0]), int(entries["physical_offset"][0])):
                return False
        if last == file.index_count - 1:
            stated = file.end_timestamp, file.end_physical_offset
            if stated != (int(times[-1]), int(entries["physical_offset"][-1])):
                return False
        # the first entry of a file is relative to the end of the previous file
        rest = slice(1 if first == 1 else 0, None)
        begin = self._begin
        expected = np.clip((times[rest] - begin) // 1000, 0, INT_MAX) if begin > 0 else 0
        return bool((entries["seconds"][rest] == expected).all())

    def finish(self) -> None:
        """Check that no entry follows the last message's."""
        while not self._stopped:
            self._open()
            if self._at >= self._stop:
                return
            if not self._pass_repeated():
                self._differs(self._number - 1)

    # -- writing ----------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Remove the wrong part; returns the physical offset from which on messages must be indexed again."""
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
        """Index messages from there on; for the first one only the keys that are missing, if a file was full."""
        batch = batch.since(self._from)
        own = np.flatnonzero(batch.physical_offset[batch.key_row] == self._from)
        if len(own) and self._has:
            keep = np.ones(len(batch.key_row), bool)
            keep[own[: self._has]] = False
            batch = batch.with_columns(key_row=batch.key_row[keep], key_hash=batch.key_hash[keep])
        self._index.put(batch)


def _where(file: IndexFile) -> str:
    path = file.staged or file.path
    assert path is not None
    return path


def _entries(file: IndexFile) -> Array:
    return entries_array(memoryview(map_file(_where(file))), file.slots)[: file.entries]


def _is_sound(file: IndexFile) -> bool:
    """Whether a file has the right length, and its counts and chains are right."""
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
