"""The ``group`` commands: lag of consumer groups, and how their offsets are set, copied and compared."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log, open_groups, open_store
from rmqtool.cli.framework.options import (
    ANY_GROUP,
    BackupOption,
    BakOption,
    BrokerConfOption,
    GroupChoice,
    LimitOption,
    Output,
    OutputOption,
    QueueOption,
    StoreDir,
    StoreOrTarget,
    TopicOption,
)
from rmqtool.cli.framework.planning import ASK, Consent

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]
BroadcastOption = Annotated[
    str | None,
    typer.Option(
        "--broadcast", metavar="FILE", help="The offsets.json of a broadcasting client, not the broker's offsets."
    ),
]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", metavar="NAME", help="Which broker of that file this store is.")
]
ClampOption = Annotated[
    bool, typer.Option("--clamp", help="Take the nearest offset if one is out of its queue's range.")
]


class By(StrEnum):
    """What a row stands for."""

    queue = "queue"
    topic = "topic"
    group = "group"


@command("group list", "rmqtool group list store --output json")
def group_list(
    store: StoreOrTarget,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """List groups: configured or not, topics, lag, retries that wait, dead letters, offsets that cannot be right."""
    from rmqtool.cli.consumers.run_group import columns
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.services.consumers.groups import GroupInfo

    warn = Warnings()
    rows = list(open_groups(store, broker_conf, warn).infos())
    write_rows(
        output.value,
        GroupInfo,
        rows,
        columns(GroupInfo, rows),
        spare=("configured", "consumeEnable", "retryMaxTimes"),
    )
    return warn.tell()


@command("group lag", "rmqtool group lag store --group 'lab-*' --by topic")
def group_lag(
    store: StoreOrTarget,
    choice: GroupChoice = ANY_GROUP,
    by: Annotated[By, typer.Option("--by", metavar="FIELD", help="One row for each queue, topic or group.")] = By.queue,
    lagging: Annotated[bool, typer.Option("--lagging", help="Only rows with a lag, or messages in flight.")] = False,
    limit: LimitOption = None,
    broadcast: BroadcastOption = None,
    broker: BrokerOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show how far groups are behind, as the broker counts it, and offsets that cannot be right.

    What POP consumers hold is below the offset and not in diff: inFlight counts it, see group inflight.

    Exit code 1: an offset is beyond its queue's end (ahead), or what it points at is gone (expired); or
    no offset is as it was asked for.
    """
    from rmqtool.cli.consumers.run_group import client_file, columns, nobody_behind
    from rmqtool.cli.framework.choice import first, no_match, wanted_of
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.services.consumers.groups import PROBLEMS, GroupLag, LagSum, sums

    warn = Warnings()
    groups = open_groups(store, broker_conf, warn, wanted_of(choice), client=client_file(broadcast, broker))
    rows = [row for row in groups.lag() if not choice.queue or row.queueId in choice.queue]
    problems = sum(row.state in PROBLEMS for row in rows)
    shown: Sequence[GroupLag | LagSum]
    if by is By.queue:
        shown = list(first((row for row in rows if row.diff or row.inFlight or not lagging), limit))
        spare = ("minOffset", "lastTimestamp", "brokerOffset", "consumerOffset")
        write_rows(output.value, groups.lag_row, shown, columns(groups.lag_row, shown), spare=spare)
    else:
        names = (
            "group",
            *(("topic",) if by is By.topic else ("topics",)),
            "queues",
            "diff",
            "lastTimestamp",
            "problems",
        )
        totals = sums(rows, by_topic=by is By.topic)
        shown = list(first((row for row in totals if row.diff or row.inFlight or not lagging), limit))
        chosen = columns(LagSum, shown, (*names, "inFlight"))
        write_rows(output.value, LagSum, shown, chosen, spare=("lastTimestamp",))
    if lagging and rows and not shown:
        note(nobody_behind(rows))
    code = warn.tell() or (1 if problems else 0)
    return no_match(len(rows), code, **vars(choice))


@command("group inflight", "rmqtool group inflight store --group billing")
def group_inflight(
    store: StoreDir,
    choice: GroupChoice = ANY_GROUP,
    limit: LimitOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """List messages that POP consumers were given and have not acked, one by one, from checkpoints and acks.

    State invisible: nobody else gets it yet; due: the broker puts it into the retry topic when it runs again. Ordered
    groups come from consumerOrderInfo.json. Exit code 1: nothing is as it was asked for.
    """
    import time

    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.services.popping.in_flight import InFlight, MessagesInFlight

    warn = Warnings()
    popped = MessagesInFlight(need_log(store, broker_conf), int(time.time() * 1000), warn)
    chosen = RowChoice(vars(choice))
    names = (
        *("group", "state", "topic", "queueId", "queueOffset", "popTimestamp", "visibleTimestamp", "reconsumeTimes"),
        *("msgId", "keys"),
    )
    write_rows(output.value, InFlight, chosen(popped.in_flight(), limit), names, wide=("keys",))
    return chosen.ends(warn.tell())


@command("group offsets", "rmqtool group offsets store --group lab-consumer --output csv")
def group_offsets(
    store: StoreOrTarget,
    choice: GroupChoice = ANY_GROUP,
    limit: LimitOption = None,
    broadcast: BroadcastOption = None,
    broker: BrokerOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """List offsets as they are stored, without looking at queues; as CSV, a file that group reset reads.

    Exit code 1: no offset is as it was asked for.
    """
    from rmqtool.cli.consumers.run_group import client_file
    from rmqtool.cli.framework.choice import first, no_match, wanted_of
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    client = client_file(broadcast, broker)
    groups = open_groups(store, broker_conf, warn, wanted_of(choice), client=client, log=False)
    rows = (row for row in groups.stored() if not choice.queue or row.queueId in choice.queue)
    count = write_rows(output.value, groups.stored_row, first(rows, limit))
    return no_match(count, warn.tell(), **vars(choice))


@command("group reset", "rmqtool group reset store lab-consumer --topic Orders --to-time -1h --dry-run")
def group_reset(
    store: StoreDir,
    consumer_group: GroupArgument,
    topic: TopicOption = None,
    queue: QueueOption = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first message that is still there.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end, after the last message.")] = False,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="To the first message stored at or after this time.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, metavar="OFFSET", help="To this queue offset.")
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", metavar="N", help="By this many messages; a negative number goes back.")
    ] = None,
    from_csv: Annotated[
        str | None,
        typer.Option("--from-csv", metavar="FILE", help="To the offsets in this file (newOffset, or consumerOffset)."),
    ] = None,
    clamp: ClampOption = False,
    broadcast: BroadcastOption = None,
    broker: BrokerOption = None,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Set a stopped broker's offsets of a group; the plan is shown first.

    Without --topic, in every topic that the group has offsets in, except its retry topic. --output csv of a --dry-run
    is a file that --from-csv takes, edited or not; rows whose consumerOffset is no longer the current one are refused.
    The previous file becomes consumerOffset.json.bak, as with a broker, and undo puts both back. Exit code 0: nothing
    to change, or done; 1: a dry run found something to change, or there is no such offset.
    """
    from rmqtool.cli.consumers.run_reset import opener_of, reset_planner, run_offsets

    planner = reset_planner(
        consumer_group, topic, queue, earliest=to_earliest, latest=to_latest, time=to_time, offset=to_offset,
        shift=shift, csv=from_csv,
    )  # fmt: skip
    return run_offsets(
        need_log(store, broker_conf, say=False).layout, opener_of(broadcast, broker), planner, command="group-reset",
        clamp=clamp, consent=consent, backup=backup, output=output.value, nothing=consumer_group,
    )  # fmt: skip


@command("group clone", "rmqtool group clone store lab-consumer lab-consumer-2 --dry-run")
def group_clone(
    store: StoreDir,
    source: Annotated[str, typer.Argument(metavar="GROUP", help="Group whose offsets are taken.")],
    target: Annotated[str, typer.Argument(metavar="NEWGROUP", help="Group that gets them, there already or not.")],
    topic: TopicOption = None,
    clamp: ClampOption = False,
    broadcast: BroadcastOption = None,
    to_broadcast: Annotated[
        str | None,
        typer.Option("--to-broadcast", metavar="FILE", help="Write them for a broadcasting client (its offsets.json)."),
    ] = None,
    broker: BrokerOption = None,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Give a group the offsets of another, except those of its retry topic; the plan is shown first.

    With --broadcast or --to-broadcast one side is the file of a broadcasting client, for a group that changes its
    message model. The client's group is the name of the file's directory, and may be the same on both sides. A file
    that does not exist is created. Exit codes as for group reset.
    """
    from rmqtool.cli.consumers.run_reset import clone_planner, opener_of, run_offsets

    layout = need_log(store, broker_conf, say=False).layout
    planner = clone_planner(
        layout, source, target, topic, broadcast=broadcast, to_broadcast=to_broadcast, broker=broker
    )
    return run_offsets(
        layout, opener_of(to_broadcast, broker, may_be_new=True), planner, command="group-clone", clamp=clamp,
        consent=consent, backup=backup, output=output.value, nothing=source,
    )  # fmt: skip


@command("group diff", "rmqtool group diff store /backup/store --group lab-consumer")
def group_diff(
    store: StoreDir,
    other: Annotated[
        str | None,
        typer.Argument(metavar="[OTHER]", help="Another store, its consumerOffset.json, or a CSV file of offsets."),
    ] = None,
    choice: GroupChoice = ANY_GROUP,
    limit: LimitOption = None,
    bak: BakOption = False,
    every: Annotated[bool, typer.Option("--all", help="Also offsets that do not differ.")] = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Compare the offsets of two stores or snapshots, or with --bak those of a store with its previous generation.

    change is how far OTHER is ahead. Exit code 1: they differ, or neither has an offset that was asked for.
    """
    from rmqtool.cli.consumers.run_group import differences
    from rmqtool.cli.framework.choice import first, no_match
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.services.consumers.groups import OffsetChange

    warn = Warnings()
    rows, compared = differences(open_store(store, broker_conf), other, choice, bak=bak, equal=every, warn=warn)
    write_rows(output.value, OffsetChange, first(rows, limit))
    if compared and not rows:
        note("no offset differs")
    code = warn.tell() or (1 if any(row.offset != row.otherOffset for row in rows) else 0)
    return no_match(compared, code, **vars(choice))
