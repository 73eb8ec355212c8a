"""Findings about topics that were deleted, for good or to be made again."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.findings import Collector
from rmqtool.store.dispatch.lives import Lives, QueueKey, find_remade
from rmqtool.words import command_line, counted


class Numbered(Protocol):
    """A queue as the check sees it, which may have been numbered from 0 on again.

    Attributes:
        lives: what the log says of them.
        former: where each began that followed another; see :class:`FormerLife`.
    """

    lives: Lives
    former: list[Any]

    @property
    def files(self) -> Collection[Any]:
        """Its files."""

    @property
    def again(self) -> int:
        """Messages that the next start puts into the queue."""

    @property
    def about(self) -> dict[str, Any]:
        """What findings say of the queue."""

    def forget(self) -> None:
        """Nothing of what was noted of messages without entries is to be said."""

    def restore(self) -> None:
        """What was noted of former lives is to be said as well."""


def add_deleted(found: Collector, topic: str, messages: int, again: int) -> None:
    """Report a deleted topic whose messages are still in the log.

    Args:
        again: how many of them the next start of a broker puts into queues again.
    """
    consequence = CODES["topic-deleted"].broker
    if again:
        consequence = (
            f"The next start of a broker puts {counted(again, 'message')} of it into queues again, which clients "
            f"find no route to; {command_line('recover')} leaves them out"
        )
    found.add("topic-deleted", "commitlog", topic=topic, count=messages, consequence=consequence)


def settle(ctx: Context, queues: Mapping[QueueKey, Numbered], deleted: Collection[str]) -> None:
    """Report topics that were deleted and made again, and queues that were numbered from 0 on again otherwise.

    Args:
        deleted: topics that are reported as deleted.
    """
    remade = find_remade({key: (queue.lives, bool(queue.files)) for key, queue in queues.items()})
    messages, again = Counter[str](), Counter[str]()
    for (topic, queue_id), queue in sorted(queues.items()):
        if topic in deleted:
            continue
        if topic not in remade:
            _tell_again(ctx, queue)
            continue
        messages[topic] += queue.lives.former
        if queue_id in remade[topic]:
            messages[topic] += queue.lives.messages
            again[topic] += queue.again
            queue.forget()
    for topic in sorted(messages):
        consequence = CODES["topic-remade"].broker
        if again[topic]:
            consequence = (
                f"The next start of a broker puts {counted(again[topic], 'message')} from before into queues again; "
                f"{command_line('recover')} leaves them out"
            )
        ctx.found.add("topic-remade", "commitlog", topic=topic, count=messages[topic], consequence=consequence)


def _tell_again(ctx: Context, queue: Numbered) -> None:
    for life in queue.former:
        ctx.found.add(
            "log-ordinal-repeat",
            life.file,
            offset=life.offset,
            queueOffset=0,
            count=1,
            expected=str(life.next_ordinal),
            actual="0",
            **queue.about,
        )
    queue.restore()
