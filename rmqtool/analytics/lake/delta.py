"""Delta Lake, through delta-rs.

The state of a source is a small file in the table, named by a number. The table's transaction log has that number as
the version of an application transaction, which each commit sets together with the files that it adds. So the log says
which state is true, also after its old entries have been removed.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rmqtool.analytics.dump.partitions import PARTITIONS
from rmqtool.analytics.lake.output import DataFile, LakeTable, State, explain, home_of, missing_columns, state_of
from rmqtool.analytics.remote.files import Folder, local_path
from rmqtool.errors import MissingRuntime, Refused
from rmqtool.store.disk.remote import show_uri

_STATES = "_rmqtool"
_COLUMNS = {  # of partitions; topic is a column of messages
    "topic": pa.field("topic", pa.string()),
    "bucket": pa.field("topicBucket", pa.int32()),
    "day": pa.field("day", pa.date32()),
    "hour": pa.field("hour", pa.string()),
}
_STATISTICS = ("queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp")
_STORAGE = {"region": "AWS_REGION", "endpoint_override": "AWS_ENDPOINT_URL"}  # options of pyarrow's URIs


class DeltaLakeTable(LakeTable):
    """A table by path or URI.

    Raises:
        MissingRuntime: deltalake is not installed.
    """

    def __init__(self, location: str, source: str) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError:
            raise MissingRuntime("Delta Lake needs delta-rs: pip install 'rmqtool[delta]'") from None
        self.location, self.name, self.source = home_of(location), show_uri(location), source
        self._uri, self._options = _storage_of(self.location)
        self._table: Any = None
        self._folder = Folder(self.location)

    def load(self) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        path = local_path(self.location)
        if path is not None and os.path.lexists(path) and not os.path.isdir(path):
            raise Refused(f"{self.name}: is not a directory")
        try:
            if DeltaTable.is_deltatable(self._uri, storage_options=self._options):
                self._table = DeltaTable(self._uri, storage_options=self._options)
        except (DeltaError, OSError) as err:
            raise Refused(f"{self.name}: cannot be read as a Delta table: {explain(err)}") from err
        if self._table is not None:
            missing_columns(self._schema(), self.name, self.columns)
            return
        others = fs.FileSelector(self._folder.path, allow_not_found=True)
        names = (info.base_name for info in self._folder.fs.get_file_info(others))
        if any(not name.startswith("_rmqtool") for name in names):
            raise Refused(f"{self.name}: is no Delta table, and not empty")

    def _schema(self) -> pa.Schema:
        return pa.schema(self._table.schema())

    @property
    def partition_by(self) -> tuple[str, ...] | None:
        if self._table is None:
            return None
        by_column = {field.name: by for by, field in _COLUMNS.items()}
        columns = self._table.metadata().partition_columns
        if unknown := [column for column in columns if column not in by_column]:
            raise Refused(f"{self.name}: is partitioned by {', '.join(unknown)}, which rmqtool does not know")
        return tuple(by_column[column] for column in columns)

    def create(self, partition_by: Sequence[str]) -> None:
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError

        if self._table is None:
            return  # the first commit creates it
        there = self._schema()
        if missing := missing_columns(there, self.name, self.columns):
            names = {field.name for field in missing}
            wanted = pa.schema([*(field for field in there if field.name not in names), *missing])
            try:  # columns inside of others cannot be added by themselves; rows of a wider schema add them
                write_deltalake(self._table, wanted.empty_table(), mode="append", schema_mode="merge")
            except (DeltaError, OSError) as err:
                raise Refused(f"{self.name}: columns cannot be added: {explain(err)}") from err

    def _app_id(self, source: str) -> str:
        return f"rmqtool/{source}"

    def states(self) -> dict[str, State]:
        if self._table is None:
            return {}
        states = {}
        for name in self._folder.files(_STATES):
            number = name.rpartition("-")[2].removesuffix(".json")
            value = self._folder.read_json(name)
            if not isinstance(value, dict) or not number.isdecimal():
                continue  # of a run that was killed while writing it
            source = str(value.get("source"))
            if self._table.transaction_version(self._app_id(source)) == int(number):
                states[source] = state_of(json.dumps(value), f"{self.name}: {name}")
        version = self._table.transaction_version(self._app_id(self.source))
        if version is not None and self.source not in states:
            raise Refused(
                f"{self.name}: has messages of {self.source}, but {_STATES}/{self.source_key}-{version}.json, which "
                "says how far, is missing. To go on: dump to another table"
            )
        return states

    def commit(self, files: Sequence[DataFile], state: State, properties: Mapping[str, str]) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import create_table_with_add_actions

        name = f"{_STATES}/{self.source_key}-{state['id']}.json"
        self._folder.make(_STATES)
        self._folder.write(name, json.dumps(state), lasting=True)
        by = self.partition_by
        columns = tuple(by) if by is not None else tuple(_by_directory(files))
        actions = [self._add(file, columns) for file in files]
        commit = CommitProperties(
            custom_metadata=dict(properties), app_transactions=[Transaction(self._app_id(self.source), state["id"])]
        )
        try:
            if self._table is None:
                fields = [*(field.with_nullable(True) for field in self.columns)]
                fields += [_COLUMNS[by] for by in columns if by != "topic"]
                create_table_with_add_actions(
                    self._uri,
                    Schema.from_arrow(pa.schema(fields)),
                    actions,
                    mode="error",
                    partition_by=[_COLUMNS[by].name for by in columns],
                    description="Messages of Apache RocketMQ, written by rmqtool",
                    storage_options=self._options,
                    commit_properties=commit,
                )
            else:
                self._table.create_write_transaction(
                    actions,
                    "append",
                    self._table.schema(),
                    partition_by=self._table.metadata().partition_columns,
                    commit_properties=commit,
                )
        except CommitFailedError as err:
            raise Refused(f"{self.name}: changed while messages were added; run again: {explain(err)}") from err
        except (DeltaError, OSError) as err:
            raise Refused(f"{self.name}: the commit failed; run again: {explain(err)}") from err
        for old in self._folder.files(_STATES):
            if old.startswith(f"{_STATES}/{self.source_key}-") and old != name:
                self._folder.delete(old)

    def _add(self, file: DataFile, columns: Sequence[str]) -> Any:
        from deltalake.transaction import AddAction

        with self._folder.fs.open_input_file(self._folder.full(file.path)) as opened:
            metadata = pq.read_metadata(opened)
        values = {}
        for by in columns:
            column = _COLUMNS[by].name
            # a directory's name may be shortened
            values[column] = _only(metadata, "topic") if by == "topic" else file.partition[PARTITIONS[by]]
        now = int(datetime.now(UTC).timestamp() * 1000)
        return AddAction(file.path, file.bytes, values, now, True, json.dumps(_statistics(metadata)))


def _by_directory(files: Sequence[DataFile]) -> list[str]:
    names = {directory: by for by, directory in PARTITIONS.items()}
    return [names[directory] for directory in files[0].partition]


def _storage_of(location: str) -> tuple[str, dict[str, str] | None]:
    """Return (URI, options) for delta-rs, from a path or a URI with pyarrow's options."""
    if "://" not in location:
        return location, None
    from urllib.parse import parse_qsl, unquote

    uri, _mark, query = location.partition("?")
    given = dict(parse_qsl(query))
    options = {_STORAGE[name]: value for name, value in given.items() if name in _STORAGE}
    scheme, _slashes, rest = uri.partition("://")
    keys, at, bucket = rest.partition("@")
    if scheme == "s3" and at and "/" not in keys:
        uri = f"{scheme}://{bucket}"
        options["AWS_ACCESS_KEY_ID"], _colon, options["AWS_SECRET_ACCESS_KEY"] = map(unquote, keys.partition(":"))
    if given.get("scheme") == "http":
        options["AWS_ALLOW_HTTP"] = "true"
        if "AWS_ENDPOINT_URL" in options and "://" not in options["AWS_ENDPOINT_URL"]:
            options["AWS_ENDPOINT_URL"] = f"http://{options['AWS_ENDPOINT_URL']}"
    return uri, options or None


def _bounds(metadata: Any, column: str) -> tuple[Any, Any] | None:
    """Return the least and greatest value of a column in a file; None if unknown."""
    at = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == column)
    each = [metadata.row_group(n).column(at).statistics for n in range(metadata.num_row_groups)]
    if not each or any(group is None or not group.has_min_max for group in each):
        return None
    return min(group.min for group in each), max(group.max for group in each)


def _only(metadata: Any, column: str) -> str | None:
    bounds = _bounds(metadata, column)
    if bounds is None:
        return None
    if bounds[0] != bounds[1]:
        raise Refused(f"a file of one {column} has {bounds[0]!r} and {bounds[1]!r}")
    return str(bounds[0])


def _statistics(metadata: Any) -> dict[str, Any]:
    least, greatest = {}, {}
    for column in _STATISTICS:
        if (bounds := _bounds(metadata, column)) is not None:
            least[column], greatest[column] = map(_plain, bounds)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # times of messages have milliseconds
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value
