"""The finding about a deleted topic."""

from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import Collector
from rmqtool.words import command_line, counted


def add_deleted(found: Collector, topic: str, messages: int, again: int) -> None:
    """Report a deleted topic whose messages are still in the log.

    Args:
        again: number of messages that the next start of a broker would put into queues again.
    """
    consequence = CODES["topic-deleted"].broker
    if again:
        consequence = (
            f"The next start of a broker puts {counted(again, 'message')} of it into queues again, which clients "
            f"find no route to; {command_line('recover')} leaves them out"
        )
    found.add("topic-deleted", "commitlog", topic=topic, count=messages, consequence=consequence)
