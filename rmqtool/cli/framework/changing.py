"""Commands that change a live cluster: plan, question, journal, requests and their outcome."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rmqtool.cli.framework.choice import first, no_match
from rmqtool.cli.framework.opening import live_target
from rmqtool.cli.framework.options import Output
from rmqtool.cli.framework.planning import BrokerChange, ChangeOptions, Consent, carry_out
from rmqtool.cli.render.output import write_object
from rmqtool.cli.render.rows import HasRow, Warnings, write_rows
from rmqtool.cli.render.text import note
from rmqtool.errors import BadValue
from rmqtool.words import command_line, counted

if TYPE_CHECKING:
    from rmqtool.admin.changes.plans import Where
    from rmqtool.admin.changes.run import Plan
    from rmqtool.admin.live.questions import Questions
    from rmqtool.admin.target import Target


def need_target(store: str) -> "Target":
    """The live cluster that is named.

    Raises:
        BadValue: a store directory was given.
    """
    target = live_target(store)
    if target is None:
        raise BadValue(f"{store}: give a live cluster: rocketmq://HOST:9876, or @NAME of the config file")
    return target


def list_rows(
    store: str,
    kind: type,
    ask: "Callable[[Target, Warnings], Iterable[HasRow]]",
    output: Output,
    *,
    limit: int | None = None,
    names: Sequence[str] = (),
    wide: Sequence[str] = (),
    spare: Sequence[str] = (),
    **given: object,
) -> int:
    """Ask a live cluster for rows, and write them. Returns the exit code, see :func:`no_match`.

    Args:
        ask: gives the rows, of dataclass ``kind``, and the warnings.
        names: the columns of the table, all by default; ``wide`` and ``spare`` as for :func:`write_rows`.
        given: the options that select rows, by name.
    """
    target, warn = need_target(store), Warnings()
    rows = [*ask(target, warn)]
    write_rows(output.value, kind, first(rows, limit), names, wide, spare)
    return no_match(len(rows), warn.tell(), **given)


def parse_settings(settings: list[str]) -> dict[str, str]:
    """Settings by name.

    Raises:
        BadValue: one of them is not ``NAME=VALUE``.
    """
    values: dict[str, str] = {}
    for text in settings:
        name, sign, value = text.partition("=")
        if not name.isalnum() or not sign:
            raise BadValue(f"{text}: give NAME=VALUE")
        values[name] = value
    return values


def change_brokers(
    store: str,
    plan: "Callable[[Questions, Where], Coroutine[Any, Any, Plan]]",
    *,
    command: str,
    options: BrokerChange,
) -> int:
    """As :func:`change`, for brokers of a live cluster: those named, or all."""
    from rmqtool.admin.changes.plans import Where

    target = need_target(store)
    where = Where(target=target, brokers=tuple(options.broker or ()))
    return change(target, lambda questions: plan(questions, where), command=command, options=options)


def change(
    target: "Target",
    work: "Callable[[Questions], Coroutine[Any, Any, Plan]]",
    *,
    command: str,
    options: ChangeOptions,
    write: "Callable[[Plan, str], None] | None" = None,
) -> int:
    """Plan, show, ask, do, and report the outcome. Returns the exit code.

    Args:
        write: writes the result; by default a row for each value.
    """
    from rmqtool.admin.changes.run import make_plan

    return carry_out_change(
        target, lambda warn: make_plan(target, work, warn), command=command, consent=options, backup=options.backup,
        output=options.output.value, write=write or write_changes,
    )  # fmt: skip


def carry_out_change(
    target: "Target",
    plan: "Callable[[Callable[[str], None]], Plan]",
    *,
    command: str,
    consent: Consent,
    backup: str | None,
    output: str,
    write: "Callable[[Plan, str], None]",
) -> int:
    """As :func:`change`, of a plan that is made elsewhere."""
    from rmqtool.admin.changes.run import carry_out_plan, need_no_undo

    consent.need(command)
    warn = Warnings()

    def do(shown: "Plan | None") -> "Plan":
        current = shown or plan(warn)
        return carry_out_plan(target, current, backup, warn) if current.needed else current

    result, _done = carry_out(
        consent,
        plan=lambda: plan(warn),
        show=_note_plan,
        question=_question,
        do=do,
        settled=lambda current: not current.needed,
    )
    write(result, output)
    for text in result.warnings:
        note(f"warning: {text}")
    for text in result.blocked:
        note(text)
    code = warn.tell()
    if not result.applied:
        if not consent.dry_run:
            need_no_undo(result)
        if result.needed and result.effect:
            note(result.effect)
        count = counted(len(result.changes), "entry", "entries")
        note(f"{len(result.needed)} of {count} would be changed" if result.needed else "nothing to change")
        return 1 if result.needed or result.blocked else code
    for outcome in result.failed:
        place = outcome.change.place
        note(f"{outcome.state}: {place.server}: {place.kind} {' '.join(place.name)}: {outcome.reason}")
    done, count = len(result.needed) - len(result.failed), counted(len(result.needed), "entry", "entries")
    note(f"{done} of {count} changed; what was before is in {result.journal}")
    if result.undoes is None and result.can_be_undone:
        note(f"{command_line('undo', target.text)} puts it back")
    return 1 if result.failed else code


def carry_out_shown(
    plan: "Callable[[], Plan]", do: "Callable[[Plan | None], Plan]", *, command: str, options: ChangeOptions
) -> int:
    """As :func:`change`, of a store directory, whose changes have a backup beside it."""
    options.need(command)
    result, _done = carry_out(
        options, plan=plan, show=_note_plan, question=_question, do=do, settled=lambda made: not made.needed
    )
    write_changes(result, options.output.value)
    for text in result.warnings:
        note(f"warning: {text}")
    count = counted(len(result.changes), "entry", "entries")
    if not result.applied:
        note(f"{len(result.needed)} of {count} would be changed" if result.needed else "nothing to change")
        return 1 if result.needed else 0
    note(f"{len(result.needed)} of {count} changed; what was replaced is kept in {result.journal}")
    note(f"{command_line('undo', result.target)} puts it back")
    return 0


def write_changes(plan: "Plan", output: str) -> None:
    """Write a row for each value, or the whole plan as an object."""
    from rmqtool.admin.changes.run import SAME, ChangeRow

    if output in ("json", "ndjson"):
        write_object(output, plan.to_dict())
    else:
        shown = ("kind", "name", "setting", "before", "after", "state", "server")
        people = output in ("text", "table")
        rows = [row for row in plan.rows() if not people or row.state != SAME]
        write_rows(output, ChangeRow, rows, shown, wide=("before", "after"))


def _note_plan(plan: "Plan") -> None:
    for row in plan.rows():
        if row.state != "same":
            what = f"{row.kind} {row.name}" + (f" {row.setting}" if row.setting else "")
            note(f"  {row.server}: {what}: {_shown(row.before)} to {_shown(row.after)}")
    for text in (*plan.warnings, *plan.blocked):
        note(f"  {text}")


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)


def _question(plan: "Plan") -> str:
    effect = f" {plan.effect[0].upper()}{plan.effect[1:]}." if plan.effect else ""
    return f"Change {counted(len(plan.needed), 'entry', 'entries')}?{effect}"
