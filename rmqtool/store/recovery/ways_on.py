"""What to do about a store that a broker refuses to load, in the words of commands."""

import os
import shlex

from rmqtool.store.layout.mending import typed, way_on
from rmqtool.store.queues.compaction import FOLDER
from rmqtool.store.recovery.plan import Recovery


def ways_on(recovery: Recovery) -> list[str]:
    """What to do before recovery can go on, in this order; empty where nothing was refused."""
    if not recovery.refusals:
        return []
    log, layout = recovery.inputs.log, recovery.inputs.layout
    refused = {path for path in _paths(recovery) if any(why.startswith(f"{path}: ") for why in recovery.refusals)}
    sizes = {file.path: file.size for file in log.segments.files}
    last = max(sizes, key=os.path.basename, default=None)
    found = [way_on(path, sizes.get(path), log.file_size, last=path == last) for path in sorted(refused)]
    # one command mends all files that it can mend
    ways = list(dict.fromkeys(f"{typed(way, layout)}: {way.does}" if way.command else way.does for way in found))
    compacted = [why for why in recovery.refusals if why.startswith(layout.path(FOLDER) + os.sep)]
    if compacted:
        rebuild = shlex.join(["rmqtool", "rebuild", layout.root, "compaction", *layout.conf.options])
        ways.append(f"{rebuild}: makes the logs of compacted topics again, from every intact message")
    if not found and len(compacted) < len(recovery.refusals):  # queues, which the log can make anew
        rebuild = shlex.join(["rmqtool", "rebuild", layout.root, "consumequeue", *layout.conf.options])
        ways.append(f"{rebuild}: builds the queues again from the log")
    again = shlex.join(["rmqtool", "recover", layout.root, "--dry-run", *layout.conf.options])
    return [*ways, f"{again}: shows the plan again"]


def _paths(recovery: Recovery) -> list[str]:
    segments = recovery.inputs.log.segments
    return [*(file.path for file in segments.files), *segments.foreign]
