"""Gather what queues and log prove, by the passes of ``check``, for repairing config files."""

from rmqtool.store.builders.config_evidence import Evidence
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.findings import FindingCollector
from rmqtool.store.check.configs import is_overdue
from rmqtool.store.check.log.log import LogCheck
from rmqtool.store.check.marks import queues_are_files
from rmqtool.store.check.queues.queues import QueueCheck
from rmqtool.store.check.queues.rocks import RocksQueueCheck, open_database
from rmqtool.store.config.topic_entries import ProvedQueues
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.deleted import DeletedTopics


def gather(layout: StoreLayout) -> Evidence | None:
    """Read queues and log once; None if there are none, or not in a readable form.

    Raises:
        UnreadableStore: a file cannot be read.
    """
    ctx = Context(layout, FindingCollector(0))
    queues: QueueCheck | RocksQueueCheck
    if queues_are_files(ctx):
        if not (ctx.log.segments.files or ctx.layout.queue_dirs()):
            return None
        queues = QueueCheck(ctx)
        for _ in queues.load():
            pass
    elif (database := open_database(ctx)) is not None:
        queues = RocksQueueCheck(ctx, database)
    else:
        return None
    for _ in LogCheck(ctx, queues.take).run():
        pass
    for _ in queues.finish():
        pass
    # a queue whose files are gone is no shorter than its part in the tier
    known = ctx.queues_seen.begins.keys() & ctx.queues_seen.ends.keys()
    known |= ctx.tier.queues.keys() if ctx.tier is not None else set()
    evidence = Evidence(
        {key: (min(ctx.begin_of(key), ctx.end_of(key)), ctx.end_of(key)) for key in sorted(known)},
        other={topic for topic, _queue_id, _path in ctx.layout.queue_dirs("batchconsumequeue")},
        overdue={level for level, due in ctx.queues_seen.first_due.items() if is_overdue(ctx, due, 0)},
    )
    deleted = DeletedTopics(layout)  # their messages in the log must not bring them back
    counts, stray = ProvedQueues.of(key for key in evidence.ranges if key[0] not in deleted)
    evidence.topics.update(counts)
    evidence.stray.extend(stray)
    return evidence
