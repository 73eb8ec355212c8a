"""The commands for controllers, which elect the masters of brokers in controller mode, 5.x."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change, list_rows, need_target, parse_settings
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import Output, OutputOption, SettingOption, SettingsArgument, TargetArgument
from rmqtool.cli.framework.planning import CHANGE, ChangeOptions

BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.")]


@command("controller list", "rmqtool controller list @prod")
def controller_list(store: TargetArgument, output: OutputOption = Output.text) -> int:
    """List the controllers that the brokers' settings name (controllerAddr), and which of them leads.

    Exit code 1: a controller or broker does not answer.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.controllers import ControllerRow, list_controllers

    write_rows(output.value, ControllerRow, list_controllers(target, warn), spare=("group", "leaderId", "peers"))
    return warn.tell()


@command("controller replicas", "rmqtool controller replicas @prod broker-a")
def controller_replicas(
    store: TargetArgument,
    broker: Annotated[
        str | None, typer.Argument(metavar="[BROKER]", help="Only the broker of this name, also if it is down.")
    ] = None,
    output: OutputOption = Output.text,
) -> int:
    """List the replicas that the controller knows: master, in sync, alive; and the epochs of their logs.

    An epoch is the part of the log that one master wrote. Exit code 1: a replica does not answer, or a broker is
    unknown to the controller.
    """
    from rmqtool.admin.live.controllers import ControlledReplica, list_controlled_replicas

    return list_rows(
        store, ControlledReplica, lambda target, warn: list_controlled_replicas(target, broker, warn), output,
        spare=("cluster", "epochs", "syncStateSetEpoch", "masterEpoch"), broker=broker,
    )  # fmt: skip


@command("controller elect", "rmqtool controller elect @prod broker-a 2 --dry-run")
def controller_elect(
    store: TargetArgument,
    broker: BrokerName,
    replica: Annotated[int, typer.Argument(metavar="ID", help="Id of the replica, as in controller replicas.")],
    options: ChangeOptions = CHANGE,
) -> int:
    """Make a replica the master of its broker, after showing the plan.

    Refused for a replica that is down, and for one that is not in sync, except with enableElectUncleanMaster of the
    controller. Exit codes as for topic create.
    """
    target = need_target(store)
    from rmqtool.admin.changes.controller_plans import plan_election

    return change(
        target, lambda questions: plan_election(questions, target, broker, replica), command="controller elect",
        options=options,
    )  # fmt: skip


@command("controller forget", "rmqtool controller forget @prod broker-a 3 --dry-run")
def controller_forget(
    store: TargetArgument,
    broker: BrokerName,
    replicas: Annotated[list[int], typer.Argument(metavar="ID...", help="Ids of replicas that are down.")],
    options: ChangeOptions = CHANGE,
) -> int:
    """Have the controllers forget replicas that are down and will not come back, after showing the plan.

    Undo does not bring them back; a broker that starts registers itself again. Exit codes as for topic create.
    """
    target = need_target(store)
    from rmqtool.admin.changes.controller_plans import plan_forgetting

    return change(
        target, lambda questions: plan_forgetting(questions, target, broker, replicas), command="controller forget",
        options=options,
    )  # fmt: skip


@command("controller-config show", "rmqtool controller-config show @prod --name '*Elect*'")
def controller_config_show(
    store: TargetArgument, name: SettingOption = None, output: OutputOption = Output.text
) -> int:
    """Show the settings that controllers run with.

    Exit code 1: a controller or broker does not answer, or no setting matches.
    """
    from rmqtool.admin.live.controllers import ControllerSetting, list_controller_settings

    return list_rows(
        store, ControllerSetting,
        lambda target, warn: (row for row in list_controller_settings(target, warn) if matches(row.name, name)),
        output, wide=("value",), name=name,
    )  # fmt: skip


@command("controller-config set", "rmqtool controller-config set @prod enableElectUncleanMaster=true --dry-run")
def controller_config_set(store: TargetArgument, settings: SettingsArgument, options: ChangeOptions = CHANGE) -> int:
    """Change settings of every controller, after showing the plan.

    A controller also writes them to its properties file. Names that it does not have are refused. Exit codes as for
    topic create.
    """
    target, values = need_target(store), parse_settings(settings)
    from rmqtool.admin.changes.controller_plans import plan_controller_settings

    return change(
        target, lambda questions: plan_controller_settings(questions, target, values),
        command="controller-config set", options=options,
    )  # fmt: skip
