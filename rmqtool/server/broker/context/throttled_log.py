"""A log that does not repeat itself."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

_AGAIN = 60.0  # s before the same text is logged again
_MOST = 1000  # most texts remembered

Log = Callable[[str], None]


class ThrottledLog:
    """Logs problems; the same text at most once a minute, with the number of repetitions.

    Args:
        now: monotonic clock, in seconds.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # time, and repetitions since

    def error(self, text: str) -> None:
        """Log that something could not be done."""
        self._write(text, self._log.error)

    def warn(self, text: str) -> None:
        """Log a warning."""
        self._write(text, self._log.warning)

    def _write(self, text: str, log: Callable[..., None]) -> None:
        now = self._now()
        at, more = self._logged.get(text, (now - _AGAIN, 0))
        if now - at < _AGAIN:
            self._logged[text] = at, more + 1
            return
        self._logged[text] = now, 0
        self._logged.move_to_end(text)
        if len(self._logged) > _MOST:
            self._logged.popitem(last=False)
        if more:
            log("%s (and %d times more since this was logged last)", text, more)
        else:
            log("%s", text)
