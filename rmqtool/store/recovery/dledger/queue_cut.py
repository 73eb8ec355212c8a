"""Predict the queue entries that a broker of 5.x in DLedger mode cuts off at its start after a kill.

It adds up the sizes of the messages in the last file of the log without the headers of their entries, takes the result
for the end of the log, and cuts queues that reach beyond. The entries are not made again in this run.

Source: store.dledger.DLedgerCommitLog.dledgerRecoverAbnormally (5.3.3, 5.5.0).
"""

from collections import Counter
from typing import NamedTuple

from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import release_of
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.recovery.dledger.member import MemberVerdict

Key = tuple[str, int]


class QueueCut(NamedTuple):
    """Where a start cuts the queues, and the messages that it does not serve then, by queue."""

    position: int
    reaches: int  # end of the last message in any queue
    unserved: Counter[Key]


def find_queue_cut(layout: StoreLayout, verdict: MemberVerdict) -> QueueCut | None:
    """The cut at the next start; None if there is none, or it cannot be predicted because queues cannot be read.

    Args:
        verdict: the log after that start.

    Raises:
        UnreadableStore: a file of the log cannot be read.
    """
    if not layout.aborted or not release_of(layout).is_5 or verdict.stop_file is None:
        return None
    try:
        reaches = max((queue.recovered.max_physical_offset for queue in every_queue(layout)), default=-1)
    except RmqError:
        return None
    log, position = CommitLog(layout), verdict.stop_file.base
    for item in log.walk(verdict.stop_file.base, verdict.end):
        if isinstance(item, LocatedRecord):
            position += item.record.total_size
    if reaches < position:
        return None
    unserved: Counter[Key] = Counter()
    for item in log.walk(verdict.stop_file.base, verdict.end):
        if isinstance(item, LocatedRecord) and item.physical_offset >= position and _is_queued(item.record):
            unserved[item.record.topic.decode("utf-8", "surrogateescape"), item.record.queue_id] += 1
    return QueueCut(position, reaches, unserved)


def _is_queued(record: Record) -> bool:
    """Whether a message is in a queue: half messages are in that of their own topic, rolled-back ones in none."""
    return record.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)
