"""Describe what a broker would do with a store in RocksDB form, with warnings."""

import os
from dataclasses import replace

from formats.config.files import Topics
from formats.errors import FormatError
from formats.topics import SYSTEM_PREFIX, SYSTEM_TOPICS
from rmqtool.errors import RmqError
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.dispatch.light import is_light
from rmqtool.store.layout.version import QUEUES, queue_database_place
from rmqtool.store.recovery.actions import end_in_file
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.report import NOT_IN_PLACE, RecoveryReport
from rmqtool.store.recovery.rocks.dispatcher import RocksDispatcher
from rmqtool.store.recovery.summary import summarize
from rmqtool.store.recovery.verdict import LogVerdict
from rmqtool.words import command_line, counted

_NAMED = 3  # queues that a warning names


def warnings_of(inputs: StoreInputs, verdict: LogVerdict, dispatcher: RocksDispatcher) -> list[str]:
    """The warnings of such a plan."""
    warnings = list(inputs.rules.warnings())
    if verdict.passed_over is not None:
        warnings.append(
            f"{verdict.passed_over} at {verdict.known} is the first message that the database does not have: a 5.3 "
            "broker leaves it out after a clean stop, and no later start adds it"
        )
    if inputs.rules.waits:
        warnings.append(
            "recheckReputOffsetFromCq is on: the start dispatches the whole log again, which this plan does not show"
        )
    if dispatcher.too_long is not None:
        name = dispatcher.too_long
        warnings.append(
            f"topic {name[:40]!r}...: its name is too long for the broker's keys: the broker tries for ever to store it"
        )
    if dispatcher.stuck:
        warnings.append(
            f"{_name_queues(dispatcher.stuck)}: the end cannot be set back, and stays beyond the end of the log: "
            "consumers "
            "wait at offsets that do not exist"
        )
    behind = [
        key
        for key, queue in dispatcher.planned.items()
        if queue.last is not None and queue.last.physical_offset >= verdict.end and key not in dispatcher.stuck
    ]
    if behind and verdict.files:
        does = "may leave it (it depends on which of two threads is first)" if inputs.aborted else "leaves it"
        warnings.append(
            f"{_name_queues(behind)}: the last unit points beyond the end of the log, and the broker {does}: "
            "consumers get "
            "nothing for it"
        )
    if unknown := _unknown_topics(inputs, dispatcher):
        names = ", ".join(map(repr, unknown[:_NAMED])) + (
            f" and {len(unknown) - _NAMED} more" if unknown[_NAMED:] else ""
        )
        warnings.append(
            f"topics that are not in the table of topics: {names}: ten minutes after its start a broker deletes "
            "their queues from the database"
        )
    if dispatcher.unread is not None:
        warnings.append(f"a part of the database cannot be read ({dispatcher.unread}): nothing is known of its queues")
    return warnings


def _unknown_topics(inputs: StoreInputs, dispatcher: RocksDispatcher) -> list[str]:
    """Topics whose queues a broker would delete (RocksDBConsumeQueueStore.cleanDirty); none without a topic table."""
    try:
        table = read_config(inputs.layout, "topics.json")
    except (RmqError, FormatError):
        return []
    if not isinstance(table, Topics):
        return []
    unknown = {topic for topic, _queue_id in dispatcher.planned if not _is_kept(topic)}
    return sorted(unknown - table.topics.keys())


def _is_kept(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX) or is_light(topic)


def _name_queues(keys: list[tuple[str, int]]) -> str:
    names = ", ".join(f"topic {topic!r} queue {queue_id}" for topic, queue_id in sorted(keys)[:_NAMED])
    return names + (f" and {len(keys) - _NAMED} more" if keys[_NAMED:] else "")


def actions_of(recovery: Recovery, dispatcher: RocksDispatcher) -> list[str]:
    """Return what the broker would do, one sentence each. An empty list means that it would change nothing."""
    inputs, verdict, index = recovery.inputs, recovery.verdict, dispatcher.index
    root, place = inputs.layout.root, queue_database_place(inputs.layout) or QUEUES
    actions: list[str] = []
    if inputs.aborted:
        actions.append("treat the last stop as a crash, because there is a file abort")
    if verdict.stop is not None and verdict.stop_file is not None:
        path, at, size = verdict.stop_file.path, end_in_file(verdict.stop), verdict.stop_file.size
        if has_bytes(path, at, size) > at:
            actions.append(f"overwrite bytes {at} to {size} of {os.path.relpath(path, root)}")
    actions += [f"remove {os.path.relpath(file.path, root)}" for file in reversed(verdict.removed)]
    changes = dispatcher.changes
    if dispatcher.destroyed:
        actions.append(f"remove {place} and begin it again: queue offsets continue where they were")
    if added := sum(change.entriesAdded for change in changes):
        actions.append(f"put {counted(added, 'unit')} into {place}")
    if back := sum(bool(change.entriesCut) for change in changes):
        actions.append(f"set the ends of {counted(back, 'queue')} back in {place}")
    if dispatcher.built != dispatcher.found_built:
        actions.append(f"note in {place} that queues have the log up to {dispatcher.built}")
    actions += [f"remove {os.path.relpath(file.path, root)}" for file in index.removed if file.path is not None]
    if actions and index.added > index.repeated:
        actions.append(f"put {counted(index.added, 'entry', 'entries')} into index")
    return actions


def report(recovery: Recovery) -> RecoveryReport:
    """The report of what the broker would do; nothing is carried out."""
    dispatcher = recovery.dispatcher
    actions = actions_of(recovery, dispatcher) if isinstance(dispatcher, RocksDispatcher) else []
    report = summarize(recovery, actions)
    if recovery.refusals:
        return replace(report, nextSteps=_ways_on(recovery, report.nextSteps))
    return replace(report, notes=[*report.notes, NOT_IN_PLACE] if actions else report.notes)


def _ways_on(recovery: Recovery, ways: list[str]) -> list[str]:
    layout = recovery.inputs.layout
    place = queue_database_place(layout) or QUEUES
    if not any(why.startswith(f"{layout.path(place)}: ") for why in recovery.refusals):
        return ways
    # a missing database is rebuilt from the log, but after a clean stop 5.3.3 then skips the first message
    rebuilt = (
        f"or, with a copy of the store at hand and the broker stopped, move {place} out of the store and put an empty "
        "file abort into it: a broker dispatches the whole log into a new database at its next start"
    )
    return [
        f"{command_line('salvage', layout.root, 'NEWSTORE')}: makes a store with queue files and every intact message",
        rebuilt,
    ]
