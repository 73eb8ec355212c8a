"""SQL over stores, using DuckDB: an answer within a second where the JVM alone takes several.

The tables that a query names are decoded to Parquet, which DuckDB reads; so a table may be larger than memory. It has
no access to other files, and runs queries only.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from rmqtool.analytics.local.scratch import scratch_dir
from rmqtool.analytics.source.plan import ReadRequest
from rmqtool.analytics.source.read import Counters, plan_pieces
from rmqtool.analytics.source.tables import SCHEMAS
from rmqtool.analytics.sql.decoded import number_names, readable, write_piece
from rmqtool.errors import BadValue, MissingRuntime, Refused, RmqError
from rmqtool.progress import stage

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
_BATCH = 1 << 14  # rows
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET default_null_order = 'nulls_first_on_asc_last_on_desc'",  # as Spark sorts
    "SET autoinstall_known_extensions = false",
)
_LOCK = ("SET enable_external_access = false", "SET lock_configuration = true")


class _Worker:
    """Does the work of a session in another thread, one piece after another.

    DuckDB checks for signals only at some moments. The main thread, which only waits, receives them and ends the work.
    """

    def __init__(self, session: "DuckDBPyConnection") -> None:
        self._session, self._thread = session, ThreadPoolExecutor(1, "rmqtool-duckdb")

    def do(self, work: Callable[[], T]) -> T:
        """Return the result of the work; an exception raised while waiting for it interrupts it."""
        future = self._thread.submit(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                self._session.interrupt()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()


@dataclass(frozen=True)
class DuckAnswer:
    """The result of a query; valid until its session ends. Its rows can be read once.

    Attributes:
        reader: the rows.
        counters: cost and outcome of decoding.
        worker: reads them.
        renamed: other names for columns.
    """

    reader: pa.RecordBatchReader
    counters: Counters
    worker: _Worker
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Column names; duplicate names are numbered."""
        return number_names([self.renamed.get(name, name) for name in self.reader.schema.names])

    @property
    def are_numbers(self) -> list[bool]:
        """Whether each column has numbers."""
        types = pa.types
        return [types.is_integer(t) or types.is_floating(t) or types.is_decimal(t) for t in self.reader.schema.types]

    def rows(self) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows.

        Raises:
            BadValue: the query fails on a value.
        """
        with translate_errors():
            for batch in self._batches():
                yield from zip(*(column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns), strict=True)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self.worker.do(lambda: next(self.reader, None))) is not None:
            yield batch

    def write_parquet(self, path: str) -> None:
        """Write the rows to one Parquet file, which appears once it is complete.

        Raises:
            Refused: the file cannot be written.
            BadValue: the query fails on a value.
        """
        import pyarrow.parquet as pq

        schema = pa.schema(
            [field.with_name(name) for field, name in zip(self.reader.schema, self.columns, strict=True)]
        )
        with scratch_dir("rows", os.path.dirname(os.path.abspath(path)), hidden=True) as above:
            part = os.path.join(above, "rows.parquet")
            try:
                with translate_errors(), pq.ParquetWriter(part, schema, compression="zstd") as writer:
                    for batch in self._batches():
                        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                os.replace(part, path)
            except OSError as err:
                raise Refused(f"{path}: {os.strerror(err.errno or 0)}") from err


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate DuckDB's errors about a query to ours, in one line.

    Raises:
        BadValue: DuckDB cannot parse or compute the query.
    """
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException) as err:
        raise BadValue(f"DuckDB: {str(err).splitlines()[0]}") from err


@contextmanager
def answer(request: ReadRequest, query: str, renamed: Mapping[str, str] | None = None) -> Iterator[DuckAnswer]:
    """Run a query over the tables of stores.

    The rows are available for the duration of a ``with`` block.

    Args:
        request: the stores, and conditions on the messages; its table is ignored.
        renamed: other names for columns.

    Raises:
        BadValue: DuckDB does not understand the query, or it is no query.
        MissingRuntime: DuckDB is not installed.
        RmqError: a file of a store cannot be read.
    """
    try:
        import duckdb
    except ImportError as err:
        raise MissingRuntime(f"DuckDB is not installed: pip install duckdb ({err})") from err
    with scratch_dir("sql") as folder, duckdb.connect(":memory:") as session, _Worker(session) as worker:
        for setting in (*_SETTINGS, f"SET temp_directory = {_text(os.path.join(folder, 'spilled'))}"):
            session.execute(setting)
        session.execute(f"SET allowed_directories = [{_text(folder)}]")
        for setting in _LOCK:
            session.execute(setting)
        _only_queries(session, query)
        counters = Counters()
        for table in SCHEMAS:
            if table in query.lower():
                counters.merge(_decode(replace(request, table=table), os.path.join(folder, table)))
                files = _text(os.path.join(folder, table, "*.parquet"))
                session.execute(f"CREATE VIEW {table} AS FROM read_parquet({files})")
        with translate_errors():
            reader = worker.do(lambda: session.sql(query).to_arrow_reader(_BATCH))
            yield DuckAnswer(reader, counters, worker, renamed or {})


def _text(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def _only_queries(session: "DuckDBPyConnection", query: str) -> None:
    """Reject everything else before a table is read.

    Raises:
        BadValue: the query does not parse, or is another statement, or several.
    """
    import duckdb

    with translate_errors():
        statements = session.extract_statements(query)
    if len(statements) != 1 or statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise BadValue("only queries can be run, one at a time: the tables cannot be written")


def _decode(request: ReadRequest, folder: str) -> Counters:
    """Write a table to Parquet files, at least one."""
    import pyarrow.parquet as pq

    os.mkdir(folder)
    schema = request.schema
    pq.write_table(readable(schema).empty_table(), os.path.join(folder, "empty.parquet"))
    planned, counters = plan_pieces(request.with_split_size(schema.names), request.wanted)
    with stage("reading the store", len(planned), "parts") as reading:
        for item in enumerate(planned):
            result = write_piece(folder, schema, request.bodies, item)
            if isinstance(result, str):
                raise RmqError(result)
            counters.merge(result)
            reading.done += 1
    return counters
