"""The command ``warm-up``: a faster start of Spark."""

from typing import Annotated

import typer

from rmqtool.cli.shell.app import command
from rmqtool.cli.shell.options import Output, OutputOption


@command("warm-up", "rmqtool warm-up")
def warm_up(
    remove: Annotated[bool, typer.Option("--remove", help="Remove what an earlier warm-up has stored.")] = False,
    output: OutputOption = Output.table,
) -> int:
    """Make Spark start faster from now on.

    Keeps Spark's Java classes, loaded and checked, in a file in your cache directory; every later start of the same
    Java and PySpark maps it. Run it once, and again after an upgrade of either. It takes a minute, and the file about
    150 MiB.
    """
    from rmqtool.analytics.spark.archive import remove_archives
    from rmqtool.analytics.spark.archive import warm_up as make
    from rmqtool.cli.tables.show_dump import write_removed, write_warm_up

    if remove:
        write_removed(remove_archives())
    else:
        write_warm_up(make(), output.value)
    return 0
