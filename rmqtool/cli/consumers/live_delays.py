"""Delayed messages of a live cluster, for ``delay list`` and ``delay due``."""

from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.admin.live.delays import LiveDelays
from rmqtool.admin.live.questions import Session, Warn
from rmqtool.admin.live.queues import LiveQueues
from rmqtool.admin.target import Target
from rmqtool.cli.render.text import note


@contextmanager
def open_delays(target: Target, now: int, warn: Warn) -> Iterator[LiveDelays]:
    """The levels of all brokers, while the connection is open."""
    with Session(target, warn) as session:
        yield LiveDelays(LiveQueues(session, warn), now, note)
