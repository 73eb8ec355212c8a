"""The command ``replicas``: which of several copies of a store to start, and what is lost then."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import ConfsOption, Output, OutputOption


@command(
    "replicas",
    "rmqtool replicas /disk1/store /disk2/store /disk3/store",
    progress=True,
    tables=("copies", "messages", "contradictions", "following", "history", "problems", "settings", "report"),
)
def replicas(
    stores: Annotated[
        list[str], typer.Argument(metavar="STORE...", help="Directories of brokers of one group, two or more.")
    ],
    output: OutputOption = Output.text,
    broker_conf: ConfsOption = None,
) -> int:
    """Compare copies of one store: a master and its slaves, members of a DLedger group, replicas of a controller.

    Shows the role and the log of each copy, up to where all agree, what each has that others lack, what becomes of it
    when it follows another one, which settings differ, and which copy to start. Without --broker-conf, the file
    STORE.conf beside a directory is read if there is one. Nothing is written.

    Exit code 0: all are equal; 1: they differ, or something could not be compared.
    """
    from rmqtool.cli.framework.opening import open_copies
    from rmqtool.cli.read.show_replicas import show
    from rmqtool.cli.render.output import PEOPLE, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.rows import Warnings, columns_of, names_of
    from rmqtool.cli.render.times import with_times
    from rmqtool.services.comparison.replicas import compare_replicas
    from rmqtool.services.comparison.report import CopyFacts

    warn = Warnings()
    report = compare_replicas(open_copies(stores, broker_conf), warn)
    if output in PEOPLE:
        show(report, output.value)
    elif output is Output.csv:
        if not PARTS.write(report, output):
            write_all(
                writer("csv", names_of(CopyFacts), columns_of(CopyFacts)), [row.to_dict() for row in report.copies]
            )
    else:
        write_object(output.value, with_times(report.to_dict()))
    return max(warn.tell(), 0 if report.equal else 1)
