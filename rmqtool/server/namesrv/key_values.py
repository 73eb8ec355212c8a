"""The KV configuration (namesrv.kvconfig.KVConfigManager)."""

import logging
import os
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.fastjson.declare import body_of, read_body
from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.durable import replace_file

log = logging.getLogger(__name__)

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Namespace of order topics: which queues they have on which broker."""

MOST_TEXT = 16 * 1024 * 1024
"""Characters of all entries together."""


@dataclass
class _File:
    """What the file holds, ``kvConfig.json`` of a RocketMQ name server (namesrv.kvconfig.KVConfigSerializeWrapper)."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KeyValueTable:
    """Texts under a namespace and a key.

    Attributes:
        table: by namespace, then by key.

    Args:
        path: file that keeps them, durably at each change. Without it they are kept in memory only.

    Raises:
        UnreadableStore: the file cannot be read.
        CorruptFile: it holds something else.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._kept = None if path is None else read_small(path)
        self.table = _read(path, self._kept) if path and self._kept else {}
        self._size = sum(
            _size(namespace) + sum(_size(*entry) for entry in entries.items())
            for namespace, entries in self.table.items()
        )

    def get(self, namespace: str, key: str) -> str | None:
        """A value."""
        return self.table.get(namespace, {}).get(key)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            Refused: there are too many, or another process changed the file.
            UnreadableStore: the file cannot be written; nothing has changed.
        """
        old = self.get(namespace, key)
        size = self._size + _size(key, value) - (0 if old is None else _size(key, old))
        if namespace not in self.table:
            size += _size(namespace)
        if size > MOST_TEXT:
            raise Refused(f"more than {MOST_TEXT} characters of KV configuration are not kept")
        self._change({**self.table, namespace: {**self.table.get(namespace, {}), key: value}})
        self._size = size

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value, if it exists; the namespace stays.

        Raises:
            Refused, UnreadableStore: as :meth:`put`.
        """
        value = self.get(namespace, key)
        if value is not None:
            left = {name: text for name, text in self.table[namespace].items() if name != key}
            self._change({**self.table, namespace: left})
            self._size -= _size(key, value)

    def _change(self, table: dict[str, dict[str, str]]) -> None:
        if self._path is not None:
            if read_small(self._path) != self._kept:
                log.error("%s: another process has changed it", self._path)
                raise Refused("the file of KV configuration: another process has changed it")
            data = body_of(_File(table))
            try:
                replace_file(os.path.abspath(self._path), data, keep=False)
            except OSError as err:
                reason = os.strerror(err.errno or 0)
                log.error("%s: %s", self._path, reason)
                raise UnreadableStore(f"the file of KV configuration: {reason}") from None
            self._kept = data
        self.table = table


def _read(path: str, data: bytes) -> dict[str, dict[str, str]]:
    try:
        return read_body(_File, data).config_table
    except FormatError as err:
        raise CorruptFile(path, err.at, err.reason) from None


def _size(*texts: str) -> int:
    # memory of an entry beside its texts, so that many empty ones are not free
    return 100 + sum(map(len, texts))
