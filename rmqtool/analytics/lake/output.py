"""A table of a lakehouse as the output of a dump.

Tasks write Parquet files to a staging directory inside the table. To publish them, they get their final names, under
which no reader sees them yet, and one commit of the table adds them all, together with the state: the position up to
which their source is now in the table. The table itself therefore knows what it has, and a run that is killed at any
time has added either everything or nothing.
"""

import hashlib
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rmqtool.analytics.bodies.columns import add_fields
from rmqtool.analytics.dump.lock import Claim, LocalLock
from rmqtool.analytics.dump.names import is_plain
from rmqtool.analytics.dump.output import DumpOutput
from rmqtool.analytics.remote.files import Folder, local_path
from rmqtool.analytics.remote.secrets import remove_secrets
from rmqtool.analytics.table.schema import MESSAGE_TABLE
from rmqtool.analytics.table.types import is_same, is_wider
from rmqtool.errors import Refused, RmqError

DEFAULT_PARTITIONS = ("day", "topic")
_JOURNAL = "_rmqtool-moved.json"  # in the staging directory
_UNSAFE = re.compile(r"[^A-Za-z0-9_.=-]")
_DECORATION = re.compile("\x1b\\[[0-9;]*m|↳")  # of errors of delta-rs
_KEPT = ("rmqtool", "store", "cluster", "options", "files", "position", "offsets")  # of a manifest, for the next run

State = dict[str, Any]
"""What a table knows of a source: ``id``, a number that each commit changes, and ``manifest``, from which the next run
continues."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a commit adds.

    Attributes:
        path: relative to the table's directory.
        partition: value of each partition as its directory has it; None for unknown.
    """

    path: str
    rows: int
    bytes: int
    partition: Mapping[str, str | None]


class LakeTable(ABC):
    """A table of one format, for one source.

    Attributes:
        name: the table as shown in messages.
        location: path or URI of its directory.
        source: name of the store or cluster whose messages are added.
        columns: that it has, or gets.
    """

    name: str
    location: str
    source: str
    columns: pa.Schema = MESSAGE_TABLE

    @property
    def source_key(self) -> str:
        """A short name of the source, for files and properties."""
        return hashlib.sha256(self.source.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @abstractmethod
    def load(self) -> None:
        """Read the table as it is now. Nothing is created.

        Raises:
            Refused: it cannot be read, or is none to which messages can be added.
        """

    @abstractmethod
    def create(self, partition_by: Sequence[str]) -> None:
        """Make sure that the table can be written to, with its missing columns.

        Args:
            partition_by: for a table that does not exist yet.

        Raises:
            Refused: it cannot be created, or a column has another type.
        """

    @property
    @abstractmethod
    def partition_by(self) -> tuple[str, ...] | None:
        """Names of the table's partitions as a dump has them; None if there is no table yet."""

    @abstractmethod
    def states(self) -> dict[str, State]:
        """What the table knows of each source, by name of the source.

        Raises:
            Refused: the state cannot be read.
        """

    @abstractmethod
    def commit(self, files: Sequence[DataFile], state: State, properties: Mapping[str, str]) -> None:
        """Add files and state in one commit.

        Args:
            properties: describe the commit to people.

        Raises:
            Refused: another run has added messages of this source in the meantime.
            RmqError: the commit failed.
        """


class TableOutput(DumpOutput):
    """A table to which a dump adds messages of one source.

    Args:
        partition_by: how a new table is partitioned; None for the default.
        release: of the brokers that wrote the store; None if unknown.
    """

    writes_empty_file = False
    adds_columns = True

    def __init__(self, table: LakeTable, partition_by: Sequence[str] | None, release: str | None = None) -> None:
        self.table, self._wanted = table, tuple(partition_by) if partition_by is not None else None
        self._release = release
        self._folder, self._published = Folder(table.location), False
        staging = self._folder.below(f"_rmqtool-{table.source_key}")
        super().__init__(table.location, staging, overwrite=False, grow=True)
        self.name = self.place = table.name

    @property
    def partition_by(self) -> tuple[str, ...]:
        """How the files of this run are partitioned."""
        return self.table.partition_by or self._wanted or DEFAULT_PARTITIONS

    def check(self) -> None:
        """As :meth:`DumpOutput.check`."""
        self.table.load()
        there = self.table.partition_by
        if there is not None and self._wanted is not None and there != self._wanted:
            raise Refused(
                f"{self.name}: is partitioned by {','.join(there) or 'nothing'}, "
                f"not by {','.join(self._wanted) or 'nothing'}"
            )

    def manifest(self) -> dict[str, Any] | None:
        """What the table knows of the source."""
        state = self.table.states().get(self.table.source)
        return None if state is None else state["manifest"]

    def _lock_it(self) -> None:
        self._make()
        path = local_path(self.staging.location)
        # a claim is a file, and the staging directory is emptied
        self._lock = Claim(self._folder.below(f"{self._below()}-claim")) if path is None else LocalLock(path)
        self.check()
        self._take_back()

    def _take_back(self) -> None:
        """Undo the moves of a run that was killed before its commit."""
        journal = self.staging.read_json(_JOURNAL)
        if not isinstance(journal, dict):
            return
        state = self.table.states().get(self.table.source)
        if state is None or state["id"] != journal.get("id"):
            for name, final in journal["files"].items():
                if not is_plain(name) or _final_name(name) != final:
                    raise Refused(f"{self.staging.location}: {_JOURNAL} is not of a dump; remove it")
                if self.staging.size(name) is None and self._folder.size(final) is not None:
                    self.staging.make(name.rpartition("/")[0])
                    self._folder.move(final, f"{self._below()}/{name}")
        self.staging.delete(_JOURNAL)

    def _below(self) -> str:
        return f"_rmqtool-{self.table.source_key}"

    def _publish(self, manifest: dict[str, Any]) -> None:
        """Without new files there is no commit, and the position stays."""
        report = {file["path"]: file for file in manifest["files"]}
        names = [name for name in self.staging.files() if name in report]
        if names:
            self.table.columns = add_fields(MESSAGE_TABLE, self.bodies)
            self.table.create(self.partition_by)
            state: State = {
                "id": time.time_ns(),
                "source": self.table.source,
                "manifest": {**{key: manifest[key] for key in _KEPT if key in manifest}, "files": []},
            }
            final = {name: _final_name(name) for name in names}
            self.staging.sync_names()
            self._published = True
            self.staging.write(_JOURNAL, json.dumps({"id": state["id"], "files": final}), lasting=True)
            levels = {path.rpartition("/")[0] for path in final.values()}
            for level in levels:
                self._folder.make(level)
            for name, path in final.items():
                self._folder.move(f"{self._below()}/{name}", path)
            self._folder.sync(*levels, "")
            assert self._lock is not None
            self._lock.check()
            files = [
                DataFile(path, report[name]["rows"], report[name]["bytes"], partition_of(name))
                for name, path in final.items()
            ]
            self.table.commit(files, state, self._describe(manifest))
        self._remove_staging()

    def _describe(self, manifest: dict[str, Any]) -> dict[str, str]:
        """Properties of a commit, for people and other tools."""
        properties = {
            "rmqtool.version": manifest["rmqtool"],
            "rmqtool.source": self.table.source,
            "rmqtool.rows": str(manifest["report"]["rows"]),
        }
        if self._release is not None:
            properties["rmqtool.release"] = self._release
        before = self.manifest() or {}
        if (position := manifest.get("position")) is not None:
            begin = (before.get("position") or {}).get("next", 0)
            properties["rmqtool.range"] = f"physical offsets {begin} to {position['next']}"
        elif (offsets := manifest.get("offsets")) is not None:
            properties["rmqtool.range"] = json.dumps(_ends(before.get("offsets") or {}, offsets))
        return properties

    def discard(self) -> None:
        """As :meth:`DumpOutput.discard`; once files are moved, only the next run can know whether they were added."""
        if self._published:
            self.leave()
        else:
            super().discard()


def _final_name(name: str) -> str:
    """The name of a staged file in the table: unique, and without characters that formats escape differently."""
    return "/".join(_UNSAFE.sub("_", level) for level in name.split("/"))


def partition_of(name: str) -> dict[str, str | None]:
    """The partitions in the path of a file, by name as the path has it."""
    values: dict[str, str | None] = {}
    for level in name.split("/")[:-1]:
        key, _equals, value = level.partition("=")
        values[key] = None if value == "unknown" else value
    return values


def _ends(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the queue offsets [first, end) that a commit adds, by queue."""
    ranges = {}
    for topic, brokers in after.items():
        for broker, queues in brokers.items():
            for queue_id, position in queues.items():
                begin = before.get(topic, {}).get(broker, {}).get(queue_id, {}).get("offset", 0)
                if begin != position["offset"]:
                    ranges[f"{topic}/{broker}/{queue_id}"] = [begin, position["offset"]]
    return ranges


def state_of(text: str, where: str) -> State:
    """Parse a state.

    Raises:
        Refused: it is none.
    """
    with suppress(ValueError):
        state = json.loads(text)
        if isinstance(state, dict) and isinstance(state.get("id"), int) and isinstance(state.get("manifest"), dict):
            return state
    raise Refused(f"{where}: is not a position that rmqtool has written")


def missing_columns(there: pa.Schema, name: str, wanted: pa.Schema) -> list[pa.Field]:
    """Return the columns that a table does not have yet, or not with all of their fields.

    Raises:
        Refused: a column has another type.
    """
    missing = []
    for field in wanted:
        at = there.get_field_index(field.name)
        if at < 0 or is_wider(there.field(at).type, field.type):
            missing.append(field.with_nullable(True))
        elif not is_same(there.field(at).type, field.type):
            raise Refused(f"{name}: its column {field.name} is {there.field(at).type}, not {field.type}")
    return missing


def explain(err: Exception) -> RmqError:
    """Return an error of a library in one line: what failed, and the innermost reason."""
    lines = [_DECORATION.sub("", line).strip() for line in str(err).splitlines()]
    lines = list(dict.fromkeys(filter(None, lines))) or [type(err).__name__]
    return RmqError(remove_secrets(": ".join([lines[0], *lines[1:][-1:]])))


def home_of(location: str) -> str:
    """Return the absolute path of a local location; a URI as it is."""
    return location if "://" in location else os.path.realpath(location)
