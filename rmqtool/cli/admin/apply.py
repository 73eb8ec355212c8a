"""The command ``apply``: topics and groups of a live cluster or a store as a file declares them."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import carry_out_shown, change_brokers
from rmqtool.cli.framework.opening import live_target, open_store
from rmqtool.cli.framework.options import BrokerConfOption, StoreOrTarget
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange, refuse_if_held
from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from rmqtool.admin.changes.declared import Declarations
    from rmqtool.admin.changes.run import Plan


@command("apply", "rmqtool apply @lab cluster.yaml --dry-run")
def apply(
    store: StoreOrTarget,
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML file with topics and groups.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="Also delete what the file owns (its section owns) but does not name.")
    ] = False,
    broker_conf: BrokerConfOption = None,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Create and change topics and groups as declared in a file, after showing the plan.

    config TARGET --yaml writes such a file, also from a store. Topics, groups and settings that the file does not name
    stay as they are. --dry-run shows the differences, and undo reverts the changes. The store of a stopped broker, or
    a new one, gets the same tables in its config directory, ready for serve or a broker; --broker then names the
    broker whose settings it gets. Exit codes as for topic create.
    """
    from rmqtool.admin.changes.declared import plan_declared, read_declared

    if live_target(store) is None:
        return _apply_to_store(store, read_declared(file), broker_conf, options, prune=prune)
    if broker_conf is not None:
        raise BadValue("--broker-conf: goes with a store directory, not with a live cluster")
    declared = read_declared(file)
    return change_brokers(
        store, lambda questions, where: plan_declared(questions, where, declared, prune=prune), command="apply",
        options=options,
    )  # fmt: skip


def _apply_to_store(
    store: str,
    declared: "Declarations",
    broker_conf: str | None,
    options: BrokerChange,
    *,
    prune: bool,
) -> int:
    if prune:
        raise BadValue("--prune: goes with a live cluster: messages of a topic without settings would remain")
    if len(options.broker or ()) > 1:
        raise BadValue("--broker: a store has one broker")
    from rmqtool.admin.changes.stored import apply_stored, plan_stored
    from rmqtool.errors import UnreadableStore
    from rmqtool.store.disk.lock import holder

    layout, name = open_store(store, broker_conf), options.broker[0] if options.broker else None
    if not layout.entries():
        raise UnreadableStore(f"{layout.root}: not a store; init makes one")
    refuse_if_held(
        layout.root, holder(layout.root), dry_run=options.dry_run,
        otherwise="a running broker writes its own tables over these, so this plan may be wrong",
    )  # fmt: skip

    def do(shown: "Plan | None") -> "Plan":
        return apply_stored(layout, declared, name, backup=options.backup, shown=shown)

    return carry_out_shown(lambda: plan_stored(layout, declared, name), do, command="apply", options=options)
