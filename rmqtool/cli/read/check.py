"""The commands ``check`` and ``explain``: all damage of a store, and what a finding means."""

from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import chosen_release, open_store
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption, StoreDir, option
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
        Severity, option("--severity", "SEVERITY", "Only findings of at least this severity: error, warning or info.")
    ] = Severity.info,
    limit_per_code: Annotated[
        int | None,
        typer.Option(
            "--limit-per-code", min=1, metavar="N", help="Show at most N findings per code and count the others."
        ),
    ] = None,
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Check a whole store: each file by itself, then the files against each other.

    --broker-conf also checks whether a broker with this file starts on the store, and which of its lines are ignored.
    --engine checks by the rules of another release, before an upgrade for example.

    If the directory holds several stores, such as the root of a broker container, each of them is checked.

    Nothing is written, and stores that no broker would load are checked, too. For each code, file and queue the first
    20 findings are shown, and the others counted. Exit code 0: clean, or infos only; 1: errors or warnings.
    """
    from rmqtool.cli.read.run_check import CheckedStore, run_check
    from rmqtool.store.layout.containers import name_below, stores_below

    stores = [
        CheckedStore(open_store(path, broker_conf), path, name_below(store, path)) for path in stores_below(store)
    ]
    if stores and broker_conf is not None:
        raise BadValue(f"{store} holds {len(stores)} stores, and --broker-conf is of one: check each by itself")
    stores = stores or [CheckedStore(open_store(store, broker_conf), store)]
    return run_check(stores, severity.value, limit_per_code, output.value, broker_conf, chosen_release(engine))


@command("explain", "rmqtool explain cq-missing")
def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="A code of check or doctor; by default all.")
    ] = None,
    output: OutputOption = Output.text,
) -> int:
    """Explain a code of check or doctor: its meaning, its causes, what a broker does, and what to do."""
    from rmqtool.cli.read.run_explain import run_explain

    return run_explain(code, output.value)
