"""SQL over stores, using local Spark: the data that a query needs is decoded to Parquet, which Spark then reads.

No Python runs inside Spark: for a query on one machine, starting workers and passing every row through them would cost
more than everything else.
"""

import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.analytics.bodies.columns import add_fields
from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.live.plan import check_cluster, plan_ranges
from rmqtool.analytics.live.read import read_range
from rmqtool.analytics.local.scratch import scratch_dir
from rmqtool.analytics.remote.secrets import remove_secrets
from rmqtool.analytics.source.filter import Wanted
from rmqtool.analytics.source.plan import Piece, ReadRequest
from rmqtool.analytics.source.read import Counters, plan_pieces
from rmqtool.analytics.source.tables import SCHEMAS
from rmqtool.analytics.spark.awaiting import wait_for
from rmqtool.analytics.spark.failure import explain_lost, failure
from rmqtool.analytics.spark.jvm import environment
from rmqtool.analytics.spark.session import spark_context
from rmqtool.analytics.spark.settings import NOT_CONNECT
from rmqtool.analytics.spark.watching import report_tasks
from rmqtool.analytics.sql.decoded import number_names, readable, write_piece
from rmqtool.analytics.sql.plan import Need, needs
from rmqtool.analytics.table.schema import MESSAGE_TABLE
from rmqtool.errors import BadValue, RmqError
from rmqtool.progress import stage
from rmqtool.store.log.commit_log import CommitLog

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_ALONE = 96 << 20  # bytes of log that this process decodes faster than workers start
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_LARGE = 1 << 30  # bytes of log above which the JVM's speed matters more than its start time
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # the plan is inspected before it runs
    "spark.sql.sources.useV1SourceList": "parquet",
    "spark.sql.session.timeZone": "UTC",
}
_ERROR = re.compile(r"(\[[A-Z][A-Z_0-9.]+\] .*?)(?: SQLSTATE: .*)?$", re.MULTILINE)
_PLACE = re.compile(r"line (\d+),? pos (\d+)")
_BRIEF = {"spark.sql.codegen.wholeStage": "false"}


@dataclass(frozen=True)
class QueryResult:
    """The result of a query; valid until the session ends.

    Attributes:
        frame: the query over the decoded data.
        counters: cost and outcome of decoding.
    """

    frame: "DataFrame"
    counters: Counters

    @property
    def columns(self) -> list[str]:
        """Column names; duplicate names are numbered."""
        return number_names(self.frame.columns)

    @property
    def are_numbers(self) -> list[bool]:
        """Whether each column has numbers."""
        return [kind.startswith(_NUMBERS) for _name, kind in self.frame.dtypes]

    def rows(self) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows.

        Raises:
            BadValue: the query fails on a value.
        """
        with translate_errors():
            rows = self.frame.toLocalIterator()
            try:
                with report_tasks(self.frame.sparkSession.sparkContext, "asking Spark"):
                    first = next(rows, None)
                if first is not None:
                    yield first
                yield from rows
            finally:
                del rows  # so that an early stop happens while Spark is still running

    def write_parquet(self, path: str) -> None:
        """Write the rows to one Parquet file, which appears once it is complete.

        Raises:
            Refused: the file cannot be written.
            BadValue: the query fails on a value.
        """
        with scratch_dir("rows", os.path.dirname(os.path.abspath(path)), hidden=True) as above:
            folder = os.path.join(above, "rows")  # Spark replaces the directory, which would remove our lock
            context, writer = self.frame.sparkSession.sparkContext, self.frame.coalesce(1).write.mode("overwrite")
            with translate_errors(), report_tasks(context, "asking Spark"):
                wait_for(context, partial(writer.parquet, folder))
            (part,) = (name for name in os.listdir(folder) if name.startswith("part-"))
            os.umask(umask := os.umask(0o077))
            os.chmod(os.path.join(folder, part), 0o666 & ~umask)  # Hadoop uses its own umask
            os.replace(os.path.join(folder, part), path)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate Spark's errors about a query to ours, in one line.

    Raises:
        BadValue: Spark cannot parse or compute the query.
        RmqError: a process of Spark ended prematurely.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # PySpark's own logger, which writes the stack to stderr; its methods take arguments that other loggers do not
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        yield
    except (PySparkException, Py4JError, EOFError, ConnectionError) as err:
        if (reason := explain_lost(err)) is not None:
            raise RmqError(reason) from err
        raise BadValue(remove_secrets(_line(str(err)) or failure(err))) from err
    finally:
        log.disabled = before


def _line(text: str) -> str | None:
    """Return the error in a message of Spark with its position in the query; None if there is none.

    The rest of such a message is an excerpt of the query and a stack trace.
    """
    error = _ERROR.search(text)
    if error is None:
        return None
    place = _PLACE.search(text)
    error_text = error[1].rstrip(". ")
    return error_text if place is None else f"{error_text} (line {place[1]}, pos {place[2]})"


@contextmanager
def answer(request: ReadRequest | LiveRequest, query: str) -> Iterator[QueryResult]:
    """Run a query over the tables of stores, or the messages of a live cluster.

    The rows are available for the duration of a ``with`` block.

    Args:
        request: the stores, and conditions on the messages; its table is ignored.

    Raises:
        BadValue: Spark does not understand the query.
        MissingRuntime: Spark cannot be started.
        RmqError: a file of a store cannot be read, or a broker does not answer.
    """
    size = 0
    if isinstance(request, LiveRequest):
        check_cluster(request)  # Java takes some seconds to start
    else:
        size = sum(CommitLog(store.layout()).segments.bytes for store in request.stores)
    Thread(target=_load, daemon=True).start()  # while the JVM starts
    with ExitStack() as opened:
        with stage("starting Spark"):
            opened.enter_context(spark_context(brief=size < _LARGE))
        opened.enter_context(environment(NOT_CONNECT))
        from pyspark.sql import SparkSession

        before = SparkSession.getActiveSession()
        session = SparkSession.builder.getOrCreate().newSession()  # views and settings of our own
        for name, value in (_SETTINGS if size >= _LARGE else _SETTINGS | _BRIEF).items():
            session.conf.set(name, value)
        try:
            with scratch_dir("sql") as folder:
                yield ask(session, folder, request, query)
        finally:
            if before is None:
                SparkSession._instantiatedSession = None  # its JVM ends with the context


def _load() -> None:
    """Import modules that the query will need."""
    import pyspark.sql
    import pyspark.sql.pandas.types  # noqa: F401


def ask(spark: "SparkSession", folder: str, request: ReadRequest | LiveRequest, query: str) -> QueryResult:
    """As :func:`answer`, in an existing session; ``folder`` must exist as long as the answer is used."""
    schemas = {table: readable(schema) for table, schema in SCHEMAS.items() if table in query.lower()}
    if "messages" in schemas:
        schemas["messages"] = readable(add_fields(MESSAGE_TABLE, request.bodies))
    folders = {table: os.path.join(folder, table) for table in schemas}
    for table, path in folders.items():
        os.mkdir(path)
        pq.write_table(schemas[table].empty_table(), os.path.join(path, "empty.parquet"))
    with translate_errors(), stage("asking Spark"):
        _only_queries(spark, query)
        _register(spark, folders, schemas)
        needed = needs(spark.sql(query)._jdf.queryExecution().executedPlan(), folders)
    counters = Counters()
    for table, need in needed.items():
        if isinstance(request, LiveRequest):
            if table != "messages":
                raise BadValue(f"table {table} is one of a store; a live cluster has the table messages")
            _pull(request, need, folders[table])
            continue
        counters.merge(_decode(spark.sparkContext, replace(request, table=table), need, folders[table]))
    with translate_errors():
        _register(spark, folders, schemas)
        return QueryResult(spark.sql(query), counters)


def _register(spark: "SparkSession", folders: Mapping[str, str], schemas: Mapping[str, pa.Schema]) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    for table, path in folders.items():
        spark.read.schema(from_arrow_schema(schemas[table])).parquet(path).createOrReplaceTempView(table)


_WRITING = (
    "Insert",
    "Create",
    "Drop",
    "Alter",
    "Replace",
    "Merge",
    "Update",
    "Delete",
    "Truncate",
    "Load",
    "Set",
    "Add",
)


def _only_queries(spark: "SparkSession", query: str) -> None:
    """Reject statements that would be executed while they are planned.

    Raises:
        BadValue: the query is such a statement.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(query)
    pending = [plan]
    while pending:
        node = pending.pop()
        name = node.getClass().getSimpleName()
        if name.startswith(_WRITING):
            raise BadValue("only queries can be run: the tables cannot be written")
        children = node.children().iterator()
        while children.hasNext():
            pending.append(children.next())


def _decode(context: "SparkContext", request: ReadRequest, need: Need, folder: str) -> Counters:
    """Write the needed part of a table to Parquet files."""
    columns = (request.schema.names if need.columns is None else need.columns) or request.schema.names[1:2]
    wanted = request.wanted.narrow(need.conditions)
    planned, counters = plan_pieces(request.with_split_size(columns), wanted)
    schema = pa.schema([request.schema.field(name) for name in columns])
    write = partial(write_piece, folder, schema, request.bodies)
    numbered = list(enumerate(planned))
    if sum(map(_size, planned)) < _ALONE:
        done: list[Counters | str] = []
        with stage("reading the store", len(numbered), "parts") as reading:
            for item in numbered:
                done.append(write(item))
                reading.done += 1
    else:
        with translate_errors(), report_tasks(context, "reading the store"):
            done = wait_for(context, context.parallelize(numbered, len(numbered)).map(write).collect)
    for result in done:
        if isinstance(result, str):
            raise RmqError(result)
        counters.merge(result)
    return counters


def _pull(request: LiveRequest, need: Need, folder: str) -> None:
    """Write the needed messages of a live cluster to Parquet files: of the topics that the query names, or of all."""
    table = add_fields(MESSAGE_TABLE, request.bodies)
    columns = (table.names if need.columns is None else need.columns) or table.names[1:2]
    choice = Wanted().narrow(need.conditions).choice
    if choice.topics:
        request = replace(request, topics=choice.topics, pattern=None)
    schema = readable(pa.schema([table.field(name) for name in columns]))
    ranges = [part for part in plan_ranges(request) if not choice.queues or part.queue.queue_id in choice.queues]
    with stage("reading the cluster", sum(map(len, ranges)), "messages") as reading:
        for number, part in enumerate(ranges):
            path = os.path.join(folder, f"part-{number:05d}.parquet")
            try:
                with pq.ParquetWriter(path, schema, compression="lz4", write_page_checksum=True) as writer:
                    for batch in read_range(request, part, columns):
                        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                        reading.done += batch.num_rows
            except OSError as err:
                raise RmqError(f"{folder}: {os.strerror(err.errno or 0)}") from err


def _size(piece: Piece) -> int:
    return sum(
        split.stop - split.start for split, ranges in zip(piece.splits, piece.ranges, strict=True) if ranges is None
    )
