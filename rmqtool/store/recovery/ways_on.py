"""Command lines for a store that a broker refuses to load."""

import os

from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.mending import Remedy, can_go, remedy_command, remedy_for
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.queues.compaction import FOLDER
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.whole_log import holds_message
from rmqtool.words import command_line


def ways_on(recovery: Recovery) -> list[str]:
    """Return what to do before recovery is possible, in order; empty if nothing was refused."""
    if not recovery.refusals:
        return []
    log, layout = recovery.inputs.log, recovery.inputs.layout
    refused = {path for path in _paths(recovery) if any(why.startswith(f"{path}: ") for why in recovery.refusals)}
    files = {file.path: file for file in log.segments.files}
    last = max(files, key=os.path.basename, default=None)
    by_file = [_remedy_for(path, files.get(path), log.file_size, last=path == last) for path in sorted(refused)]
    # one command repairs several files
    ways = list(
        dict.fromkeys(f"{remedy_command(way, layout)}: {way.does}" if way.command else way.does for way in by_file)
    )
    compacted = [why for why in recovery.refusals if why.startswith(layout.path(FOLDER) + os.sep)]
    if compacted:
        ways.append(
            f"{layout.command('rebuild', 'compaction')}: makes the logs of compacted topics again, from every intact "
            "message"
        )
    queues = [why.rpartition(": ")[0] for why in recovery.refusals if _is_of_queue(why, layout)]
    ways += [
        remedy_for(path, None, log.file_size, last=False).does
        for path in (*queues, *recovery.inputs.rules.index_directories())
        if os.path.lexists(path) and not can_go(path)
        if not (path in queues and os.path.relpath(path, layout.root).count(os.sep) == 2)  # the queue's own directory
    ]
    kinds = [why for why in recovery.refusals if "topics.json" in why]
    if kinds and _can_name_kinds(kinds, layout):
        ways.append(f"{layout.command('rebuild', 'config')}: sets what kind of queues a topic has in topics.json")
    elif kinds:
        ways.append(
            f"put config/topics.json right, which says what kind of queues a topic has (see {command_line('check')})"
        )
    elif queues and not recovery.inputs.whole:
        ways.append(f"{layout.command('recover')}: without --exactly it puts queue files right")
    return [*ways, f"{layout.command('recover', '--dry-run')}: shows the plan again"]


def _can_name_kinds(kinds: list[str], layout: StoreLayout) -> bool:
    """Whether all refused queues are batch queues of topics that have no other queues."""
    others = {topic for topic, _queue_id, _path in layout.queue_dirs()}
    refused = [topic for topic, _queue_id, path in layout.queue_dirs(BATCH_QUEUES) if f"{path}: " in "\n".join(kinds)]
    return len(refused) == len(kinds) and others.isdisjoint(refused)


def _remedy_for(path: str, file: Segment | None, wanted: int, *, last: bool) -> Remedy:
    if file is None:
        return remedy_for(path, None, wanted, last=last)
    spare = file.size > wanted and not holds_message(file, wanted)
    return remedy_for(path, file.size, wanted, last=last, spare=spare)


def _is_of_queue(why: str, layout: StoreLayout) -> bool:
    return why.startswith(tuple(layout.path(kind) + os.sep for kind in ("consumequeue", BATCH_QUEUES)))


def _paths(recovery: Recovery) -> list[str]:
    segments = recovery.inputs.log.segments
    return [*(file.path for file in segments.files), *segments.foreign]
