"""The ``group`` commands behind their options."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from formats.config.files import ConsumerOffsets, QueueOffset
from formats.errors import FormatError
from rmqtool.cli.shell.choice import matches
from rmqtool.cli.shell.output import confirm, note, write_object
from rmqtool.cli.shell.show_rows import names_of, write_rows
from rmqtool.cli.shell.times import parse_time
from rmqtool.errors import BadValue, CorruptFile, Refused, UnreadableStore
from rmqtool.services.consumers import offset_plan
from rmqtool.services.consumers.groups import PROBLEMS, GroupInfo, GroupLag, Groups, LagSum, OffsetChange, compare
from rmqtool.services.consumers.offset_plan import OffsetMove, OffsetPlan, Opener, Planner, Target
from rmqtool.services.lookup.configs import Warn, group_offsets
from rmqtool.services.lookup.offsets import FILES
from rmqtool.services.offsets.files import BrokerFile, ClientFile, Key, group_of
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.lock import holder
from rmqtool.store.disk.segments import read_small
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.roles.table import heed
from rmqtool.words import counted

OFFSET_FIELDS = ("group", "topic", "queueId", "consumerOffset")
_WORDS = {"diff": "lag", "retryDiff": "retryLag"}  # the broker's, and those of tables


def _entries(layout: StoreLayout, broadcast: str | None, broker: str | None, warn: Warn) -> list[QueueOffset]:
    return ClientFile(broadcast, broker).entries if broadcast is not None else group_offsets(layout, warn)


def lags(
    log: CommitLog,
    groups: list[str] | None,
    topics: list[str] | None,
    queues: list[int] | None,
    broadcast: str | None,
    broker: str | None,
    warn: Warn,
) -> tuple[list[GroupLag], int]:
    """The rows of ``group lag``, and how many of them cannot be right."""
    entries = _entries(log.layout, broadcast, broker, warn)
    chosen = [e for e in entries if matches(e.group, groups) and matches(e.topic, topics)]
    found = Groups(log, warn, chosen, pop=broadcast is None)
    rows = [row for row in found.lag() if not queues or row.queueId in queues]
    return rows, sum(row.state in PROBLEMS for row in rows)


def nobody_behind(rows: Sequence[GroupLag]) -> str:
    """What ``--lagging`` says where nothing is left to show."""
    groups = {row.group for row in rows}
    who = f"group {groups.pop()} is not" if len(groups) == 1 else f"none of {len(groups)} groups is"
    return f"{who} behind: no messages to consume, and none in flight"


def columns(kind: type, rows: Sequence[GroupLag | LagSum | GroupInfo], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Columns of a table: what POP consumers hold only where there is something."""
    shown = any(row.inFlight for row in rows)
    chosen = (_WORDS.get(name, name) for name in names or names_of(kind) if name not in _WORDS.values())
    return tuple(name for name in chosen if shown or name != "inFlight")


def offsets(
    layout: StoreLayout,
    groups: list[str] | None,
    topics: list[str] | None,
    queues: list[int] | None,
    broadcast: str | None,
    broker: str | None,
    warn: Warn,
) -> Iterator[dict[str, Any]]:
    """The rows of ``group offsets``.

    Raises:
        UnreadableStore: the store has no offsets file.
    """
    if broadcast is None and not any(
        os.path.lexists(layout.path("config", name + end)) for name in FILES for end in ("", ".bak")
    ):
        raise UnreadableStore(f"{layout.path('config', FILES[0])}: no such file")
    for entry in sorted(_entries(layout, broadcast, broker, warn), key=lambda e: (e.group, e.topic, e.queue_id)):
        if matches(entry.group, groups) and matches(entry.topic, topics) and (not queues or entry.queue_id in queues):
            yield dict(zip(OFFSET_FIELDS, (entry.group, entry.topic, entry.queue_id, entry.offset), strict=True))


def reset_planner(
    group: str,
    topics: list[str] | None,
    queues: list[int] | None,
    *,
    earliest: bool,
    latest: bool,
    time: str | None,
    offset: int | None,
    shift: int | None,
    csv: str | None,
) -> Planner:
    """The plan that the options of ``group reset`` ask for.

    Raises:
        BadValue: none of them, or several.
    """
    targets = [Target("earliest")] * earliest + [Target("latest")] * latest
    targets += [Target("time", parse_time(time))] if time is not None else []
    targets += [Target("offset", offset)] if offset is not None else []
    targets += [Target("shift", shift)] if shift is not None else []
    if len(targets) + (csv is not None) != 1:
        raise BadValue("give one of --to-earliest, --to-latest, --to-time, --to-offset, --shift and --from-csv")
    if csv is None:
        return offset_plan.reset(group, topics, queues, targets[0])
    if topics or queues:
        raise BadValue("--from-csv names the topics and queues itself: leave out --topic and --queue")
    return offset_plan.from_rows(group, offset_plan.read_rows(csv))


def clone_planner(
    layout: StoreLayout,
    source: str,
    target: str,
    topics: list[str] | None,
    *,
    broadcast: str | None,
    to_broadcast: str | None,
    broker: str | None,
) -> Planner:
    """The plan of ``group clone``.

    Raises:
        BadValue: the same group twice, or a name that no client could use; or the group of a client's file is another.
    """
    from rmqtool.rules.sending import Rejected, check_group

    if source == target and broadcast == to_broadcast:
        raise BadValue("both groups are the same")
    try:
        check_group(target)
    except Rejected as err:
        raise BadValue(str(err)) from err
    for path, group in ((broadcast, source), (to_broadcast, target)):
        if path is not None and group_of(path) != group:
            raise BadValue(f"{path}: a client keeps the offsets of {group} in a directory with that name")
    origin = opener_of(broadcast, broker)

    def offsets() -> Mapping[Key, int]:
        return origin(layout, lambda _text: None).offsets

    return offset_plan.clone(source, target, topics, offsets if broadcast != to_broadcast else None)


def opener_of(broadcast: str | None, broker: str | None, *, may_be_new: bool = False) -> Opener:
    """Where offsets are: in a broadcasting client's file, or else in the broker's."""

    def opened(layout: StoreLayout, warn: Warn) -> BrokerFile | ClientFile:
        return BrokerFile(layout, warn) if broadcast is None else ClientFile(broadcast, broker, may_be_new=may_be_new)

    return opened


def run_offsets(
    layout: StoreLayout,
    opener: Opener,
    planner: Planner,
    *,
    command: str,
    clamp: bool,
    dry_run: bool,
    yes: bool,
    backup: str | None,
    output: str,
    nothing: str,
) -> int:
    """Show the plan, ask, and carry it out."""
    if not yes and not dry_run and not sys.stdin.isatty():
        raise Refused(f"{command.replace('-', ' ')} writes: give --yes to do it, or --dry-run to look only")
    pid = holder(layout.root)
    if pid is not None:
        who = f"process {pid or '(unknown)'} holds the lock"
        if not dry_run:
            raise Refused(f"{layout.root}: {who}: stop the broker first")
        note(f"warning: {who}: a running broker writes its own offsets over these, so this plan may be wrong")
    warnings = heed(layout, command.replace("-", " "))
    plan = _carry_out(layout, opener, planner, command, clamp=clamp, dry_run=dry_run, yes=yes, backup=backup)
    plan = replace(plan, warnings=[*warnings, *plan.warnings])
    _write(plan, output)
    for text in plan.warnings:
        note(f"warning: {text}")
    if plan.applied:
        note(f"{counted(len(plan.changes), 'offset')} set in {plan.file}; what was replaced is kept in {plan.backup}")
        return 0
    if not plan.moves:
        note(f"{plan.file}: nothing of group {nothing} to set")
        return 1
    note(
        f"{len(plan.changes)} of {counted(len(plan.moves), 'offset')} would be set"
        if plan.changes
        else "nothing to change"
    )
    return 1 if plan.changes else 0


def _carry_out(
    layout: StoreLayout,
    opener: Opener,
    planner: Planner,
    command: str,
    *,
    clamp: bool,
    dry_run: bool,
    yes: bool,
    backup: str | None,
) -> OffsetPlan:
    if dry_run:
        return offset_plan.make(layout, opener, planner, clamp=clamp)
    if not yes:
        plan = offset_plan.make(layout, opener, planner, clamp=clamp)
        if plan.changes:
            for move in plan.moves:
                if move.newOffset != move.consumerOffset:
                    note(f"  {move.topic} queue {move.queueId}: {move.consumerOffset} to {move.newOffset}")
            if not confirm(_question(plan)):
                raise Refused("not confirmed: nothing was changed")
    return offset_plan.apply(layout, opener, planner, command=command, clamp=clamp, backup=backup)


def _question(plan: OffsetPlan) -> str:
    """What to ask: with the messages that consumers get again or never."""
    steps = [move.newOffset - move.consumerOffset for move in plan.moves if move.consumerOffset is not None]
    again, skipped = -sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
    said = [f"{counted(again, 'message is', 'messages are')} consumed again"] * bool(again) + [
        f"{counted(skipped, 'is', 'are')} skipped"
    ] * bool(skipped)
    return f"Set {counted(len(plan.changes), 'offset')}" + (f"? {', '.join(said).capitalize()}." if said else "?")


def _write(plan: OffsetPlan, output: str) -> None:
    if output in ("json", "ndjson"):
        write_object(output, plan.to_dict())
    else:
        write_rows(output, OffsetMove, plan.moves)


def differences(
    layout: StoreLayout,
    other: str | None,
    groups: list[str] | None,
    topics: list[str] | None,
    queues: list[int] | None,
    *,
    bak: bool,
    equal: bool,
    warn: Warn,
) -> tuple[list[OffsetChange], int]:
    """The rows of ``group diff``, and how many offsets of the two were compared.

    Raises:
        BadValue: nothing to compare with, or two things.
    """
    if (other is None) != bak:
        raise BadValue("give either OTHER or --bak")
    tables = [group_offsets(layout, warn), _generation_before(layout) if other is None else _snapshot(other, warn)]

    def asked(entry: QueueOffset) -> bool:
        in_queue = not queues or entry.queue_id in queues
        return in_queue and matches(entry.group, groups) and matches(entry.topic, topics)

    chosen = [list(filter(asked, table)) for table in tables]
    return list(compare(*chosen, equal=equal)), sum(map(len, chosen))


def _generation_before(layout: StoreLayout) -> list[QueueOffset]:
    tables = [read_config(layout, name, bak=True) for name in FILES]
    if all(table is None for table in tables):
        raise UnreadableStore(f"{layout.path('config', FILES[0])}.bak: no such file")
    return [entry for table in tables if isinstance(table, ConsumerOffsets) for entry in table.entries()]


def _snapshot(path: str, warn: Warn) -> list[QueueOffset]:
    """Offsets of a store, of a ``consumerOffset.json``, or of a CSV file."""
    if os.path.isdir(path):
        return group_offsets(StoreLayout(path), warn)
    if path.endswith(".csv"):
        return [QueueOffset(*row.key, row.offset) for row in offset_plan.read_rows(path)]
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        return list(ConsumerOffsets.parse(data).entries())
    except FormatError as err:
        raise CorruptFile(path, err.at, err.reason) from err
