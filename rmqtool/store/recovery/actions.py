"""What a recovery changes, as file actions of a transaction, and what it found, as a report."""

import os
from collections import Counter
from collections.abc import Callable

from formats import checkpoint
from formats.endings import Ending
from rmqtool.store.changes.change import Transaction
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.log.commit_log import Found
from rmqtool.store.recovery.losses import destroys, kept_by_salvage, not_looked_at
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.report import LogStop, Loss, QueueChange, RecoveryReport

Say = Callable[[str, str], None]


def lost(recovery: Recovery) -> tuple[list[Loss], int]:
    """(messages, bytes) behind the end of the log: intact records that nothing reaches any more."""
    counts: Counter[tuple[str, int]] = Counter()
    cut = sum(has_bytes(path, start, stop) - start for path, start, stop in _tail(recovery))
    cut += sum(has_bytes(file.path, 0, file.size) for file in recovery.removed)
    start = recovery.end + 1 if recovery.lost_from is None else recovery.lost_from
    for item in recovery.log.walk(start) if cut else ():
        if isinstance(item, Found):
            record = item.record
            counts[record.topic.decode("utf-8", "replace"), record.queue_id] += 1
    return [Loss(topic=t, queueId=i, messages=n) for (t, i), n in sorted(counts.items())], cut


def _tail(recovery: Recovery) -> list[tuple[str, int, int]]:
    """What is not zero behind the end, in the file that holds it. An end-of-file blank there belongs to the log."""
    if recovery.stop_file is None or recovery.stop is None:
        return []
    file, at = recovery.stop_file, recovery.stop.at + (8 if recovery.stop.ending is Ending.FILLER else 0)
    return [(file.path, at, file.size)] if has_bytes(file.path, at, file.size) > at else []


def prepare(recovery: Recovery, transaction: Transaction) -> list[str]:
    """Hand every change to a transaction; returns them in words. An empty list means that the store is healthy."""
    words: list[str] = []
    root = recovery.layout.root

    def say(text: str, path: str) -> None:
        words.append(f"{text} {os.path.relpath(path, root)}")

    for path, start, stop in _tail(recovery):
        transaction.zero(path, start, stop)
        say(f"zero bytes {start} to {stop} of", path)
    for file in reversed(recovery.removed):
        transaction.remove(file.path)
        say("remove", file.path)
    for _key, queue in sorted(recovery.queues.items()):
        queue.drop_unwritten()
        for segment in queue.removed:
            if not any(queue.target(f) == segment.path for f in queue.files):
                transaction.remove(segment.path)
                say("remove", segment.path)
        for part in queue.files:
            if part.staged is not None:
                part.finish()
                target = queue.target(part)
                transaction.put(target, part.staged, part.last_store_timestamp * 1_000_000 or None)
                say("replace" if part.source is not None else "create", target)
        if (stale := queue.stale()) is not None:
            transaction.zero(*stale)
            say(f"zero bytes {stale[1]} to {stale[2]} of", stale[0])
    if words or recovery.aborted or not recovery.index.unchanged:
        # else a broker would put the last message's keys into the index once more, and so at every start
        prepare_index(recovery, transaction, say)
    if recovery.aborted:
        transaction.remove(recovery.layout.path("abort"))
        say("remove", recovery.layout.path("abort"))
    if words:
        prepare_checkpoint(recovery, transaction, say)
    return words


def prepare_index(recovery: Recovery, transaction: Transaction, say: Say) -> None:
    """Hand over removed, changed and new index files; new ones are named by the clock, as the broker does it."""
    for index_file in recovery.index.removed:
        assert index_file.path is not None
        transaction.remove(index_file.path)
        say("remove", index_file.path)
    name = max((os.path.basename(f.path) for f in recovery.index.files + recovery.index.removed if f.path), default="")
    for index_file in recovery.index.files:
        if index_file.staged is None:
            continue
        target = index_file.path
        if target is None:
            name = recovery.index.new_name(name)
            target = recovery.layout.path("index", name)
        transaction.put(target, index_file.staged)
        say("replace" if index_file.path else "create", target)


def prepare_checkpoint(recovery: Recovery, transaction: Transaction, say: Say) -> None:
    """True times, so that the next unclean stop begins its check where it should."""
    last, old = recovery.last_store_timestamp, recovery.checkpoint
    full = [f.end_timestamp for f in recovery.index.files if f.full]
    new = old._replace(physic_msg_timestamp=last, logics_msg_timestamp=last, index_msg_timestamp=max(full, default=0))
    low = recovery.files[0].base if recovery.files else 0
    new = recovery.rules.confirmed(new, low=low, end=recovery.end, last=recovery.last_record)
    data = recovery.layout.checkpoint()
    if data is not None and new == old:
        return
    staged = transaction.staging()
    with open(staged, "wb") as file:
        file.write(checkpoint.build(new))
    transaction.put(recovery.layout.path("checkpoint"), staged)
    say("replace" if data is not None else "create", recovery.layout.path("checkpoint"))


def report(recovery: Recovery, *, actions: list[str], applied: bool, backup: str | None) -> RecoveryReport:
    """What was found and done."""
    assert recovery.after_load is not None
    losses, cut = lost(recovery)
    kept = kept_by_salvage(recovery) if losses and recovery.lost_from is None else 0
    stop = None
    if recovery.stop is not None and recovery.stop_file is not None:
        stop = LogStop(
            file=os.path.relpath(recovery.stop_file.path, recovery.layout.root),
            at=recovery.stop.at,
            physicalOffset=recovery.end,
            ending=recovery.stop.ending.value,
            reason=recovery.stop.reason,
        )
    changed = [
        QueueChange(topic=q.topic, queueId=q.queue_id, entriesCut=q.cut, entriesAdded=q.added)
        for q in recovery.queues.values()
        if q.cut or q.added
    ]
    return RecoveryReport(
        store=recovery.layout.root,
        engine=recovery.rules.engine,
        engineReason=recovery.rules_reason,
        loadOk=not recovery.refusals,
        refusals=recovery.refusals,
        abort=recovery.aborted,
        startFile=os.path.relpath(recovery.start_file.path, recovery.layout.root) if recovery.start_file else None,
        startReason=recovery.start_reason,
        stop=stop,
        lost=losses,
        bytesCut=cut,
        messagesRedispatched=recovery.dispatched,
        queues=sorted(changed, key=lambda q: (q.topic, q.queueId)),
        indexFilesRemoved=len(recovery.index.removed),
        indexEntriesAdded=recovery.index.added if actions else 0,
        warnings=recovery.warnings,
        actions=actions,
        afterLoad=recovery.after_load,
        afterStart=recovery.after_start,
        applied=applied,
        backup=backup,
        salvageKeeps=kept,
        destroys=destroys(recovery, losses, kept) if actions else [],
        notes=not_looked_at(recovery),
    )
