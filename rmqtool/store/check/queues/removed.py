"""Findings about topics that were deleted, whether or not they were created again."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.findings import FindingCollector
from rmqtool.store.dispatch.generations import Generations, QueueKey, find_remade
from rmqtool.words import command_line, counted


class QueueNumbering(Protocol):
    """State of a queue whose numbering may have started again at 0.

    Attributes:
        generations: tracks where the numbering of its messages in the log starts again.
        former: state before each such restart; see :class:`FormerGeneration`.
    """

    generations: Generations
    former: list[Any]

    @property
    def files(self) -> Collection[Any]:
        """Files of the queue."""

    @property
    def again(self) -> int:
        """Number of messages that the next start would put into the queue."""

    @property
    def about(self) -> dict[str, Any]:
        """Fields of findings that identify the queue."""

    def forget(self) -> None:
        """Drop the missing messages, so that they are not reported."""

    def restore(self) -> None:
        """Add the missing messages of former generations, so that they are reported."""


def add_deleted(findings: FindingCollector, topic: str, messages: int, again: int) -> None:
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
    findings.add("topic-deleted", "commitlog", topic=topic, count=messages, consequence=consequence)


def settle(ctx: Context, queues: Mapping[QueueKey, QueueNumbering], deleted: Collection[str]) -> None:
    """Report topics that were deleted and created again, and other queues whose numbering started again at 0.

    Args:
        deleted: topics that are reported as deleted.
    """
    remade = find_remade({key: (queue.generations, bool(queue.files)) for key, queue in queues.items()})
    messages, again = Counter[str](), Counter[str]()
    for (topic, queue_id), queue in sorted(queues.items()):
        if topic in deleted:
            continue
        if topic not in remade:
            _tell_again(ctx, queue)
            continue
        messages[topic] += queue.generations.former
        if queue_id in remade[topic]:
            messages[topic] += queue.generations.messages
            again[topic] += queue.again
            queue.forget()
    for topic in sorted(messages):
        consequence = CODES["topic-remade"].broker
        if again[topic]:
            consequence = (
                f"The next start of a broker puts {counted(again[topic], 'earlier message')} into queues again; "
                f"{command_line('recover')} leaves them out"
            )
        ctx.found.add("topic-remade", "commitlog", topic=topic, count=messages[topic], consequence=consequence)


def _tell_again(ctx: Context, queue: QueueNumbering) -> None:
    for generation in queue.former:
        ctx.found.add(
            "log-ordinal-repeat",
            generation.file,
            offset=generation.offset,
            queueOffset=0,
            count=1,
            expected=str(generation.next_ordinal),
            actual="0",
            **queue.about,
        )
    queue.restore()
