"""The command ``sql``: SQL over stores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, SchemaOption, option
from rmqtool.errors import BadValue, Refused

if TYPE_CHECKING:
    from rmqtool.admin.target import Target
    from rmqtool.analytics.source.plan import ReadRequest
    from rmqtool.analytics.sql.duck import DuckAnswer
    from rmqtool.analytics.sql.query import QueryResult


class SqlRunner(StrEnum):
    """What answers."""

    auto = "auto"
    spark = "spark"
    duckdb = "duckdb"


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
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query in SQL, as the runner has it.")],
    to: Annotated[str | None, option("--to", "FILE", "Write the rows to this Parquet file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    runner: Annotated[
        SqlRunner, option("--runner", "NAME", "spark; duckdb; auto: duckdb for up to 96 MiB, if both answer alike.")
    ] = SqlRunner.auto,
    body_schema: SchemaOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Query a store in SQL, through Spark or DuckDB.

    Tables: messages, queues, offsets, topics, index, compacted, findings. Columns are the fields of the other commands'
    machine output; broker distinguishes stores. Exit code 1: parts of the store are damaged.

    Spark reads only what a query needs, but its Java takes some seconds to start. DuckDB starts at once.

    By default DuckDB answers for stores of up to 96 MiB of log, if it is known to answer as Spark does: one table,
    columns, constants, comparisons, LIKE, count, sum, min, max and avg. All else differs, such as double quotes, other
    functions and casts, and joins; so do the types of columns in a file of --to: that is for Spark, or whatever
    --runner names.

    A live cluster has the table messages, with the topics in conditions like topic = 'Orders', else all ordinary
    topics. They are pulled without a consumer group.

    With --body-schema, messages have the columns decoded, with the fields of the body, and decodeError: SELECT
    decoded.id FROM messages. Spark answers then, unless --runner names DuckDB.

    DuckDB reads the tables of a query as a whole. It reads stores, not live clusters, and has an SQL of its own.
    """
    from contextlib import closing

    from rmqtool.cli.framework.opening import live_target
    from rmqtool.cli.render.output import write_all, writer
    from rmqtool.cli.tables.asked import columns_of, rows_of, say

    target = live_target(store)
    if target is not None and runner is SqlRunner.duckdb:
        raise BadValue("--runner duckdb: reads stores; a live cluster takes --runner spark")
    if to is not None:
        _may_write(to, overwrite=overwrite)
    if runner is SqlRunner.auto and (to is not None or body_schema is not None):
        runner = SqlRunner.spark
    with _answers(store, target, query, runner, body_schema, broker_conf) as result:
        if to is not None:
            result.write_parquet(to)
        else:
            with closing(rows_of(result, output)) as rows:
                write_all(writer(output, result.columns, columns_of(result)), rows)
        return say(result.counters)


@contextmanager
def _answers(
    store: str,
    target: "Target | None",
    query: str,
    runner: SqlRunner,
    body_schema: str | None,
    broker_conf: str | None,
) -> "Iterator[QueryResult | DuckAnswer]":
    """The answer of a runner; only what that runner needs is loaded."""
    from rmqtool.analytics.bodies.schema import body_schema_of
    from rmqtool.analytics.source.sample import sample_store
    from rmqtool.analytics.source.tables import TABLES
    from rmqtool.cli.tables.asked import request

    tables = [table for table in TABLES if table in query.lower()]
    asked = request(store, broker_conf, tables=tables) if target is None else None
    renamed: dict[str, str] = {}
    if runner is SqlRunner.auto and asked is not None and _may_be_duckdb(asked, query):
        from rmqtool.analytics.sql.alike import RENAMED

        runner, renamed = SqlRunner.duckdb, RENAMED
    if runner is SqlRunner.duckdb and asked is not None:
        from rmqtool.analytics.sql import duck

        asked = replace(asked, bodies=body_schema_of(body_schema, partial(sample_store, asked)))
        with duck.answer(asked, query, renamed) as answered:
            yield answered
        return
    from rmqtool.analytics.live.options import LiveRequest
    from rmqtool.analytics.live.sample import sample_cluster
    from rmqtool.analytics.source.plan import ReadRequest
    from rmqtool.analytics.sql.query import answer
    from rmqtool.cli.tables.spark import spark_process

    source: ReadRequest | LiveRequest
    if asked is not None:
        source = replace(asked, bodies=body_schema_of(body_schema, partial(sample_store, asked)))
    else:
        live = LiveRequest(cast("Target", target), pattern=".*", by_option=False)
        source = replace(live, bodies=body_schema_of(body_schema, partial(sample_cluster, live)))
    with spark_process(), answer(source, query) as result:
        yield result


def _may_be_duckdb(asked: "ReadRequest", query: str) -> bool:
    from rmqtool.analytics.sql.native import is_small

    if any(store.uri is not None for store in asked.stores) or not is_small(asked):
        return False
    from rmqtool.analytics.sql.alike import is_answered_alike

    return is_answered_alike(query)


def _may_write(path: str, *, overwrite: bool) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused(f"{folder}: no such directory")
    if os.path.isdir(path):
        raise Refused(f"{path}: is a directory")
    if os.path.exists(path) and not overwrite:
        raise Refused(f"{path}: exists; give --overwrite to replace it")
