"""Properties of many records: which are not plain at a glance, compiled."""

from typing import Any

import numpy as np

from formats.jit import address_of, byte_at, kernel
from formats.kernel import Column

_ITEM, _NAME, _VALUE = range(3)


@kernel
def _odd(base: Any, at: Any, length: Any, out: Any) -> Any:
    count = 0
    for i in range(len(at)):
        here = base + at[i]
        stop = here + length[i]
        inside = _ITEM
        odd = False
        byte = 1
        while here < stop and not odd:
            byte = byte_at(here)
            here += 1
            if byte == 2:
                odd = inside == _NAME
                inside = _ITEM
            elif byte >= 0x80:
                odd = True
            elif inside != _VALUE:
                if byte == 1:
                    odd = inside == _ITEM
                    inside = _VALUE
                else:
                    odd = byte == 0
                    inside = _NAME
        if odd or inside == _NAME or byte == 0:
            out[count] = i
            count += 1
    return count


def odd_properties(buffer: Any, at: Column, length: Column) -> Column:
    """Rows whose properties are anything but ASCII items with a name and a separator; ascending.

    Args:
        at, length: where each record's properties lie in the buffer, int64.

    Raises:
        ValueError: a position outside the buffer.
    """
    address, keep = address_of(buffer)
    if len(at) and (int(at.min()) < 0 or int(length.min()) < 0 or int((at + length).max()) > memoryview(buffer).nbytes):
        raise ValueError("properties outside the buffer")
    out = np.empty(len(at), np.int64)
    count = _odd(address, np.ascontiguousarray(at), np.ascontiguousarray(length), out)
    del keep
    return out[:count]
