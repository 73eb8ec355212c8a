"""Generating unique message ids like a producer.

Source: common.message.MessageClientIDSetter (4.9.8); message-services 3. :func:`formats.message.ids.parse_unique_id`
reads the parts of an id.
"""

import struct
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from hashlib import blake2b

_MILLIS = struct.Struct(">i")
_AT_A_TIME = 1024


def stable_id(seed: str, number: int, millis_of_month: int = 0) -> str:
    """Return the same id for the same arguments, in the form of a producer's: 32 hexadecimal digits.

    Java's tools take the time for a hint when they look for an id; with 0 they begin at the start of the month.

    Args:
        seed: what is numbered, such as one run of a job.
    """
    fixed = blake2b(f"{seed}:{number >> 16}".encode(), digest_size=10).digest()
    return (fixed + struct.pack(">IH", millis_of_month & 0xFFFFFFFF, number & 0xFFFF)).hex().upper()


class UniqueIds:
    """A producer's source of ids. Ids are unique unless the counter wraps within one millisecond.

    Args:
        address: 4 or 16 bytes of the producer's IP.
        process_id: its low 16 bits are used.
        loader: 4 bytes that distinguish processes with the same id (the hash of a class loader in Java).
        clock: ms since the epoch.
        zone: time zone of the months from which the time is counted; None for the local zone, as in Java.
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
        """Return the next id: 32 hexadecimal digits, or 56 with an IPv6 address."""
        return self.take(1)[0]

    def take(self, count: int) -> list[str]:
        """Return several ids; cheaper than calling the object repeatedly."""
        taken: list[str] = []
        while (left := count - len(taken)) > 0:
            batch = min(left, _AT_A_TIME)  # far less than the counter's range, since they share a timestamp
            with self._lock:
                elapsed = self._millis_of_month()
                counter, self._counter = self._counter, (self._counter + batch) & 0xFFFF
            same = (self._fixed + _MILLIS.pack((elapsed + 2**31) % 2**32 - 2**31)).hex().upper()
            digits = struct.pack(f">{batch}H", *(n & 0xFFFF for n in range(counter, counter + batch))).hex().upper()
            taken += [same + digits[at : at + 4] for at in range(0, 4 * batch, 4)]
        return taken

    def _millis_of_month(self) -> int:
        """Return the milliseconds since the start of the month."""
        now = self._clock()
        if now >= self._next:
            self._start, self._next = month_of(now, self._zone)
        elapsed = now - self._start
        # the clock may have been set back to shortly before the start of the month
        return 0 if -1_000_000 < elapsed < 0 else elapsed


def month_of(millis: int, zone: tzinfo | None) -> tuple[int, int]:
    """Return the start of the month that a time is in, and of the next month; ms since the epoch."""
    day = datetime.fromtimestamp(millis / 1000, zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (day.replace(tzinfo=None) + timedelta(days=32)).replace(day=1, tzinfo=day.tzinfo)
    return round(day.timestamp() * 1000), round(following.timestamp() * 1000)
