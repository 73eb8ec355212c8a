"""``group reset`` and ``group clone`` of a live cluster."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rmqtool.admin.changes.offsets import LiveOffsetMove, OffsetChanges, Resets, check_name
from rmqtool.admin.changes.plans import Where
from rmqtool.admin.changes.run import PENDING, SAME, Plan
from rmqtool.admin.live.questions import Questions
from rmqtool.admin.target import Target
from rmqtool.cli.framework.changing import change
from rmqtool.cli.framework.planning import ChangeOptions
from rmqtool.cli.render.output import write_object
from rmqtool.cli.render.rows import write_rows
from rmqtool.cli.render.text import note
from rmqtool.errors import BadValue
from rmqtool.services.consumers.offset_plan import OffsetPlan, read_rows
from rmqtool.services.consumers.offset_plan import OffsetTarget as Offset

Plans = Callable[[Resets], Coroutine[Any, Any, OffsetChanges]]


def reset(
    target: Target,
    group: str,
    topics: list[str] | None,
    queues: list[int] | None,
    to: Offset | None,
    from_csv: str | None,
    *,
    clamp: bool,
    options: ChangeOptions,
) -> int:
    """Set the offsets of a group. Returns the exit code.

    Args:
        to: None for those of the file.
    """
    if to is not None:
        return _set(
            target, group, lambda resets: resets.reset(topics or (), queues or (), to), command="group reset",
            clamp=clamp, options=options, nothing=group,
        )  # fmt: skip
    if topics or queues:
        raise BadValue("--from-csv names the topics and queues itself: leave out --topic and --queue")
    rows = read_rows(from_csv or "", brokers=True)
    return _set(
        target, group, lambda resets: resets.from_rows(rows), command="group reset", clamp=clamp,
        options=options, nothing=group,
    )  # fmt: skip


def clone(
    target: Target,
    source: str,
    group: str,
    topics: list[str] | None,
    *,
    clamp: bool,
    options: ChangeOptions,
) -> int:
    """Give a group the offsets of another. Returns the exit code."""
    if source == group:
        raise BadValue("both groups are the same")
    check_name(group)
    return _set(
        target, group, lambda resets: resets.clone(source, topics or ()), command="group clone", clamp=clamp,
        options=options, nothing=source,
    )  # fmt: skip


def _set(
    target: Target,
    group: str,
    plans: Plans,
    *,
    command: str,
    clamp: bool,
    options: ChangeOptions,
    nothing: str,
) -> int:
    moves: list[LiveOffsetMove] = []

    async def work(questions: Questions) -> Plan:
        resets = await plans(Resets(questions, Where(target=target), group, clamp=clamp))
        moves[:] = resets.moves
        return resets.plan

    def write(plan: Plan, form: str) -> None:
        rows = _with_states(moves, plan)
        if form in ("json", "ndjson"):
            whole = OffsetPlan(
                store=target.text, file=None, moves=[], warnings=[*plan.warnings], applied=plan.applied,
                backup=plan.journal,
            )  # fmt: skip
            write_object(form, {**whole.to_dict(), "moves": [row.to_dict() for row in rows]})
        else:
            write_rows(form, LiveOffsetMove, rows, spare=("minOffset",))

    code = change(target, work, command=command, options=options, write=write)
    if not moves:
        note(f"{target.text}: nothing of group {nothing} to set")
        return 1
    return code


def _with_states(moves: list[LiveOffsetMove], plan: Plan) -> list[LiveOffsetMove]:
    """The rows, with a note where an offset did not stick."""
    failed = {
        (outcome.change.place.server, *outcome.change.place.name): outcome.reason
        for outcome in plan.outcomes
        if outcome.state not in (SAME, PENDING)
    }
    return [
        replace(row, note=reason)
        if (reason := failed.get((row.brokerName, row.group, row.topic, str(row.queueId)))) is not None
        else row
        for row in moves
    ]
