"""Half messages whose outcome a broker has not confirmed: it will ask for it."""

import threading
import time

from rmqtool.cli.framework.ending import StopSignal
from rmqtool.client.consumer.received import Received
from rmqtool.client.producing.transactions import State

_MOST_SECONDS = 150.0  # by default brokers check every minute for messages older than six seconds


class Undecided:
    """The messages of one run that brokers may ask about.

    Args:
        state: how each of them ends.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}

    def add(self, message_id: str, line: int) -> None:
        """Add a message whose outcome was sent but not confirmed."""
        with self._lock:
            self._open[message_id] = line

    def answer(self, message: Received) -> State:
        """The outcome of a message; unknown for other runs and for messages still being sent."""
        with self._lock:
            return State.UNKNOWN if self._open.pop(message.message_id, None) is None else self.state

    def lines(self) -> list[int]:
        """Line numbers of open messages."""
        with self._lock:
            return sorted(self._open.values())

    def wait(self, ending: StopSignal) -> None:
        """Until brokers have asked about all of them, for a while, or until a signal comes."""
        end = time.monotonic() + _MOST_SECONDS
        while self.lines() and not ending.asked and time.monotonic() < end:
            ending.wait(200)
