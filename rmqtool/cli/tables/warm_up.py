"""The command ``warm-up``: keep Spark's Java classes in an archive, so that Spark starts faster."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import Output, OutputOption


@command("warm-up", "rmqtool warm-up")
def warm_up(
    remove: Annotated[bool, typer.Option("--remove", help="Remove the file of an earlier warm-up.")] = False,
    output: OutputOption = Output.text,
) -> int:
    """Make later starts of Spark faster.

    Spark's Java classes, already loaded and verified, are stored in a file in your cache directory, which later starts
    of the same Java and PySpark map. Run it once, and again after an upgrade of either. It takes a minute, and the file
    about 150 MiB.
    """
    from dataclasses import asdict

    from formats.fastjson.declare import to_camel_case
    from rmqtool.analytics.spark.archive import remove_archives
    from rmqtool.analytics.spark.warm_up import warm_up as make
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.text import note

    if remove:
        for path in remove_archives():
            note(f"{path}: removed")
        return 0
    archive = make()
    row = {to_camel_case(name): round(v, 2) if isinstance(v, float) else v for name, v in asdict(archive).items()}
    if output in (Output.json, Output.ndjson):
        write_object(output.value, row)
    else:
        write_all(writer(output.value, tuple(row), [Column(name) for name in row]), [row])
    note(f"Spark starts in {archive.start_after:.1f} s instead of {archive.start_before:.1f} s")
    return 0
