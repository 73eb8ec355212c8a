"""The commands ``group reset`` and ``group clone``: they set the offsets of a group."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, need_log
from rmqtool.cli.framework.options import (
    NO_CLIENT_FILE,
    BroadcastOption,
    BrokerConfOption,
    BrokerOption,
    ClientFileOptions,
    QueueOption,
    StoreOrTarget,
    TopicOption,
    option,
)
from rmqtool.cli.framework.planning import CHANGE, ChangeOptions, carry_out, refuse_if_held
from rmqtool.cli.render.output import write_object
from rmqtool.cli.render.rows import write_rows
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time
from rmqtool.errors import BadValue
from rmqtool.rules.sending import Rejected, check_group
from rmqtool.services.consumers import offset_plan
from rmqtool.services.consumers.offset_plan import OffsetMove, OffsetPlan, OffsetTarget, Opener, Planner, effect_of
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.offsets.files import BrokerFile, ClientFile, Key, group_of
from rmqtool.store.disk.lock import holder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.roles.table import heed
from rmqtool.words import counted

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]
ClampOption = Annotated[
    bool, typer.Option("--clamp", help="Take the nearest offset if one is out of its queue's range.")
]


@command("group reset", "rmqtool group reset store lab-consumer --topic Orders --to-time -1h --dry-run")
def group_reset(
    store: StoreOrTarget,
    consumer_group: GroupArgument,
    topic: TopicOption = None,
    queue: QueueOption = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first message in the queue.")] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end of the queue, after the last message.")
    ] = False,
    to_time: Annotated[
        str | None, option("--to-time", "TIME", "To the first message stored at or after this time.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, metavar="OFFSET", help="To this queue offset.")
    ] = None,
    shift: Annotated[int | None, option("--shift", "N", "By this many messages; negative numbers go back.")] = None,
    from_csv: Annotated[
        str | None,
        option("--from-csv", "FILE", "To the offsets in this CSV file (column newOffset or consumerOffset)."),
    ] = None,
    clamp: ClampOption = False,
    client: ClientFileOptions = NO_CLIENT_FILE,
    options: ChangeOptions = CHANGE,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Set the offsets of a group, in the store of a stopped broker or in a live cluster; the plan is shown first.

    Without --topic, every topic in which the group has offsets is reset, except its retry topic. The CSV output of a
    --dry-run can be edited and given to --from-csv; rows whose consumerOffset is no longer current are refused. The
    previous file becomes consumerOffset.json.bak, as with a broker, and undo restores both. Exit code 0: nothing to
    change, or done; 1: a dry run found something to change, there is no such offset, or in a cluster an offset did not
    stick.
    """
    if (target := live_target(store)) is not None:
        from rmqtool.cli.consumers import live_offsets

        to = _target_of(
            earliest=to_earliest, latest=to_latest, time=to_time, offset=to_offset, shift=shift, csv=from_csv
        )
        return live_offsets.reset(
            target, consumer_group, topic, queue, to, from_csv, clamp=clamp, options=options,
        )  # fmt: skip
    planner = _reset_planner(
        consumer_group, topic, queue, earliest=to_earliest, latest=to_latest, time=to_time, offset=to_offset,
        shift=shift, csv=from_csv,
    )  # fmt: skip
    return _run_offsets(
        need_log(store, broker_conf, say=False).layout, _opener_of(client.broadcast, client.broker), planner,
        command="group-reset", clamp=clamp, options=options, nothing=consumer_group,
    )  # fmt: skip


@command("group clone", "rmqtool group clone store lab-consumer lab-consumer-2 --dry-run")
def group_clone(
    store: StoreOrTarget,
    source: Annotated[str, typer.Argument(metavar="GROUP", help="Group to copy from.")],
    target: Annotated[str, typer.Argument(metavar="NEWGROUP", help="Group to copy them to, existing or new.")],
    topic: TopicOption = None,
    clamp: ClampOption = False,
    broadcast: BroadcastOption = None,
    to_broadcast: Annotated[
        str | None, option("--to-broadcast", "FILE", "Write the offsets.json of a broadcasting client.")
    ] = None,
    broker: BrokerOption = None,
    options: ChangeOptions = CHANGE,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Copy the offsets of a group to another, except those of its retry topic; the plan is shown first.

    With --broadcast or --to-broadcast one side is the offsets file of a broadcasting client, for a group that changes
    its message model. That client's group is the name of the file's directory, and may be the same on both sides. A
    file that does not exist is created. Exit codes as for group reset.
    """
    if (live := live_target(store)) is not None:
        from rmqtool.cli.consumers import live_offsets

        return live_offsets.clone(live, source, target, topic, clamp=clamp, options=options)
    layout = need_log(store, broker_conf, say=False).layout
    planner = _clone_planner(
        layout, source, target, topic, broadcast=broadcast, to_broadcast=to_broadcast, broker=broker
    )
    return _run_offsets(
        layout, _opener_of(to_broadcast, broker, may_be_new=True), planner, command="group-clone", clamp=clamp,
        options=options, nothing=source,
    )  # fmt: skip


def _reset_planner(
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
        BadValue: none of them is given, or several are.
    """
    target = _target_of(earliest=earliest, latest=latest, time=time, offset=offset, shift=shift, csv=csv)
    if csv is None:
        assert target is not None
        return offset_plan.reset(group, topics, queues, target)
    if topics or queues:
        raise BadValue("--from-csv names the topics and queues itself: leave out --topic and --queue")
    return offset_plan.from_rows(group, offset_plan.read_rows(csv))


def _target_of(
    *, earliest: bool, latest: bool, time: str | None, offset: int | None, shift: int | None, csv: str | None
) -> OffsetTarget | None:
    """Where the options say that offsets are moved; None for a file.

    Raises:
        BadValue: none of them is given, or several are.
    """
    targets = [OffsetTarget("earliest")] * earliest + [OffsetTarget("latest")] * latest
    targets += [OffsetTarget("time", parse_time(time))] if time is not None else []
    targets += [OffsetTarget("offset", offset)] if offset is not None else []
    targets += [OffsetTarget("shift", shift)] if shift is not None else []
    if len(targets) + (csv is not None) != 1:
        raise BadValue("give one of --to-earliest, --to-latest, --to-time, --to-offset, --shift and --from-csv")
    return targets[0] if targets else None


def _clone_planner(
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
        BadValue: the groups are the same, the new name is invalid, or a client's file belongs to another group.
    """
    if source == target and broadcast == to_broadcast:
        raise BadValue("both groups are the same")
    try:
        check_group(target)
    except Rejected as err:
        raise BadValue(str(err)) from err
    for path, group in ((broadcast, source), (to_broadcast, target)):
        if path is not None and group_of(path) != group:
            raise BadValue(f"{path}: a client keeps the offsets of {group} in a directory with that name")
    origin = _opener_of(broadcast, broker)

    def offsets() -> Mapping[Key, int]:
        return origin(layout, lambda _text: None).offsets

    return offset_plan.clone(source, target, topics, offsets if broadcast != to_broadcast else None)


def _opener_of(broadcast: str | None, broker: str | None, *, may_be_new: bool = False) -> Opener:
    """Opens the file with the offsets: a broadcasting client's, or the broker's."""

    def open_offsets(layout: StoreLayout, warn: Warn) -> BrokerFile | ClientFile:
        return BrokerFile(layout, warn) if broadcast is None else ClientFile(broadcast, broker, may_be_new=may_be_new)

    return open_offsets


def _run_offsets(
    layout: StoreLayout,
    opener: Opener,
    planner: Planner,
    *,
    command: str,
    clamp: bool,
    options: ChangeOptions,
    nothing: str,
) -> int:
    """Show the plan, ask, and carry it out."""
    name = command.replace("-", " ")
    options.need(name)
    refuse_if_held(
        layout.root,
        holder(layout.root),
        dry_run=options.dry_run,
        otherwise="a running broker writes its own offsets over these, so this plan may be wrong",
    )
    warnings = heed(layout, name)
    plan, _done = carry_out(
        options,
        plan=lambda: offset_plan.make(layout, opener, planner, clamp=clamp),
        show=_note_moves,
        question=_question,
        do=lambda shown: offset_plan.apply(
            layout, opener, planner, command=command, clamp=clamp, backup=options.backup, shown=shown
        ),
    )
    plan = replace(plan, warnings=[*warnings, *plan.warnings])
    _write(plan, options.output.value)
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


def _note_moves(plan: OffsetPlan) -> None:
    if plan.changes:
        for move in plan.moves:
            if move.newOffset != move.consumerOffset:
                note(f"  {move.topic} queue {move.queueId}: {move.consumerOffset} to {move.newOffset}")


def _question(plan: OffsetPlan) -> str | None:
    """The question, with how many messages will be consumed again or skipped; None if no offset changes."""
    if not plan.changes:
        return None
    effect = effect_of(plan.moves)
    return f"Set {counted(len(plan.changes), 'offset')}?" + (f" {effect}." if effect else "")


def _write(plan: OffsetPlan, output: str) -> None:
    if output in ("json", "ndjson"):
        write_object(output, plan.to_dict())
    else:
        write_rows(output, OffsetMove, plan.moves, spare=("minOffset",))
