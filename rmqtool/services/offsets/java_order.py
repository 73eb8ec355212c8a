"""The order in which a broker writes the entries of a table: that of Java's ConcurrentHashMap."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", str, int)
_SLOTS = tuple(1 << bits for bits in range(4, 21))  # that a map may have


class JavaOrder(Generic[K]):
    """Keys in the order of a file; new ones go where Java's map puts them.

    The order of the file shows how many slots the map had; if it does not, new keys go to the end.

    Args:
        keys: in the order of the file.
        hash_of: ``hashCode`` of a key.
        slots: of the broker's own map, which is tried first.
    """

    def __init__(self, keys: Iterable[K], hash_of: Callable[[K], int], slots: int) -> None:
        self._hash_of: Callable[[K], int] = hash_of
        self._spread: dict[K, int] = {}
        self._keys: list[K] = list(keys)
        for key in self._keys:
            self._note(key)
        self._count = next((count for count in (slots, *_SLOTS) if self._is_sorted(count)), 0)

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._spread

    def __len__(self) -> int:
        return len(self._keys)

    def _note(self, key: K) -> None:
        hash_code = self._hash_of(key) & 0xFFFFFFFF
        self._spread[key] = (hash_code ^ hash_code >> 16) & 0x7FFFFFFF

    def _slot(self, key: K) -> int:
        return self._spread[key] & (self._count - 1)

    def _is_sorted(self, count: int) -> bool:
        places = [self._spread[key] & (count - 1) for key in self._keys]
        return places == sorted(places)

    def add(self, key: K) -> None:
        """Add a key."""
        self._note(key)
        if not self._count:
            self._keys.append(key)
        elif 4 * (len(self._keys) + 1) >= 3 * self._count:  # the map grows at a load factor of 0.75
            self._keys.append(key)
            while 4 * len(self._keys) >= 3 * self._count:
                self._count *= 2
            self._keys.sort(key=self._slot)
        else:
            insort(self._keys, key, key=self._slot)

    def become(self, keys: "dict[K, object] | set[K]") -> None:
        """Change to these keys; new ones are added in their order."""
        for key in keys:
            if key not in self._spread:
                self.add(key)
        if len(self._keys) > len(keys):
            self._keys = [key for key in self._keys if key in keys]
            self._spread = {key: self._spread[key] for key in self._keys}
