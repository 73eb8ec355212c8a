"""The command ``recover``: the log as at a broker's next start, the rest made whole."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import chosen_release, need_log
from rmqtool.cli.framework.options import (
    RECOVERY_TABLES,
    AcceptLossOption,
    BackupOption,
    BrokerConfOption,
    EngineOption,
    Output,
    OutputOption,
    StoreDir,
    option,
)
from rmqtool.cli.framework.planning import ASK, Consent

if TYPE_CHECKING:
    from rmqtool.services.comparison.group import GroupStart


@command("recover", "rmqtool recover store --dry-run", progress=True, tables=RECOVERY_TABLES)
def recover(
    store: StoreDir,
    consent: Consent = ASK,
    backup: BackupOption = None,
    engine: EngineOption = "auto",
    exactly: Annotated[
        bool,
        typer.Option(
            "--exactly",
            help="Do what a broker does and no more, also where it loses or doubles messages. Without this the log "
            "ends where a broker ends it, and queues, index, checkpoint and settings are made whole.",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Do not compare queues and index with the whole log: do what a broker does, and repair only what it "
            "would not load.",
        ),
    ] = False,
    accept_loss: AcceptLossOption = False,
    others: Annotated[
        list[str] | None,
        option(
            "--with",
            "OTHER",
            "With --dry-run: another copy of its group; shows which of them can lead, and what each loses.",
        ),
    ] = None,
    fix_delay_times: Annotated[
        bool,
        typer.Option("--fix-delay-times", help="Keep the deliver time of delayed messages if 4.9 would lose it."),
    ] = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Recover a store: the log as a broker would at its next start, everything else made whole.

    The log ends where a broker's start would end it. Every message before that end is put into its queue once, and
    nothing else stays in the queues; index, checkpoint and broken settings are repaired. The plan is shown first. Every
    byte and file that is removed is kept in STORE.rmqtool beside the store. A killed run is completed by the next one.
    Where intact messages follow damage, a broker cuts them off; salvage keeps them. The plan says how many there are,
    and --yes alone is then refused, as it is if the log is missing. Exit code 0: nothing to do, or done; 1: a dry run
    found work, or the store cannot be loaded; 4: refused.

    --with, once for each other copy of its group, also shows what the group does when its brokers start together. Of a
    member of a DLedger group the plan counts messages that a start of 5.x no longer serves, though its log has them:
    as a warning, or with --exactly as part of what the start does.
    """
    from rmqtool.cli.framework.planning import carry_out, refuse_if_held
    from rmqtool.cli.render.text import note
    from rmqtool.cli.repair.show_recovery import question, write_report
    from rmqtool.errors import BadValue, Refused, UnreadableStore
    from rmqtool.store.disk.lock import holder
    from rmqtool.store.layout.version import has_rocksdb_queues
    from rmqtool.store.recovery import command as recovery
    from rmqtool.store.recovery.dledger.command import plan_dledger
    from rmqtool.store.recovery.report import RecoveryReport
    from rmqtool.store.recovery.rocks.command import plan_rocks
    from rmqtool.store.roles.table import heed
    from rmqtool.words import with_store

    if others and not consent.dry_run:
        raise BadValue("--with needs --dry-run: recover changes only one store")
    release = chosen_release(engine)
    layout = need_log(store, broker_conf, say=False).layout
    try:
        pid = holder(layout.root)
    except UnreadableStore as err:
        if not consent.dry_run:
            raise
        note(f"warning: {err}: no process can take the lock, so a broker does not start, and recover refuses")
        pid = None
    refuse_if_held(
        layout.root,
        pid,
        dry_run=consent.dry_run,
        otherwise="the store changes while it is read, so this plan may be wrong",
    )
    if not consent.dry_run:
        heed(layout, "recover")
    consent.need("recover")
    rules: dict[str, Any] = {
        "release": release, "exactly": exactly, "quick": quick, "fix_delay_times": fix_delay_times, "backup": backup,
    }  # fmt: skip

    def plan() -> RecoveryReport:
        if layout.dledger_dirs():
            return plan_dledger(layout, exactly=exactly)
        if has_rocksdb_queues(layout.passing_over()) and (release is None or release.is_5):
            return plan_rocks(layout, release)
        return recovery.plan(layout, predict=consent.dry_run, **rules)

    def refuse_losses(report: RecoveryReport, confirmed: list[str]) -> None:
        if report.destroys and not accept_loss and report.destroys != confirmed:
            losses = with_store("; ".join(report.destroys), store)
            raise Refused(f"{layout.root}: {losses}. Nothing was changed; --accept-loss does it all the same")

    report, done = carry_out(
        consent,
        plan=plan,
        settled=lambda plan: plan.clean or not plan.loadOk,
        show=lambda plan: write_report(plan, "text", to_stderr=True, conf=broker_conf),
        question=question,
        do=lambda shown: recovery.recover(
            layout, **rules, guard=lambda report: refuse_losses(report, shown.destroys if shown else [])
        ),
    )
    group = _group_of([store, *others]) if others else None
    write_report(report, output.value, conf=broker_conf, group=group)
    return 0 if (report.loadOk if done else report.clean and not report.unfit) else 1


def _group_of(stores: list[str]) -> "GroupStart":
    """Determine what the copies of a group do when their brokers start together."""
    from rmqtool.cli.framework.opening import open_copies
    from rmqtool.cli.render.text import note
    from rmqtool.services.comparison.group import group_start
    from rmqtool.services.comparison.replicas import compare_replicas

    return group_start(compare_replicas(open_copies(stores, None), lambda text: note(f"warning: {text}")))
