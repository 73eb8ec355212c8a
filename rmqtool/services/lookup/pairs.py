"""Numbers joined to numbers in 16 bytes a pair: what joins of millions of messages need to be held in memory."""

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Column = np.ndarray[Any, np.dtype[np.int64]]


class Pairs:
    """A map from a 64-bit number to all values that were added to it, in the order in which they came."""

    def __init__(self) -> None:
        self._keys, self._values = array("q"), array("q")
        self._sorted: tuple[Column, Column] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, value: int) -> None:
        """One more value of a key."""
        self._keys.append(key)
        self._values.append(value)
        self._sorted = None

    def get(self, key: int) -> list[int]:
        """The values of a key."""
        import numpy as np

        if self._sorted is None:
            # copies: an array that numpy looks into cannot grow any more
            keys, values = (np.array(column, dtype=np.int64) for column in (self._keys, self._values))
            order = np.argsort(keys, kind="stable")
            self._sorted = keys[order], values[order]
        keys, values = self._sorted
        low, high = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        matches: list[int] = values[low:high].tolist()
        return matches
