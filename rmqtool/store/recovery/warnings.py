"""Warnings of a recovery: messages lost, moved or delivered early, and what the next start would truncate."""

from contextlib import suppress
from itertools import pairwise

from formats.endings import Ending
from formats.errors import FormatError
from formats.message.read import End
from formats.variants.epoch import is_increasing
from rmqtool.errors import RmqError
from rmqtool.store.disk.segments import Segment, name_of
from rmqtool.store.dispatch.reading import check_records
from rmqtool.store.layout.paths import is_path_name
from rmqtool.store.log.epochs import audit_epochs, read_epochs
from rmqtool.store.log.true_names import find_misnamed
from rmqtool.store.queues.compaction import compaction_queues_of
from rmqtool.store.recovery.dispatcher import Dispatcher
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.verdict import LogVerdict
from rmqtool.words import command_line, counted

_NAMED = 3  # queues that a warning names


def warnings_of(inputs: StoreInputs, verdict: LogVerdict, dispatcher: Dispatcher, early: int) -> list[str]:
    """All warnings, after everything has been dispatched.

    Args:
        early: number of delayed messages dispatched without their deliver time.
    """
    warnings = of_other_names(inputs)
    if early:
        warnings.append(
            f"{early} delayed messages were dispatched again without their deliver time, as a 4.9 broker does "
            "after a crash: they will be delivered at once (--fix-delay-times keeps their time)"
        )
    warnings += of_unnamed_topics(dispatcher)
    compares = inputs.whole and not inputs.quick
    if (
        not compares
        and inputs.aborted
        and verdict.first_file is not None
        and verdict.first_file.base > inputs.log.min_offset
    ):
        warnings.append(
            f"messages before offset {verdict.first_file.base} are not indexed again: a broker does not do it either"
        )
    if verdict.passed_over is not None:
        text = f"{verdict.passed_over} at {verdict.known} is the first message that no queue has: a 5.3 broker "
        text += "leaves it out, and later messages of its queue move one offset down"
        warnings.append(f"{text}; this plan does the same" if inputs.rules.exactly else f"{text}; this plan keeps it")
    warnings += _of_stale_tail(inputs, verdict)
    warnings += _of_missing_files(inputs)
    warnings += [] if compares else _of_short_queues(inputs, verdict, dispatcher)
    warnings += _of_compacted(inputs, dispatcher)
    warnings += inputs.rules.warnings()
    return warnings + _of_next_start(inputs, verdict, dispatcher)


def of_other_names(inputs: StoreInputs) -> list[str]:
    """Files of the log that were renamed or swapped."""
    return [
        f"{place.path}: its records say that it begins at {place.stated_base}: if it was renamed, give it the name "
        f"{name_of(place.stated_base)} again before anything is written; {command_line('salvage')} reads it there"
        for place in find_misnamed(inputs.log.segments.files, inputs.log.file_size)
    ]


def of_unnamed_topics(dispatcher: Dispatcher) -> list[str]:
    """Topics whose messages are in no queue."""
    return [
        f"{counted(messages, 'message')} of topic {topic!r}, which no queue directory can be named after"
        for topic, messages in sorted(dispatcher.unnamed.items())
        if not is_path_name(topic) or "," in topic  # otherwise it was deleted
    ]


def _of_stale_tail(inputs: StoreInputs, verdict: LogVerdict) -> list[str]:
    """Messages of a replica that its group has truncated, and a start takes for real."""
    with suppress(FormatError, RmqError):
        epochs = read_epochs(inputs.layout)
        if not epochs or not is_increasing(epochs):
            return []
        stale = audit_epochs(inputs.log, epochs).stale
        if stale is not None and stale.handover.at < verdict.end:
            at = stale.handover.at
            text = f"from {at} on, the log has messages that its group has truncated ({stale}): a broker's start takes "
            way = inputs.layout.command("truncate", str(at))
            return [f"{text}them for real, and so does this plan; {way} removes them"]
    return []


def _of_missing_files(inputs: StoreInputs) -> list[str]:
    """Gaps between files of the log, which a broker does not notice."""
    gaps = [(file.end, other.base) for file, other in pairwise(inputs.log.segments.files) if file.end < other.base]
    if not gaps:
        return []
    start, stop = gaps[0]
    more = f" (and {len(gaps) - 1} more gaps)" if gaps[1:] else ""
    way = inputs.layout.command("check")
    return [f"no commit-log file holds offsets {start} to {stop}{more}: a broker does not notice; see {way}"]


def _of_short_queues(inputs: StoreInputs, verdict: LogVerdict, dispatcher: Dispatcher) -> list[str]:
    """New queues that do not begin with the first message that the log may have for them."""
    start = verdict.dispatched_from
    if start is None or start <= inputs.log.min_offset:
        return []
    begun = [
        f"topic {topic!r} queue {queue_id} (from {queue.begun_at} on)"
        for (topic, queue_id), queue in dispatcher.queues.items()
        if queue.begun_at
    ]
    if not begun:
        return []
    names = ", ".join(sorted(begun)[:_NAMED]) + (f" and {len(begun) - _NAMED} more" if begun[_NAMED:] else "")
    text = f"{names}: had no files, and begin with messages from offset {start} on, as with a broker; "
    return [
        f"{text}earlier messages of the log are in no queue: see {command_line('check')} and {command_line('rebuild')}"
    ]


def _of_compacted(inputs: StoreInputs, dispatcher: Dispatcher) -> list[str]:
    """Compaction logs without the last messages; only a start after a crash adds those, and none follows a recovery."""
    if not inputs.aborted or not inputs.rules.compacted_topics:
        return []
    behind = [
        f"topic {queue.topic!r} queue {queue.queue_id}"
        for queue in compaction_queues_of(inputs.layout)
        if (whole := dispatcher.queues.get((queue.topic, queue.queue_id))) and queue.max_offset < whole.max_offset
    ]
    if not behind:
        return []
    names = ", ".join(behind[:_NAMED]) + (f" and {len(behind) - _NAMED} more" if behind[_NAMED:] else "")
    text = (
        "compacted, and without the last messages: a broker's start after a crash takes them from the commit log, and "
    )
    text += f"the next start does not: {command_line('rebuild', inputs.layout.root, 'compaction')} does it after this"
    return [f"{names}: {text}"]


def _of_next_start(inputs: StoreInputs, verdict: LogVerdict, dispatcher: Dispatcher) -> list[str]:
    """Damage in a file that was not checked now but will be by the next start."""
    known = max((queue.max_physical_offset for queue in dispatcher.queues.values()), default=-1)
    for file in verdict.files[inputs.rules.next_start(verdict.files, known) :]:
        if verdict.first_file is None or file.base >= verdict.first_file.base:
            break
        end = _first_end(inputs, file)
        if end.ending is not Ending.FILLER:
            text = (
                f"{file.path}: damaged at byte {end.at} ({end.reason}), where this start does not look: the next start "
            )
            return [f"{text}of a {inputs.rules.release} broker checks this file too, and cuts the log there"]
    return []


def _first_end(inputs: StoreInputs, file: Segment) -> End:
    """The first place in a file without a record."""
    limit = inputs.rules.readable(file)
    end, _last = check_records(file.view(), 0, limit, crc=inputs.checks_crc)
    end = inputs.rules.find_end(file, end, limit)
    file.release()
    return end
