"""Apache Iceberg, through PyIceberg.

The state of a source is a property of the table, which one commit sets together with the snapshot that has the files.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rmqtool.analytics.lake.output import (
    DEFAULT_PARTITIONS,
    DataFile,
    LakeTable,
    State,
    explain,
    missing_columns,
    state_of,
)
from rmqtool.analytics.remote.files import Folder, local_path
from rmqtool.errors import BadValue, MissingRuntime, Refused

_STATE = "rmqtool.state."
_ATTEMPTS = 10
_RETRIES = "commit.retry.num-retries"
_FIELDS = {"topic": ("topic", "identity"), "day": ("storeTimestamp", "day"), "hour": ("storeTimestamp", "hour")}


class IcebergTable(LakeTable):
    """A table of a catalog that PyIceberg knows (``~/.pyiceberg.yaml`` or ``PYICEBERG_CATALOG__...``).

    Args:
        name: ``CATALOG.NAMESPACE.TABLE``.

    Raises:
        BadValue: the name has another form.
        MissingRuntime: pyiceberg is not installed.
        Refused: there is no such catalog, or it does not answer.
    """

    _table: Any

    def __init__(self, name: str, source: str, partition_by: Sequence[str]) -> None:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise MissingRuntime("Iceberg needs PyIceberg: pip install 'rmqtool[iceberg]'") from None
        catalog, _dot, identifier = name.partition(".")
        if not catalog or identifier.count(".") < 1 or not all(identifier.split(".")):
            raise BadValue(f"{name!r} is not CATALOG.NAMESPACE.TABLE")
        if "bucket" in partition_by:
            raise BadValue("Iceberg has no partition bucket as rmqtool divides topics: give topic, day or hour")
        self.name, self.source, self._identifier = name, source, identifier
        try:
            self._catalog = load_catalog(catalog)
            self.load()
            if self._table is None:
                self._make(partition_by)
            self.location = _place(str(self._table.location()))
        except (Refused, BadValue):
            raise
        except Exception as err:  # each kind of catalog has errors of its own
            raise Refused(f"{name}: {explain(err)}") from err

    def load(self) -> None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            self._table = self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._table = None
            return
        missing_columns(self._schema(), self.name, self.columns)

    def _make(self, partition_by: Sequence[str]) -> None:
        """Create the empty table: its catalog decides where it is."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        namespace = self._identifier.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        schema = pa.schema([field.with_nullable(True) for field in self.columns])
        try:
            with (
                self._catalog.create_table_transaction(self._identifier, schema) as making,
                making.update_spec() as spec,
            ):
                for by in partition_by or DEFAULT_PARTITIONS:
                    spec.add_field(*_FIELDS[by], by)
        except TableAlreadyExistsError:
            pass
        self._table = self._catalog.load_table(self._identifier)

    def _schema(self) -> pa.Schema:
        return self._table.schema().as_arrow()

    @property
    def partition_by(self) -> tuple[str, ...] | None:
        if self._table is None:
            return None
        by_field = {field: by for by, field in _FIELDS.items()}
        fields = [
            (self._table.schema().find_column_name(field.source_id), str(field.transform))
            for field in self._table.spec().fields
        ]
        if unknown := [field for field in fields if field not in by_field]:
            shown = ", ".join(f"{transform}({column})" for column, transform in unknown)
            raise Refused(f"{self.name}: is partitioned by {shown}, which rmqtool does not know")
        return tuple(by_field[field] for field in fields)

    def create(self, partition_by: Sequence[str]) -> None:
        if missing := missing_columns(self._schema(), self.name, self.columns):
            try:
                with self._table.update_schema() as update:
                    update.union_by_name(pa.schema(missing))
            except Exception as err:
                raise Refused(f"{self.name}: columns cannot be added: {explain(err)}") from err

    def states(self) -> dict[str, State]:
        states = {}
        for key, value in self._table.properties.items() if self._table is not None else ():
            if key.startswith(_STATE):
                state = state_of(value, f"{self.name}: property {key}")
                states[str(state.get("source"))] = state
        return states

    def commit(self, files: Sequence[DataFile], state: State, properties: Mapping[str, str]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        before = self.states().get(self.source)
        folder = self._table.location().rstrip("/")
        paths = [f"{folder}/{file.path}" for file in files]
        logger = logging.getLogger("pyiceberg")
        if logger.level == logging.NOTSET:  # it warns of each column without statistics, and some have none on purpose
            logger.setLevel(logging.ERROR)
        for attempt in range(_ATTEMPTS):
            # only here, not in the table: PyIceberg would repeat the commit, whatever another run has added since
            self._table.metadata.properties[_RETRIES] = "0"
            try:
                with self._table.transaction() as adding:
                    adding.set_properties({f"{_STATE}{self.source_key}": json.dumps(state)})
                    adding.add_files(paths, snapshot_properties=dict(properties))
                return
            except CommitFailedException as err:
                self.load()  # another writer was first: its messages are those of another source
                if self._table is None or self.states().get(self.source) != before:
                    raise Refused(f"{self.name}: messages of {self.source} were added meanwhile; run again") from err
                if attempt == _ATTEMPTS - 1:
                    raise Refused(f"{self.name}: other writers keep changing it; run again: {explain(err)}") from err
            except Exception as err:
                raise Refused(f"{self.name}: the commit failed; run again: {explain(err)}") from err


def _place(location: str) -> str:
    path = local_path(location)
    return location if path is None else str(Folder(location).path)
