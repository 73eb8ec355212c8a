"""The commands ``convert``, ``split`` and ``consolidate``: a store into one of another form."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import open_store
from rmqtool.cli.framework.options import BrokerConfOption, DryRunOption, Output, OutputOption, StoreDir, option
from rmqtool.errors import BadValue
from rmqtool.rules.releases import NEWEST
from rmqtool.store.layout.paths import StoreLayout

if TYPE_CHECKING:
    from rmqtool.store.convert.report import ConversionReport

NewStoreDir = Annotated[str, typer.Argument(metavar="NEWSTORE", help="Directory to create; must not exist.")]


class ConvertTo(StrEnum):
    """What ``convert`` makes."""

    store = "store"
    controller = "controller"
    newest = NEWEST.name


@command("convert", "rmqtool convert store newstore --to controller --dry-run", progress=True)
def convert(
    store: StoreDir,
    new_store: NewStoreDir,
    to: Annotated[ConvertTo, option("--to", "FORM", "store, controller or 5.5.")] = ConvertTo.store,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Make a store of another form from a stopped one, which stays as it is.

    FORM store is an ordinary store, its log in one directory: from a member of a DLedger group, a replica in controller
    mode, several log directories, or RocksDB. FORM controller is a replica with which a new group with a controller
    begins: its first master has all messages, and empty replicas copy them. FORM 5.5 is a copy on which a broker of 5.5
    starts without changing queues or index.

    Every message keeps its queue offset. Prints what is different, and what the broker's settings must say. --dry-run
    only shows that. All or nothing: if a part cannot be kept as it is, nothing is made and the exit code is 5 or 4.
    """
    from rmqtool.store.convert.convert import convert as run
    from rmqtool.store.convert.report import StoreForm

    return _carry_out(open_store(store, broker_conf), lambda layout: run(layout, new_store, StoreForm(to.value),
                                                                        dry_run=dry_run), output)  # fmt: skip


@command("split", "rmqtool split store newstore --topic Orders", progress=True)
def split(
    store: StoreDir,
    new_store: NewStoreDir,
    topics: Annotated[
        list[str] | None, option("--topic", "NAME", "A topic for the new store; *, ? and [...] match; repeatable.")
    ] = None,
    log_dirs: Annotated[
        list[str] | None, option("--log-dir", "DIR", "A directory for the new store's log; two or more.")
    ] = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Copy some topics of a stopped store to one of their own, or spread a store's log over several directories.

    With --topic, the new store has these topics, with the delayed messages that wait for them, under the queue offsets
    that they have. With --log-dir, given twice or more, the files of the log go to these directories by turns, as a
    broker with storePathCommitLog=DIR,DIR puts them. The source stays as it is. --dry-run only shows what is different.
    """
    from rmqtool.store.convert.convert import split_topics, spread_log

    if bool(topics) == bool(log_dirs) or (log_dirs and len(log_dirs) < 2):
        raise BadValue("give --topic, or --log-dir twice or more")
    layout = open_store(store, broker_conf)
    if topics:
        return _carry_out(layout, lambda source: split_topics(source, new_store, topics, dry_run=dry_run), output)
    return _carry_out(layout, lambda source: spread_log(source, new_store, log_dirs or (), dry_run=dry_run), output)


@command("consolidate", "rmqtool consolidate store newstore --broker-conf broker.conf", progress=True)
def consolidate(
    store: StoreDir,
    new_store: NewStoreDir,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Copy a stopped store whose log lies in several directories to one with its log in one.

    --broker-conf names the directories (storePathCommitLog). The source stays as it is. --dry-run only shows what is
    different.
    """
    from rmqtool.store.convert.convert import spread_log

    return _carry_out(
        open_store(store, broker_conf), lambda layout: spread_log(layout, new_store, (), dry_run=dry_run), output
    )


def _carry_out(layout: StoreLayout, run: "Callable[[StoreLayout], ConversionReport]", output: Output) -> int:
    """Convert, and show the report."""
    from rmqtool.cli.render.console import console, facts_table
    from rmqtool.cli.render.output import PEOPLE, Column, write_all, write_object, writer
    from rmqtool.cli.render.text import note
    from rmqtool.words import command_line, counted

    report = run(layout)
    if output is Output.csv:
        columns = (Column("setting"), Column("value"))
        rows = [{"setting": change.name, "value": change.value} for change in report.settings]
        write_all(writer("csv", ("setting", "value"), columns), rows)
    elif output not in PEOPLE:
        write_object(output.value, report.to_dict())
    else:
        facts = [("log", f"{counted(report.files, 'file')}, {counted(report.bytes, 'byte')}")] if report.files else []
        if report.messages is not None:
            facts.append(("messages", str(report.messages)))
        facts += [("changes", change) for change in report.changes]
        facts += [
            ("setting", f"{change.name}={change.value}" if change.value is not None else f"without {change.name}")
            for change in report.settings
        ]
        console(output.value).print(facts_table(facts))
    for warning in report.warnings:
        note(f"warning: {warning}")
    if report.applied:
        note(
            f"{report.store} is made; {layout.root} was not changed. Next: {command_line('check', report.store)}; then "
            "start the broker on it with these settings"
        )
    else:
        note(f"{report.store} would be made; {layout.root} stays as it is")
    return 0
