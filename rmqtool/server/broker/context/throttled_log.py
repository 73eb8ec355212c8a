"""A log that does not repeat itself."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

_AGAIN = 60.0  # s until the same text is logged again
_MOST = 1000  # different texts that are remembered

Log = Callable[[str], None]


class ThrottledLog:
    """Logs problems. The same text is logged at most once a minute, with the number of times that it was left out.

    Args:
        now: seconds that only go forward.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how often since then

    def error(self, text: str) -> None:
        """Log that something could not be done."""
        self._write(text, self._log.error)

    def warn(self, text: str) -> None:
        """Log that something is not as it should be."""
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
