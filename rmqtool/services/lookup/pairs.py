"""A multimap of numbers with 16 bytes per pair, for joins over millions of messages."""

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Column = np.ndarray[Any, np.dtype[np.int64]]


class Pairs:
    """A map from 64-bit numbers to values, which keep the order in which they were added."""

    def __init__(self) -> None:
        self._keys, self._values = array("q"), array("q")
        self._sorted: tuple[Column, Column] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, value: int) -> None:
        """Add a value to a key."""
        self._keys.append(key)
        self._values.append(value)
        self._sorted = None

    def get(self, key: int) -> list[int]:
        """The values of a key."""
        import numpy as np

        if self._sorted is None:
            # copied, as an array with an exported buffer cannot grow
            keys, values = (np.array(column, dtype=np.int64) for column in (self._keys, self._values))
            order = np.argsort(keys, kind="stable")
            self._sorted = keys[order], values[order]
        keys, values = self._sorted
        low, high = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        matches: list[int] = values[low:high].tolist()
        return matches
