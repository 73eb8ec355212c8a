"""The writing side of the data source: turns a data frame of messages into a store, or appends them to one.

Tasks write their rows to Parquet next to the target; the driver creates the store from them in the order determined by
:mod:`rmqtool.analytics.load.rows`. A new store appears once it is complete. Rows for a store that exists are appended
under the broker's own lock, once all of them are known to be messages.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqtool.analytics.spark.worker import without_traceback
from rmqtool.errors import BadValue, Refused
from rmqtool.services.sending.fields import Fields, parse_map
from rmqtool.services.sending.importer import Importer, new_store
from rmqtool.store.disk.work_folder import refuse_existing
from rmqtool.store.layout.paths import checked_path

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.services.sending.importer import Answer

_PARTS = ".parts"
_ROWS = 4096


@dataclass
class TaskRows(WriterCommitMessage):
    """Result of one writing task."""

    path: str
    rows: int


class StoreWriter(DataSourceArrowWriter):
    """Writes one data frame to a store.

    Args:
        options: ``path`` of the store; ``brokerConf``, the broker's properties file; ``map``,
            names of columns that are called differently, as in ``value=body,key=keys``.
        columns: names of the data frame's columns.
        overwrite: whether Spark may overwrite existing data; a store is never overwritten.

    Raises:
        BadValue: there is no path or mapping, or bodies would be ignored.
        Refused: the path exists and is no store, or is to be overwritten.
    """

    def __init__(self, options: "Mapping[str, str]", columns: "Sequence[str]", *, overwrite: bool) -> None:
        path, names = options.get("path"), options.get("map")
        if not path:
            raise BadValue("give the new store's path: .save(path)")
        self.path, self._broker_conf = checked_path(path.removeprefix("file://")), options.get("brokerConf")
        self._names = parse_map([names]) if names else {}
        Fields(self._names).table("the data frame", columns)
        # Spark itself suggests overwrite if no mode is given; it does no harm if nothing exists
        if overwrite and os.path.lexists(self.path):
            raise Refused(
                f"{self.path}: exists already, and a store is not overwritten: give a new path, or mode append"
            )
        self._appends = os.path.isdir(os.path.join(self.path, "commitlog"))
        if not self._appends:
            refuse_existing(self.path)
        self._parts = f"{self.path}{_PARTS}-{uuid.uuid4().hex}"

    @without_traceback()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskRows:
        """Write the rows of one task."""
        import pyarrow.parquet as pq

        os.makedirs(self._parts, exist_ok=True)
        path, rows, writer = os.path.join(self._parts, f"{uuid.uuid4().hex}.parquet"), 0, None
        try:
            for batch in iterator:
                writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd", write_page_checksum=True)
                writer.write_batch(batch)
                rows += batch.num_rows
        finally:
            if writer is not None:
                writer.close()
        return TaskRows(path=path if writer is not None else "", rows=rows)

    @without_traceback()
    def commit(self, messages: list[Any]) -> None:
        """Create the store, or append to it; called by the driver after all tasks.

        Raises:
            BadValue: a row was rejected; nothing is written.
            Refused: a broker has the store open.
        """
        # in the order of Spark's partitions, which is that of the data frame
        paths = [part.path for part in messages if part is not None and part.path]
        try:
            if self._appends:
                self._append(paths)
                return
            refuse_existing(self.path)
            with new_store(self.path, self._broker_conf) as importer:
                self._take(importer, paths)
        finally:
            shutil.rmtree(self._parts, ignore_errors=True)

    def _append(self, paths: list[str]) -> None:
        from rmqtool.contract import message_fields
        from rmqtool.services.open_store.store import Store
        from rmqtool.store.append.answers import Illegal
        from rmqtool.store.append.outgoing import NewMessage

        with Store(self.path, write=True, broker_conf=self._broker_conf) as store:
            rules = store.live.appender.rules
            for row in self._rows(paths):  # all of them, before the first is appended
                try:
                    if isinstance(row, ValueError):
                        raise row
                    rules.ready(NewMessage(**message_fields(row, keep_times=False)))
                except (ValueError, Illegal) as err:
                    _check(row, str(err))
            self._take(Importer(store, keep_times=False), paths)

    def _rows(self, paths: list[str]) -> "Iterator[dict[str, Any] | ValueError]":
        from rmqtool.analytics.load.rows import rows

        return rows(paths, fields=Fields(self._names), scratch=self._parts)

    def _take(self, importer: Importer, paths: list[str]) -> None:
        read = self._rows(paths)
        while taken := list(islice(read, _ROWS)):
            for row, answer in zip(taken, importer.take(taken), strict=True):
                _check(row, answer)

    def abort(self, messages: list[Any]) -> None:
        """Clean up; called by the driver if a task failed."""
        shutil.rmtree(self._parts, ignore_errors=True)


def _check(row: "dict[str, Any] | ValueError", answer: "Answer") -> None:
    reason = answer if isinstance(answer, str) else answer.reason
    if reason:
        if isinstance(row, ValueError):
            raise BadValue(reason)
        raise BadValue(f"topic {row.get('topic')!r} queue {row.get('queueId')}: {reason}")
