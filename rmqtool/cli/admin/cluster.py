"""The commands ``cluster list``, ``broker-config show`` and ``client list``."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target
from rmqtool.cli.framework.options import GroupOption, LimitOption, Output, OutputOption, TargetArgument
from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqtool.admin.live.brokers import LiveBrokers


def open_brokers(target: str, warn: "Callable[[str], None]") -> "LiveBrokers":
    """The brokers of a live cluster.

    Raises:
        BadValue: a store directory was given.
    """
    live = live_target(target)
    if live is None:
        raise BadValue(f"{target}: give a live cluster: rocketmq://HOST:9876, or @NAME of the config file")
    from rmqtool.admin.live.brokers import LiveBrokers

    return LiveBrokers(live, warn)


@command("cluster list", "rmqtool cluster list rocketmq://127.0.0.1:9876")
def cluster_list(store: TargetArgument, output: OutputOption = Output.text) -> int:
    """List brokers: roles, addresses, versions, rates per second, request queues, page cache, disks, timers.

    The figures are the brokers' own; what a broker does not report is null. Exit code 1: a broker does not answer.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    rows = open_brokers(store, warn).statuses()
    from rmqtool.admin.live.brokers import BrokerStatus

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
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="SETTING", help="Only these settings, * and ? match; may be repeated."),
    ] = None,
    limit: LimitOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show the settings that brokers run with.

    Exit code 1: a broker does not answer, or no setting matches.
    """
    from rmqtool.cli.framework.choice import first, matches, no_match
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    settings = open_brokers(store, warn).settings(broker)
    from rmqtool.admin.live.brokers import BrokerSetting

    rows = [row for row in settings if matches(row.name, name)]
    write_rows(output.value, BrokerSetting, first(rows, limit), wide=("value",), spare=("cluster", "brokerId"))
    return no_match(len(rows), warn.tell(), broker=broker, name=name)


@command("client list", "rmqtool client list @prod --group billing")
def client_list(
    store: TargetArgument,
    group: GroupOption = None,
    limit: LimitOption = None,
    output: OutputOption = Output.text,
) -> int:
    """List the consumers that are online: group, id, address, language and subscriptions.

    Exit code 1: a broker does not answer, or no client matches.
    """
    from rmqtool.cli.framework.choice import first, matches, no_match
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    rows = open_brokers(store, warn).clients(lambda name: matches(name, group))
    from rmqtool.admin.live.brokers import GroupClient

    shown = ("group", "clientId", "clientAddr", "language", "version", "consumeType", "messageModel", "brokers")
    spare = ("brokers", "messageModel", "consumeType", "version")
    write_rows(output.value, GroupClient, first(rows, limit), shown, spare=spare)
    return no_match(len(rows), warn.tell(), group=group)
