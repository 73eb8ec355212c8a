"""The answer of ``retention`` for people."""

from rmqtool.cli.render.console import console, facts_table, table, text
from rmqtool.cli.render.text import size_text
from rmqtool.cli.render.times import time_text
from rmqtool.services.usage.retention import DAY, Retention, UnreadLoss
from rmqtool.words import counted

_MANY = 12  # files of which each has a line


def show(retention: Retention, form: str) -> None:
    """Print it."""
    out = console(form)
    hours = ", ".join(f"{hour:02}:00" for hour in retention.deleteWhen)
    going = [file for file in retention.files if file.deleteTimestamp is not None]
    disk = f"{retention.usedRatio:.0%} of {size_text(retention.diskBytes)} used, {size_text(retention.freeBytes)} free"
    came = f"{size_text(retention.dayBytes)} in the last day, {size_text(retention.weekBytes)} in the last week"
    if retention.covered is not None:
        came += f" (the log goes back {retention.covered / DAY:.1f} days)"
    rows = [
        ("store", retention.store),
        ("rule", f"files go {retention.reservedHours:g} h after their last change, from {hours} on for an hour"),
        ("disk", disk),
        ("came in", came),
        ("files", f"{counted(len(retention.files), 'file')} of the log; the last one stays"),
    ]
    out.print(facts_table(rows))
    levels = table("disk at", "what a broker does then", "at the rate of the day", "of the week")
    for level in retention.levels:
        times = map(_when, (level.dayTimestamp, level.weekTimestamp))
        levels.add_row(f"{level.ratio:.0%}", text(level.means), *times)
    out.print()
    out.print(levels)
    if going:
        files = table("file", "size", "last change", "old enough", "removed", right=("size",))
        for file in going[:_MANY]:
            moments = (file.modifiedTimestamp, file.expireTimestamp or 0, file.deleteTimestamp or 0)
            files.add_row(text(file.file), size_text(file.bytes), *map(_minute, moments))
        out.print()
        out.print(files)
        if len(going) > _MANY:
            last = going[-1].deleteTimestamp or 0
            out.print(text(f"and {len(going) - _MANY} more, the last {_minute(last)}: --output json"))
    if retention.unread:
        unread = table("goes unread", "group", "messages", "from", right=("messages",))
        for loss in retention.unread:
            unread.add_row(text(loss.topic), text(_group_of(loss)), str(loss.messages), _minute(loss.deleteTimestamp))
        out.print()
        out.print(unread)


def _group_of(loss: UnreadLoss) -> str:
    return loss.group or "(delayed, waiting)"


def _when(time: int | None) -> str:
    return "not within a year" if time is None else _minute(time)


def _minute(time: int) -> str:
    """A time to the minute, with its zone where the user has chosen one."""
    text = time_text(time)
    return text[:16] + ("Z" if text.endswith("Z") else text[23:]) if len(text) > 20 else text
