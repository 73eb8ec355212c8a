"""The plan and the rows of ``dlq requeue``, of a store or a live cluster."""

from collections.abc import Sequence

from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.render.rows import Warnings, write_rows
from rmqtool.cli.render.text import note
from rmqtool.services.retries.requeue import Requeued


def is_settled(rows: Sequence[Requeued]) -> bool:
    """Whether nothing is left to do."""
    return not _open(rows)


def note_plan(rows: Sequence[Requeued], group: str) -> None:
    """Show how many dead letters go where."""
    topics = ", ".join(sorted({str(row.targetTopic) for row in rows}))
    note(f"{_open(rows)} dead letters of {group} go to {topics}")


def show_requeued(
    rows: Sequence[Requeued],
    kind: type[Requeued],
    group: str,
    ending: StopSignal,
    warn: Warnings,
    *,
    output: str,
    done: bool,
) -> int:
    """Write the rows of ``dlq requeue``, and return its exit code."""
    names = ("state", "msgId", "keys", "queueOffset", "deadLetterId", "targetTopic", "targetQueueId", "reason")
    write_rows(output, kind, rows, names, wide=("keys", "reason"))
    if ending.asked:
        note("stopped before all was done: the next run goes on here")
        return ending.exit_code
    failed = any(row.state in ("refused", "unknown") for row in rows) or (not done and bool(_open(rows)))
    return _note_counts(rows, group) or warn.tell() or (1 if failed else 0)


def _open(rows: Sequence[Requeued]) -> int:
    return sum(row.state == "to-do" for row in rows)


def _note_counts(rows: Sequence[Requeued], group: str) -> int:
    """Note how many there are of each kind; 1 if there are none."""
    if not rows:
        note(f"no such dead letter of {group}")
        return 1
    texts = {
        "to-do": "would be given back",
        "done": "given back",
        "before": "given back before",
        "refused": "refused",
        "unknown": "not answered",
    }
    counts = {state: sum(row.state == state for row in rows) for state in texts}
    note(", ".join(f"{count} {texts[state]}" for state, count in counts.items() if count))
    return 0
