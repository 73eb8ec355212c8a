"""The KV configuration (namesrv.kvconfig.KVConfigManager)."""

from rmqtool.errors import Refused

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Namespace of order topics: which queues they have on which broker."""

MOST_TEXT = 16 * 1024 * 1024
"""Characters of all entries together."""


class KeyValues:
    """Texts under a namespace and a key.

    Attributes:
        table: by namespace, then by key.
    """

    def __init__(self) -> None:
        self.table: dict[str, dict[str, str]] = {}
        self._size = 0

    def get(self, namespace: str, key: str) -> str | None:
        """A value."""
        return self.table.get(namespace, {}).get(key)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Enter or change a value.

        Raises:
            Refused: there would be too much.
        """
        old = self.get(namespace, key)
        size = self._size + _size(key, value) - (0 if old is None else _size(key, old))
        if namespace not in self.table:
            size += _size(namespace)
        if size > MOST_TEXT:
            raise Refused(f"more than {MOST_TEXT} characters of KV configuration are not kept")
        self._size = size
        self.table.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if it is there; the namespace stays."""
        value = self.table.get(namespace, {}).pop(key, None)
        if value is not None:
            self._size -= _size(key, value)


def _size(*texts: str) -> int:
    # each counts for what it takes beside its texts, so that many empty ones are not free
    return 100 + sum(map(len, texts))
