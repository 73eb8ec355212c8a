"""The command ``sql``: Spark SQL over stores."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption

StoresDir = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Store directory, or URI like s3://...; several with commas between them, or * in the path.",
    ),
]


@command("sql", 'rmqtool sql store "SELECT topic, count(*) FROM messages GROUP BY topic"', progress=True)
def sql(
    store: StoresDir,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query in Spark's SQL.")],
    to: Annotated[str | None, typer.Option("--to", metavar="FILE", help="Write the rows to this Parquet file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older output.")] = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Query a store in SQL, through Spark.

    Tables: messages, queues, offsets, topics, index, compacted, findings. Columns are the fields of the other commands'
    machine output; broker tells stores apart. Only what the query needs is read. Exit code 1: damage was met.
    """
    from rmqtool.cli.tables.asked import request
    from rmqtool.cli.tables.run_sql import run_sql

    return run_sql(request(store, broker_conf), query, to=to, overwrite=overwrite, output=output.value)
