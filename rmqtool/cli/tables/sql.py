"""The command ``sql``: Spark SQL over stores."""

import os
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption
from rmqtool.errors import Refused

StoresDir = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Store directory, or URI like s3://...; several with commas between them, or * in the path.",
    ),
]


@command("sql", 'rmqtool sql store "SELECT topic, count(*) FROM messages GROUP BY topic"', progress=True)
def sql(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="Store directory, or URI like s3://...; several with commas between them, or * in the path; or a live "
            "cluster: rocketmq://HOST:9876, or @NAME of the config file.",
        ),
    ],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query in Spark's SQL.")],
    to: Annotated[str | None, typer.Option("--to", metavar="FILE", help="Write the rows to this Parquet file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Query a store in SQL, through Spark; Java needs some seconds to start. Most reports do not need it.

    Tables: messages, queues, offsets, topics, index, compacted, findings. Columns are the fields of the other commands'
    machine output; broker distinguishes stores. Only what the query needs is read. Exit code 1: parts of the store are
    damaged.

    A live cluster has the table messages, with the topics in conditions like topic = 'Orders', else all ordinary
    topics. They are pulled without a consumer group.
    """
    from contextlib import closing

    from rmqtool.analytics.live.options import LiveRequest
    from rmqtool.analytics.sql.query import answer
    from rmqtool.cli.framework.opening import live_target
    from rmqtool.cli.render.output import write_all, writer
    from rmqtool.cli.tables.asked import request, say
    from rmqtool.cli.tables.spark import columns_of, rows_of, spark_process

    target = live_target(store)
    asked = request(store, broker_conf) if target is None else LiveRequest(target, pattern=".*", by_option=False)
    if to is not None:
        _may_write(to, overwrite=overwrite)
    with spark_process(), answer(asked, query) as result:
        if to is not None:
            result.write_parquet(to)
        else:
            with closing(rows_of(result, output)) as rows:
                write_all(writer(output, result.columns, columns_of(result)), rows)
        return say(result.counters)


def _may_write(path: str, *, overwrite: bool) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused(f"{folder}: no such directory")
    if os.path.isdir(path):
        raise Refused(f"{path}: is a directory")
    if os.path.exists(path) and not overwrite:
        raise Refused(f"{path}: exists; give --overwrite to replace it")
