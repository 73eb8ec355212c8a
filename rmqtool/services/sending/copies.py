"""Copies of stored messages, with everything that services preserve when they move a message."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import Record
from formats.primitives import host_text
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.index.reader import BadIndex, IndexView, open_index, physical_offsets
from rmqtool.store.log.commit_log import CommitLog

_MOST_FOUND = 1 << 10  # messages of one key to read
_ANY = 1 << 31  # more entries than a file has


def copy_of(record: Record, topic: str, queue_id: int, properties: dict[str, str], **changes: Any) -> NewMessage:
    """A message to store, with body, flags, born time and both hosts of a stored one, except for ``changes``."""
    fields: dict[str, Any] = {
        "body": record.body,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born_timestamp": record.born_timestamp,
        "born_host": host_text(record.born_address, record.born_port),
        "store_host": host_text(record.store_address, record.store_port),
        "reconsume_times": record.reconsume_times,
        "from_store": True,
    }
    return NewMessage(topic=topic, queue_id=queue_id, properties=properties, **fields | changes)


class EarlierCopies:
    """The copies that a previous process stored and had not yet recorded when it was killed.

    A service that moves messages in a fixed order continues after a kill where its position was last written, and meets
    messages that it has already moved. Their copies are in the log, and the index has them. A broker does not look, and
    stores them again. As the order is fixed, the search ends where copies end: it costs a few look-ups at a start.

    Messages without a unique id are not recognised.

    Args:
        store: open for writing.
        end: end of the log when it was opened: only messages before it can have such copies.
        misses: number of messages in a row without a copy, after which the following ones have none either.
    """

    def __init__(self, store: Store, end: int, *, misses: int = 32) -> None:
        self._store, self._end = store, end
        self._misses_left = self._misses = misses
        self._taken: set[int] = set()  # physical offsets of copies that belong to a message

    @cached_property
    def _files(self) -> list[IndexView]:
        files = [file for file in open_index(self._store.layout) if not isinstance(file, BadIndex)]
        for file in files:
            if file.header.index_count > 1:  # entries that are added to the newest one lead to the older ones
                file.header = file.header._replace(index_count=_ANY)
        return files

    @cached_property
    def _log(self) -> CommitLog:
        return CommitLog(self._store.layout)

    def take(self, record: Record, topic: str, queue_id: int, added: Mapping[str, str]) -> bool:
        """Whether a copy of a stored message exists; each copy counts for one message.

        Args:
            topic, queue_id: where the copy would go.
            added: properties that show a copy to be one, such as the number of times it was moved.
        """
        if not self._misses_left or record.physical_offset >= self._end:
            return False
        unique = parse(record.properties).get(UNIQ_KEY)
        if unique is None:
            return False
        self._store.dispatch()  # the index is not read while it is written
        for offset in physical_offsets(self._files, topic, unique, limit=_MOST_FOUND):
            if not record.physical_offset < offset < self._end or offset in self._taken:
                continue
            earlier = self._log.read(offset, crc=False)
            if earlier is None or earlier.record.topic.decode() != topic or earlier.record.queue_id != queue_id:
                continue
            properties = parse(earlier.record.properties)
            same = _identity(earlier.record) == _identity(record) and properties.get(UNIQ_KEY) == unique
            if same and added.items() <= properties.items():
                self._taken.add(offset)
                self._misses_left = self._misses
                return True
        self._misses_left -= 1
        return False


def _identity(record: Record) -> tuple[object, ...]:
    """What a copy has in common with the message; a retry of it has another number of times."""
    return (record.born_timestamp, record.born_address, record.born_port, record.body_crc, record.reconsume_times)
