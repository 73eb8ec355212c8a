"""Check the timer's files by themselves: lengths, units, and where the log ends."""

from itertools import pairwise

import numpy as np

from formats.endings import Ending
from formats.variants import timer
from rmqtool.store.check.advice.steps import by_hand
from rmqtool.store.check.common.context import Context
from rmqtool.store.config.fit import TIMER_LOG
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import is_zero
from rmqtool.store.queues.timer.files import TimerFiles

_MOVE = "stop the broker and move the file out of timerlog; messages that wait in it must be sent again"
_REFUSED = by_hand(_MOVE)


def check_timer_files(ctx: Context, files: TimerFiles, *, used: bool) -> None:
    """Check wheel, timer log and checkpoint, each by itself.

    Args:
        used: whether there has ever been a timer message; until then the checkpoint is empty.
    """
    length = len(files.wheel_bytes)
    if ctx.is_passed("timerwheel"):
        pass  # reported with all unreadable files
    elif length not in (0, timer.WHEEL_SIZE):
        ctx.found.add("timer-wheel-size", "timerwheel", expected=f"{timer.WHEEL_SIZE} bytes", actual=f"{length} bytes")
    elif not length and files.end:
        ctx.found.add("timer-wheel-missing", "timerwheel", expected=f"slots of {files.end} bytes of the timer log")
    _check_names(ctx, files)
    for file in files.log:
        _check_units(ctx, files, file)
    point, data = files.checkpoint, files.checkpoint_bytes
    if ctx.is_passed("config", "timercheck"):
        pass
    elif used and (point is None or not point.last_read_time):
        actual = "missing" if data is None else f"{len(data)} bytes" if point is None else "zero"
        ctx.found.add("timer-checkpoint-empty", "config/timercheck", expected="times and offsets", actual=actual)
    elif point is not None and point.last_timer_log_flush_position > files.end:
        ctx.found.add(
            "timer-checkpoint-ahead",
            "config/timercheck",
            offset=8,
            expected=f"flush position: at most {files.end}",
            actual=point.last_timer_log_flush_position,
        )


def _check_names(ctx: Context, files: TimerFiles) -> None:
    for path in files.log.foreign:
        ctx.found.situation.refused = True
        ctx.found.add("file-foreign", ctx.name(path))
    for file in files.log:
        if file.size != files.file_size:
            ctx.found.situation.refused = True
            expected, actual = f"{files.file_size} bytes", f"{file.size} bytes"
            steps, conf = _REFUSED, ctx.layout.conf
            if TIMER_LOG in conf.sizes and file.size and file.size % timer.UNIT_SIZE == 0:
                right = f"set {TIMER_LOG}={file.size} in {conf.path}, if brokers wrote the store with this length"
                steps = by_hand(f"{right}; otherwise {_MOVE}")
            ctx.found.add("file-size", ctx.name(file.path), expected=expected, actual=actual, steps=steps)
    for before, after in pairwise(files.log):
        if after.base > before.base + files.file_size:
            actual = f"the next file is {after.base:020d}"
            name = f"timerlog/{before.base + files.file_size:020d}"
            ctx.found.add("file-gap", name, expected="a file of the timer log", actual=actual, steps=_REFUSED)


def _check_units(ctx: Context, files: TimerFiles, file: Segment) -> None:
    end = files.find_ending(file)
    last = file is files.log.files[-1]
    if end.ending is Ending.FILLER or (end.ending is Ending.CLEAN and file.size % files.file_size == 0):
        return
    count = files.count(file)
    behind = timer.unit_array(file.view())[count + 1 :]
    # zeros are not a unit; a torn one has at most its own 52 bytes
    rest = (count + 1) * timer.UNIT_SIZE
    more = not last or (rest < file.size and not is_zero(file.path, rest, file.size))
    if more:
        lost = int(np.count_nonzero(timer.valid_units(behind))) if len(behind) else 0
        ctx.found.add(
            "timer-log-damage",
            ctx.name(file.path),
            offset=end.at,
            count=max(lost, 1),
            expected="a unit or an end-of-file blank",
            actual=end.reason,
        )
    elif end.ending in (Ending.DAMAGED, Ending.CUT) or not is_zero(file.path, end.at, file.size):
        ctx.found.add("timer-log-torn", ctx.name(file.path), offset=end.at, expected="a unit", actual=end.reason)
    file.release()
