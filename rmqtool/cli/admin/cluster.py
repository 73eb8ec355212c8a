"""The commands that show brokers, their settings and their clients, and how long they take to store a message."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import list_rows, need_target
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import (
    BrokersOption,
    GroupOption,
    LimitOption,
    Output,
    OutputOption,
    SettingOption,
    TargetArgument,
    option,
)
from rmqtool.cli.framework.planning import ASK, Consent
from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from formats.remoting.shapes import MessageQueue

_MOST_CONF = 1 << 20  # bytes of a properties file


@command("cluster list", "rmqtool cluster list rocketmq://127.0.0.1:9876")
def cluster_list(store: TargetArgument, output: OutputOption = Output.text) -> int:
    """List brokers: roles, addresses, versions, rates per second, request queues, page cache, disks, timers.

    The figures are the brokers' own; what a broker does not report is null. Exit code 1: a broker does not answer.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.brokers import BrokerStatus, LiveBrokers

    rows = LiveBrokers(target, warn).statuses()

    shown = (
        *("cluster", "brokerName", "brokerId", "role", "address", "version", "putTps", "getTransferredTps"),
        *("pageCacheLockTimeMills", "commitLogDiskRatio", "behindMaster", "timerReadBehind"),
    )
    spare = ("timerReadBehind", "behindMaster", "cluster", "role", "pageCacheLockTimeMills", "version")
    write_rows(output.value, BrokerStatus, rows, shown, spare=spare)
    return warn.tell()


@command("broker-config show", "rmqtool broker-config show @prod broker-a --name flushDiskType")
def broker_config_show(
    store: TargetArgument,
    broker: Annotated[
        str | None, typer.Argument(metavar="[BROKER]", help="Only the broker of this name or address.")
    ] = None,
    name: SettingOption = None,
    limit: LimitOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show the settings that brokers run with.

    Exit code 1: a broker does not answer, or no setting matches.
    """
    from rmqtool.admin.live.brokers import BrokerSetting, LiveBrokers

    return list_rows(
        store, BrokerSetting,
        lambda target, warn: (row for row in LiveBrokers(target, warn).settings(broker) if matches(row.name, name)),
        output, limit=limit, wide=("value",), spare=("cluster", "brokerId"), broker=broker, name=name,
    )  # fmt: skip


@command("client list", "rmqtool client list @prod --group billing")
def client_list(
    store: TargetArgument, group: GroupOption = None, limit: LimitOption = None, output: OutputOption = Output.text
) -> int:
    """List the consumers that are online: group, id, address, language and subscriptions.

    Exit code 1: a broker does not answer, or no client matches.
    """
    from rmqtool.admin.live.brokers import GroupClient, LiveBrokers

    return list_rows(
        store, GroupClient, lambda target, warn: LiveBrokers(target, warn).clients(lambda name: matches(name, group)),
        output, limit=limit, group=group,
        names=("group", "clientId", "clientAddr", "language", "version", "consumeType", "messageModel", "brokers"),
        spare=("brokers", "messageModel", "consumeType", "version"),
    )  # fmt: skip


@command("cluster replicas", "rmqtool cluster replicas @prod")
def cluster_replicas(store: TargetArgument, output: OutputOption = Output.text) -> int:
    """List the slaves of each master: acknowledged offset, bytes behind, whether in sync, bytes per second.

    Brokers of 4.9 do not report their slaves. Exit code 1: a broker does not answer or report.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.replicas import SlaveProgress, list_replicas

    rows = list_replicas(target, warn)
    write_rows(output.value, SlaveProgress, rows, spare=("cluster", "masterMaxOffset", "transferredByteInSecond"))
    return warn.tell()


@command("broker-config diff", "rmqtool broker-config diff @prod --defaults")
def broker_config_diff(
    store: TargetArgument,
    file: Annotated[str | None, option("--file", "FILE", "Compare with this properties file of a broker.")] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Compare with the defaults of each broker's release.")
    ] = False,
    own: Annotated[
        bool, typer.Option("--own", help="Also settings meant to differ: names, addresses, ports, paths, roles.")
    ] = False,
    name: SettingOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show the settings in which brokers differ from each other, from a file, or from the defaults of their release.

    A setting that the file does not name is not compared. Exit code 1: there are differences, or a broker does not
    answer.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows

    if file is not None and defaults:
        raise BadValue("--file cannot be given with --defaults")
    target, warn = need_target(store), Warnings()
    from formats.config.properties import parse_properties
    from rmqtool.admin.live.settings import BrokerSettingDifference, compare_settings
    from rmqtool.remoting.files import read_small

    known = None if file is None else parse_properties(read_small(file, _MOST_CONF, "a broker's properties file"))
    rows = compare_settings(target, warn, lambda text: matches(text, name), file=known, defaults=defaults, own=own)
    other = ("other",) if known is not None or defaults else ()
    shown = ("cluster", "name", "brokerName", "brokerId", "value", *other)
    spare = ("brokerId", "cluster")
    write_rows(output.value, BrokerSettingDifference, rows, shown, wide=("value", "other"), spare=spare)
    return warn.tell() or int(bool(rows))


@command("send-rtt", "rmqtool send-rtt @lab --messages 20 --yes")
def send_rtt(
    store: TargetArgument,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Topic to send to; by default that with each broker's name."),
    ] = None,
    count: Annotated[
        int, typer.Option("--messages", min=1, max=100_000, metavar="N", help="Messages per broker.")
    ] = 10,
    size: Annotated[int, typer.Option("--size", min=1, max=4_000_000, metavar="BYTES", help="Size of a body.")] = 128,
    broker: BrokersOption = None,
    consent: Consent = ASK,
    output: OutputOption = Output.text,
) -> int:
    """Measure how long each broker takes to store a message: least, median and most milliseconds.

    The messages are stored, with the tag rmqtool-send-rtt, and consumers of TOPIC get them; so the command asks first.
    They are sent one after the other. Exit code 1: a dry run, or a message was not acknowledged.
    """
    from rmqtool.cli.framework.planning import carry_out
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.words import counted

    consent.need("send-rtt")
    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.round_trips import RoundTrips, measure_round_trips, plan_round_trips

    def plan(planned: "list[MessageQueue] | None" = None) -> "list[MessageQueue]":
        return planned or plan_round_trips(target, warn, topic, broker or ())

    def show(queues: "list[MessageQueue]") -> None:
        note(f"  {counted(count, 'message')} each: {', '.join(map(str, queues))}")

    queues, done = carry_out(consent, plan=plan, show=show, question=lambda _queues: "Send them?", do=plan)
    if not done:
        brokers = counted(len({queue.broker_name for queue in queues}), "broker")
        note(f"{counted(count, 'message')} would be sent to each of {brokers}: {', '.join(map(str, queues))}")
        return warn.tell() or 1
    rows = measure_round_trips(target, warn, queues, count=count, size=size)
    write_rows(output.value, RoundTrips, rows, wide=("reason",), spare=("queues",))
    return warn.tell() or int(any(row.failed for row in rows))
