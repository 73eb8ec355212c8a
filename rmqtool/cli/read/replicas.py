"""The command ``replicas``: which of several copies of a store to start, and what is lost then."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import LimitOption, Output, OutputOption

if TYPE_CHECKING:
    from rmqtool.store.layout.paths import StoreLayout


@command(
    "replicas",
    "rmqtool replicas /disk1/store /disk2/store /disk3/store",
    progress=True,
    tables=("copies", "messages", "contradictions", "following", "history", "settings", "report"),
)
def replicas(
    stores: Annotated[
        list[str], typer.Argument(metavar="STORE STORE...", help="Directories of brokers of one group, two or more.")
    ],
    limit: LimitOption = None,
    output: OutputOption = Output.text,
    confs: Annotated[
        list[str] | None,
        typer.Option(
            "--broker-conf", metavar="FILE", help="A broker's properties file; one for all, or one for each STORE."
        ),
    ] = None,
) -> int:
    """Compare copies of one store: a master and its slaves, members of a DLedger group, replicas of a controller.

    Shows the role and the log of each copy, up to where all agree, what each has that others lack, what becomes of it
    when it follows another one, which settings differ, and which copy to start. Without --broker-conf, the file
    STORE.conf beside a directory is read if there is one. Nothing is written.

    Exit code 0: all are equal; 1: they differ, or something could not be compared.
    """
    from rmqtool.cli.read.show_replicas import show
    from rmqtool.cli.render.output import PEOPLE, with_times, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.rows import Warnings, columns_of, names_of
    from rmqtool.services.comparison.replicas import compare_replicas
    from rmqtool.services.comparison.report import CopyFacts

    warn = Warnings()
    report = compare_replicas(open_copies(stores, confs), warn)
    if output in PEOPLE:
        show(report, output.value, limit)
    elif output is Output.csv:
        if not PARTS.write(report, output):
            write_all(
                writer("csv", names_of(CopyFacts), columns_of(CopyFacts)), [row.to_dict() for row in report.copies]
            )
    else:
        write_object(output.value, with_times(report.to_dict()))
    return max(warn.tell(), 0 if report.equal else 1)


def open_copies(stores: list[str], confs: list[str] | None, what: str = "not compared") -> "list[StoreLayout]":
    """Open the directories of several copies, each with its settings.

    Args:
        confs: properties files; one for all, or one for each.
        what: what is not done with messages that are elsewhere.

    Raises:
        BadValue: fewer than two directories, one that is given twice, or another number of files.
        UnreadableStore: a directory is no store.
    """
    from rmqtool.cli.framework.opening import need_messages
    from rmqtool.cli.render.text import note
    from rmqtool.errors import BadValue

    if len(stores) < 2:
        raise BadValue(f"{stores[0]}: give at least two directories")
    if confs and len(confs) not in (1, len(stores)):
        raise BadValue(f"--broker-conf: give one file for all, or one for each of the {len(stores)} directories")
    chosen: list[str | None] = []
    for store, conf in zip(stores, confs * len(stores) if confs and len(confs) == 1 else confs or stores, strict=True):
        beside = store.rstrip("/") + ".conf"
        if confs:
            chosen.append(conf)
        elif os.path.isfile(beside):
            note(f"settings of {store}: {beside}")
            chosen.append(beside)
        else:
            chosen.append(None)
    layouts = [need_messages(store, conf, what=what).layout for store, conf in zip(stores, chosen, strict=True)]
    real = [os.path.realpath(store) for store in stores]
    for at, path in enumerate(real):
        if path in real[:at]:
            raise BadValue(f"{stores[at]}: the same directory as {stores[real.index(path)]}")
    return layouts
