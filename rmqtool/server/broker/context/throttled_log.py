"""What goes wrong in a broker: a reason is logged once, however often it comes."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

_AGAIN = 60.0  # s until the same words are logged once more
_MOST = 1000  # different words that are kept in mind

Log = Callable[[str], None]


class ThrottledLog:
    """Logs reasons. The same words come again after a minute at the earliest, with how often they were meant to.

    Args:
        now: seconds that only go forward.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._told: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how often since then

    def error(self, words: str) -> None:
        """Something could not be done."""
        self._tell(words, self._log.error)

    def warn(self, words: str) -> None:
        """Something is not as it should be."""
        self._tell(words, self._log.warning)

    def _tell(self, words: str, log: Callable[..., None]) -> None:
        now = self._now()
        at, more = self._told.get(words, (now - _AGAIN, 0))
        if now - at < _AGAIN:
            self._told[words] = at, more + 1
            return
        self._told[words] = now, 0
        self._told.move_to_end(words)
        if len(self._told) > _MOST:
            self._told.popitem(last=False)
        if more:
            log("%s (and %d times more since this was logged last)", words, more)
        else:
            log("%s", words)
