"""The commands ``check`` and ``explain``: all damage of a store, and what a finding means."""

from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import chosen_release, open_store
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption, StoreDir
from rmqtool.errors import BadValue


class Severity(StrEnum):
    """How bad a finding is, worst first."""

    error = "error"
    warning = "warning"
    info = "info"


@command("check", "rmqtool check store --output json", progress=True)
def check(
    store: StoreDir,
    severity: Annotated[
        Severity,
        typer.Option(
            "--severity",
            metavar="SEVERITY",
            help="Only findings of error, warning or info and worse; others do not count.",
        ),
    ] = Severity.info,
    limit_per_code: Annotated[
        int | None,
        typer.Option("--limit-per-code", min=1, metavar="N", help="Show at most N findings of a code; count the rest."),
    ] = None,
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Check a whole store: every file by itself, then files against each other.

    With --broker-conf also whether a broker with that file starts on this store, and which lines it passes over; with
    --engine as a broker of that release does, before an upgrade.

    A directory that holds several stores, such as the root of a broker container, has each of them checked.

    Nothing is written, and a store that no broker would load is checked all the same. Of the findings of one code, file
    and queue the first 20 are shown, and the rest is counted. Exit code 0: clean, which infos are too; 1: errors or
    warnings.
    """
    from rmqtool.cli.read.run_check import Checked, run_check
    from rmqtool.store.layout.containers import name_below, stores_below

    stores = [Checked(open_store(path, broker_conf), path, name_below(store, path)) for path in stores_below(store)]
    if stores and broker_conf is not None:
        raise BadValue(f"{store} holds {len(stores)} stores, and --broker-conf is of one: check each by itself")
    stores = stores or [Checked(open_store(store, broker_conf), store)]
    return run_check(stores, severity.value, limit_per_code, output.value, broker_conf, chosen_release(engine))


@command("explain", "rmqtool explain cq-missing")
def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="A code of check or doctor; without it, all.")
    ] = None,
    output: OutputOption = Output.text,
) -> int:
    """Explain a code of check or doctor: what it means, how it comes about, what a broker does, what to do."""
    from rmqtool.cli.read.run_check import run_explain

    return run_explain(code, output.value)
