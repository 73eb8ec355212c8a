"""The writing side of the data source: turns a data frame of messages into a store, or appends them to one.

Tasks write their rows to Parquet next to the target; the driver creates the store from them in the order determined by
:mod:`rmqtool.analytics.load.rows`. A new store appears once it is complete. Rows for a store that exists, and batches
of a stream, are appended under the broker's own lock, once all of them are known to be messages.
"""

import glob
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from formats.message.properties import UNIQ_KEY
from rmqtool.analytics.remote.files import sync
from rmqtool.analytics.spark.option_values import BATCH, QUERY
from rmqtool.analytics.spark.worker import without_traceback
from rmqtool.errors import BadValue, Refused
from rmqtool.rules.ids import stable_id
from rmqtool.services.sending.fields import Fields, parse_map
from rmqtool.services.sending.importer import Importer, new_store
from rmqtool.store.disk.work_folder import refuse_existing
from rmqtool.store.layout.paths import checked_path

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.services.open_store.store import Store
    from rmqtool.services.sending.importer import Answer

PARTS = ".parts"
_ROWS = 4096


@dataclass
class TaskRows(WriterCommitMessage):
    """Result of one writing task."""

    path: str
    rows: int
    query: str = ""  # id of the stream


class _Rows:
    """The rows that tasks have written for a store.

    Args:
        options: ``path`` of the store; ``brokerConf``, the broker's properties file; ``map``,
            names of columns that are called differently, as in ``value=body,key=keys``.
        columns: names of the data frame's columns.

    Raises:
        BadValue: there is no path or mapping, or bodies would be ignored.
    """

    def __init__(self, options: "Mapping[str, str]", columns: "Sequence[str]") -> None:
        path, names = options.get("path"), options.get("map")
        if not path:
            raise BadValue(
                "give the store's path, .save(path) or .start(path) of a stream, or the option namesrv of a cluster "
                "(for INSERT INTO a table of a catalog, Spark passes neither: write a frame)"
            )
        self.path, self._broker_conf = checked_path(path.removeprefix("file://")), options.get("brokerConf")
        self._names = parse_map([names]) if names else {}
        Fields(self._names).table("the data frame", columns)

    def _write(self, folder: str, iterator: "Iterator[pa.RecordBatch]") -> TaskRows:
        import pyarrow.parquet as pq

        os.makedirs(folder, exist_ok=True)
        path, rows, writer = os.path.join(folder, f"{uuid.uuid4().hex}.parquet"), 0, None
        try:
            for batch in iterator:
                writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd", write_page_checksum=True)
                writer.write_batch(batch)
                rows += batch.num_rows
        finally:
            if writer is not None:
                writer.close()
        return TaskRows(path=path if writer is not None else "", rows=rows)

    def _read(self, paths: list[str]) -> "Iterator[dict[str, Any] | ValueError]":
        from rmqtool.analytics.load.rows import rows

        return rows(paths, fields=Fields(self._names), scratch=os.path.dirname(paths[0]) if paths else None)

    def _check_all(self, store: "Store", rows: "Iterable[dict[str, Any] | ValueError]") -> None:
        """Check that all rows are messages, before the first is appended.

        Raises:
            BadValue: one is not.
        """
        from rmqtool.contract import message_fields
        from rmqtool.store.append.answers import Illegal
        from rmqtool.store.append.outgoing import NewMessage

        rules = store.live.appender.rules
        for row in rows:
            try:
                if isinstance(row, ValueError):
                    raise row
                rules.ready(NewMessage(**message_fields(row, keep_times=False)))
            except (ValueError, Illegal) as err:
                _check(row, str(err))

    def _take(self, importer: Importer, rows: "Iterable[dict[str, Any] | ValueError]") -> None:
        read = iter(rows)
        while taken := list(islice(read, _ROWS)):
            for row, answer in zip(taken, importer.take(taken), strict=True):
                _check(row, answer)

    def _append_once(self, written: "Sequence[TaskRows]", stream: str, batch: int) -> None:
        """Append a batch, unless the store has it; one that was begun is continued with the rows of then.

        Raises:
            BadValue: a row was rejected; nothing of the batch is appended.
            Refused: a broker has the store open, its log is not the one that this batch was appended to, an earlier
                batch is not complete, or the rows of a batch that was begun are gone.
        """
        if not is_store(self.path):
            with new_store(self.path, self._broker_conf):
                pass
        from rmqtool.services.open_store.store import Store
        from rmqtool.services.sending.batches import StreamBatches

        with Store(self.path, write=True, broker_conf=self._broker_conf, mend=True) as store:
            batches = StreamBatches(store, stream)
            if batches.has(batch):
                return
            paths = batches.begun(batch)
            if paths is None:
                paths = [part.path for part in written]
                self._check_all(store, self._numbered(paths, stream, batch))
                for path in paths:
                    sync(path)
                sync(os.path.dirname(paths[0]))
                sync(os.path.dirname(self.path))
                batches.begin(batch, paths)
            importer = Importer(store, keep_times=False)
            rows = self._numbered(paths, stream, batch)
            self._take(importer, batches.missing(rows, importer))
            store.flush()
            batches.end(batch)

    def _numbered(self, paths: list[str], stream: str, batch: int) -> "Iterator[dict[str, Any] | ValueError]":
        """The rows of a batch, each with a unique id, by which it is known again in the log."""
        for number, row in enumerate(self._read(paths)):
            if isinstance(row, ValueError):
                yield row
                continue
            properties = dict(row.get("properties") or {})
            properties.setdefault(UNIQ_KEY, stable_id(f"{stream}:{batch}", number))
            yield {**row, "properties": properties}

    def _files_begun(self, stream: str) -> set[str]:
        """The directories with the rows of a batch that is not complete."""
        from rmqtool.services.sending.batches import files_begun

        return {os.path.dirname(path) for path in files_begun(self.path, stream)}


class StoreWriter(_Rows, DataSourceArrowWriter):
    """Writes one data frame to a store.

    With the options ``txnAppId`` and ``txnVersion``, as Delta Lake has them, the frame is there once, however often it
    is written and whatever is killed when: a version that the store has of this application is left out, and one that
    was begun is continued.

    Args:
        overwrite: whether Spark may overwrite existing data; a store is never overwritten.

    Raises:
        BadValue: there is no path or mapping, bodies would be ignored, or only one of these options is given.
        Refused: the path exists and is no store, or is to be overwritten.
    """

    def __init__(self, options: "Mapping[str, str]", columns: "Sequence[str]", *, overwrite: bool) -> None:
        super().__init__(options, columns)
        # Spark itself suggests overwrite if no mode is given; it does no harm if nothing exists
        if overwrite and os.path.lexists(self.path):
            raise Refused(
                f"{self.path}: exists already, and a store is not overwritten: give a new path, or mode append"
            )
        self._appends = is_store(self.path)
        if not self._appends:
            refuse_existing(self.path)
        self._application, self._version = _transaction(options)
        self._parts = f"{self.path}{PARTS}-{uuid.uuid4().hex}"

    @without_traceback()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskRows:
        """Write the rows of one task."""
        return self._write(self._parts, iterator)

    @without_traceback()
    def commit(self, messages: list[Any]) -> None:
        """Create the store, or append to it; called by the driver after all tasks.

        Raises:
            BadValue: a row was rejected; nothing is written.
            Refused: a broker has the store open.
        """
        # in the order of Spark's partitions, which is that of the data frame
        written = [part for part in messages if part is not None and part.path]
        if self._application:
            begun = self._files_begun(self._application)
            if written:
                self._append_once(written, self._application, self._version)
            self._remove({self._parts, *begun})
            return
        paths = [part.path for part in written]
        try:
            if self._appends:
                self._append(paths)
                return
            refuse_existing(self.path)
            with new_store(self.path, self._broker_conf) as importer:
                self._take(importer, self._read(paths))
        finally:
            shutil.rmtree(self._parts, ignore_errors=True)

    def _append(self, paths: list[str]) -> None:
        from rmqtool.services.open_store.store import Store

        with Store(self.path, write=True, broker_conf=self._broker_conf) as store:
            self._check_all(store, self._read(paths))
            self._take(Importer(store, keep_times=False), self._read(paths))

    def abort(self, messages: list[Any]) -> None:
        """Clean up; called by the driver if a task or the commit failed."""
        self._remove({self._parts})

    def _remove(self, folders: set[str]) -> None:
        """Remove directories with rows, but those of a batch that is not complete."""
        for folder in folders - self._files_begun(self._application):
            shutil.rmtree(folder, ignore_errors=True)


class StoreStreamWriter(_Rows, DataSourceStreamArrowWriter):
    """Appends the batches of a stream to a store, each once, whatever is killed when.

    The rows of a batch are complete in files before the first is appended, and the store knows of which batch it has
    how much (:mod:`rmqtool.services.sending.batches`). A batch that Spark repeats after a kill continues with these
    files, so that it does not matter in which order the rows come the second time.

    Raises:
        BadValue: there is no path or mapping, or bodies would be ignored.
        Refused: the path exists and is no store.
    """

    def __init__(self, options: "Mapping[str, str]", columns: "Sequence[str]") -> None:
        super().__init__(options, columns)
        if not is_store(self.path):
            refuse_existing(self.path)

    @without_traceback()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskRows:
        """Write the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        query, batch = (context.getLocalProperty(name) for name in (QUERY, BATCH))
        written = self._write(f"{self.path}{PARTS}-{query}-{batch}-{context.stageId()}", iterator)
        written.query = query or ""
        return written

    @without_traceback()
    def commit(self, messages: list[Any], batchId: int) -> None:
        """Append the batch; called by the driver after all tasks.

        Raises:
            BadValue: a row was rejected; nothing of the batch is appended.
            Refused: a broker has the store open, its log is not the one that this batch was appended to, or the rows
                of a batch that was begun are gone.
        """
        written = [part for part in messages if part is not None and part.path]
        if not written:
            return
        query = written[0].query
        self._append_once(written, query, batchId)
        self._remove_parts(query)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Clean up; called by the driver if a task or the commit failed."""
        for query in {part.query for part in messages if part is not None and part.query}:
            self._remove_parts(query)

    def _remove_parts(self, query: str) -> None:
        """Remove the files of this query, but those of a batch that is not complete."""
        kept = self._files_begun(query)
        for folder in glob.glob(f"{glob.escape(self.path)}{PARTS}-{query}-*"):
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _transaction(options: "Mapping[str, str]") -> tuple[str, int]:
    """The application and version of a write that is to be there once; empty and 0 without.

    Raises:
        BadValue: one of both is missing, or the version is no number.
    """
    application, version = options.get("txnAppId"), options.get("txnVersion")
    if application is None and version is None:
        return "", 0
    if not application or version is None or not re.fullmatch("[0-9]{1,18}", version):
        raise BadValue("options txnAppId and txnVersion: give both, the version as a number that grows")
    return application, int(version)


def is_store(path: str) -> bool:
    """Return whether there is a store."""
    return os.path.isdir(os.path.join(path, "commitlog"))


def _check(row: "dict[str, Any] | ValueError", answer: "Answer") -> None:
    reason = answer if isinstance(answer, str) else answer.reason
    if reason:
        if isinstance(row, ValueError):
            raise BadValue(reason)
        raise BadValue(f"topic {row.get('topic')!r} queue {row.get('queueId')}: {reason}")
