"""Batches of streams that a store has, so that each is in it once, whatever is killed when.

``config/rmqtoolStreams.json`` names, for each stream, the last batch that is complete, and one that was begun: the
files with its rows, and the record of the log after which it begins. Since the lock is held meanwhile, its messages
stand there in the order of the files; a batch that was begun continues after those that are in the log, even if a
broker has appended others since.
"""

import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from formats.message.properties import UNIQ_KEY, parse
from formats.topics import HALF
from rmqtool.errors import CorruptFile, Refused
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.importer import Importer
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

NAME = "rmqtoolStreams.json"
_BATCH, _BEGUN = "batch", "begun"
R = TypeVar("R", bound="Mapping[str, Any] | ValueError")


def files_begun(root: str, stream: str) -> list[str]:
    """Return the files of a batch that was begun and is not complete.

    Raises:
        CorruptFile: the file with the state cannot be understood.
    """
    begun = _read(StoreLayout(root)).get(stream, {}).get(_BEGUN)
    return [] if begun is None else list(begun["files"])


def _read(layout: StoreLayout) -> dict[str, Any]:
    path = layout.path("config", NAME)
    data = read_small(path)
    if data is None:
        return {}
    try:
        streams = json.loads(data)
        for state in streams.values():
            begun = state.get(_BEGUN)
            numbers = [state[_BATCH]]
            if begun is not None:
                numbers += [begun[name] for name in (_BATCH, "start", "last", "crc")]
                if not all(isinstance(path, str) for path in begun["files"]):
                    raise ValueError("no files")
            if any(type(number) is not int for number in numbers):
                raise ValueError("not a number")
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise CorruptFile(path, None, f"not the state of streams ({type(err).__name__})") from None
    return dict(streams)


class StreamBatches:
    """The batches of one stream.

    Args:
        store: open for writing.
        stream: identifies the stream.

    Raises:
        CorruptFile: the file with the state cannot be understood.
    """

    def __init__(self, store: Store, stream: str) -> None:
        self._store, self._stream = store, stream
        self._path = store.layout.path("config", NAME)
        self._all = _read(store.layout)
        self._state = self._all.get(stream, {_BATCH: -1})

    def has(self, batch: int) -> bool:
        """Return whether a batch is complete."""
        return bool(batch <= self._state[_BATCH])

    def begun(self, batch: int) -> list[str] | None:
        """Return the files of a batch that was begun; None if it was not, or nothing was appended since.

        Raises:
            Refused: they are gone. The rows come again, but in another order, so it is not known which are in the log;
                or another batch was begun, and is not complete.
        """
        begun = self._state.get(_BEGUN)
        if begun is None:
            return None
        if begun[_BATCH] != batch:
            raise Refused(
                f"{self._store.layout.root}: batch {begun[_BATCH]} of stream {self._stream} was begun, and is not "
                f"complete: write it again before batch {batch}"
            )
        gone = [path for path in begun["files"] if not os.path.exists(path)]
        if not gone:
            return list(begun["files"])
        if begun["start"] == self._store.live.end:
            return None
        raise Refused(
            f"{self._store.layout.root}: batch {batch} of stream {self._stream} was begun, and the file with its rows "
            f"is gone: {gone[0]}. To go on: put it back, or take a new checkpointLocation (or txnAppId) and another "
            "store"
        )

    def begin(self, batch: int, files: Sequence[str]) -> None:
        """Note that a batch begins at the end of the log.

        Args:
            files: with its rows; they must be kept until :meth:`end`.
        """
        last = _last(self._store.log)
        self._state[_BEGUN] = {
            _BATCH: batch,
            "files": list(files),
            "start": self._store.live.end,
            "last": -1 if last is None else last.physical_offset,
            "crc": 0 if last is None else _crc(last),
        }
        self._save()

    def end(self, batch: int) -> None:
        """Note that a batch is complete and durable."""
        self._state = {_BATCH: batch, "at": time.time_ns() // 1_000_000}
        self._save()

    def _save(self) -> None:
        self._all[self._stream] = self._state
        replace_file(self._path, json.dumps(self._all, indent=1).encode(), keep=False)

    def missing(self, rows: Iterable[R], importer: Importer) -> Iterator[R]:
        """Yield the rows of the batch that was begun that are not in the log yet.

        Args:
            rows: all of them, each with a unique id.
            importer: learns where half messages are that are in the log.

        Raises:
            Refused: the log is not the one in which it was begun.
        """
        begun, log = self._state[_BEGUN], self._store.log
        self._check(log, begun)
        records = (item for item in log.walk(begun["start"]) if isinstance(item, LocatedRecord))
        for row in rows:
            if not isinstance(row, ValueError):
                # others may lie between; where a row is not found, the log has none of those after it
                wanted = row["properties"][UNIQ_KEY]
                there = next((item for item in records if parse(item.record.properties).get(UNIQ_KEY) == wanted), None)
                if there is not None:
                    if row["topic"] == HALF and isinstance(old := row.get("physicalOffset"), int):
                        importer.remember(old, there.physical_offset)
                    continue
            yield row

    def _check(self, log: CommitLog, begun: Mapping[str, Any]) -> None:
        last, reason = begun["last"], None
        if log.min_offset > begun["start"]:
            reason = f"it begins at {log.min_offset}, and the batch at {begun['start']}"
        elif last >= log.min_offset:
            there = log.read(last)
            if there is None or _crc(there) != begun["crc"]:
                reason = f"another message, or none, is at {last}"
        if reason is not None:
            raise Refused(
                f"{self._store.layout.root}: its log is not the one to which batch {begun[_BATCH]} of stream "
                f"{self._stream} was being appended: {reason}. To go on: a new checkpointLocation (or txnAppId) and "
                "another store"
            )


def _last(log: CommitLog) -> LocatedRecord | None:
    return log.last()


def _crc(item: LocatedRecord) -> int:
    view = item.file.map()
    return zlib.crc32(view[item.at : item.at + item.record.total_size])
