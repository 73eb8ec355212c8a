"""Counts what this process fetches of remote stores."""

from threading import Lock


class Meter:
    """Counts the bytes fetched by this process."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = Lock()

    def add(self, size: int) -> None:
        """Add to the count."""
        with self._lock:
            self.bytes += size


METER = Meter()
