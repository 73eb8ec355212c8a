"""Unique ids as a producer makes them, and what they say.

Source: common.message.MessageClientIDSetter (4.9.8); message-services 3. :func:`formats.message.ids.parse_unique_id`
reads the parts of an id.
"""

import struct
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo

_MILLIS = struct.Struct(">i")
_AT_A_TIME = 1024


class UniqueIds:
    """A producer's source of ids: no two are the same while the counter does not wrap within one millisecond.

    Args:
        address: 4 or 16 bytes of the producer's IP.
        process_id: its low 16 bits are used.
        loader: 4 bytes that stand for the process beside its id (a class loader's hash in Java).
        clock: ms since the epoch.
        zone: of the month that the time is counted from; None is the local one, as in Java.
    """

    def __init__(
        self, address: bytes, process_id: int, loader: int, clock: Callable[[], int], zone: tzinfo | None = None
    ) -> None:
        if len(address) not in (4, 16):
            raise ValueError(f"an address of {len(address)} bytes")
        self._fixed = address + struct.pack(">HI", process_id & 0xFFFF, loader & 0xFFFFFFFF)
        self._clock, self._zone = clock, zone
        self._counter = 0
        self._lock = threading.Lock()
        self._start, self._next = month_of(clock(), zone)

    def __call__(self) -> str:
        """The next id: 32 hexadecimal digits, or 56 with an IPv6 address."""
        return self.take(1)[0]

    def take(self, count: int) -> list[str]:
        """Several ids, for less than one by one."""
        taken: list[str] = []
        while (left := count - len(taken)) > 0:
            some = min(left, _AT_A_TIME)  # far fewer than the counter has, for their time is the same
            with self._lock:
                elapsed = self._millis_of_month()
                counter, self._counter = self._counter, (self._counter + some) & 0xFFFF
            same = (self._fixed + _MILLIS.pack((elapsed + 2**31) % 2**32 - 2**31)).hex().upper()
            digits = struct.pack(f">{some}H", *(n & 0xFFFF for n in range(counter, counter + some))).hex().upper()
            taken += [same + digits[at : at + 4] for at in range(0, 4 * some, 4)]
        return taken

    def _millis_of_month(self) -> int:
        """Milliseconds since the beginning of the month."""
        now = self._clock()
        if now >= self._next:
            self._start, self._next = month_of(now, self._zone)
        elapsed = now - self._start
        # the clock may have been set back a little over the beginning of the month
        return 0 if -1_000_000 < elapsed < 0 else elapsed


def month_of(millis: int, zone: tzinfo | None) -> tuple[int, int]:
    """Beginning of the month that a time is in, and of the next one; ms since the epoch."""
    day = datetime.fromtimestamp(millis / 1000, zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (day.replace(tzinfo=None) + timedelta(days=32)).replace(day=1, tzinfo=day.tzinfo)
    return round(day.timestamp() * 1000), round(following.timestamp() * 1000)
