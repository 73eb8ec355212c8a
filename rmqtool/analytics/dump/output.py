"""The output directory: nothing appears in it until it is complete, and previous content survives a failure.

A run writes to a separate directory, its staging directory, which readers ignore. Completed splits are recorded there,
so that a killed run can be resumed. A run inspects the existing content only after it has acquired the lock.
"""

import errno
import json
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from rmqtool.analytics.bodies.schema import INFERRED, TableSchema, body_schema_of
from rmqtool.analytics.dump.bodies import sample_bodies
from rmqtool.analytics.dump.commit import PublishJournal
from rmqtool.analytics.dump.lock import Busy, Claim, LocalLock
from rmqtool.analytics.dump.names import (
    CLAIM,
    DONE,
    JOURNAL,
    MANIFEST,
    RUN,
    STAGING,
    SUCCESS,
    belongs_below,
    is_leftover,
    is_output,
)
from rmqtool.analytics.dump.parquet import PartFile
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.remote.files import Folder, local_path, prune, sync, text
from rmqtool.analytics.remote.secrets import remove_secrets
from rmqtool.errors import Refused, RmqError
from rmqtool.store.disk.remote import show_uri
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.version import __version__

__all__ = ["DONE", "MANIFEST", "SUCCESS", "DumpOutput", "MoveOutput", "SwapOutput", "is_output", "manifest_of"]


class DumpOutput(ABC):
    """Base class of both kinds of output.

    Attributes:
        location: path or URI of OUT.
        name: OUT as shown in messages.
        place: the path of OUT, or its URI as shown in messages.
        staging: the directory that tasks write to.
        bodies: the schema of bodies of this run, from :meth:`settle_bodies`; None if they are not decoded.
        writes_empty_file: whether an output without messages needs a file, from which readers learn the schema.
        adds_columns: whether later runs may add columns, which rows of earlier runs do not have.
    """

    writes_empty_file = True
    adds_columns = False
    bodies: TableSchema | None = None

    def __init__(self, location: str, staging: Folder, *, overwrite: bool, grow: bool) -> None:
        self.location, self.name, self.staging = location, show_uri(location), staging
        self.place = local_path(location) or self.name
        self._overwrite, self._grow = overwrite, grow
        self._lock: LocalLock | Claim | None = None
        self._begun = False

    def manifest(self) -> dict[str, Any] | None:
        """What the last run has written about itself; None if there was none."""
        return manifest_of(self.location)

    def hold(self) -> None:
        """Acquire the output for this run, and finish a publication that was interrupted.

        Raises:
            Refused: another run holds it, it cannot be written, or its content has changed and is not acceptable.
        """
        if self._lock is not None:
            return
        try:
            self._lock_it()
        except Busy:
            self.discard()
            raise self._busy() from None
        except OSError as err:
            self.discard()
            raise Refused(f"{self.name}: cannot be written: {describe_error(err)}") from err
        except BaseException:
            self.discard()
            raise

    def settle_bodies(self, options: DumpOptions, source: StoreLayout | LiveRequest) -> DumpOptions:
        """Settle what bodies hold: as in the files that the output has, or as the options ask.

        Returns:
            The options with the schema itself instead of its file.

        Raises:
            BadValue: there is no schema in the file, or none can be taken from a sample.
            UnreadableStore: the file cannot be read.
            MissingRuntime: the library for it is not installed.
        """
        before = self.manifest() if options.since_last else None
        kept = ((before or {}).get("options") or {}).get("body_schema")
        if options.body_schema == INFERRED and isinstance(kept, str):
            # a schema from a sample remains that of the first run
            self.bodies = TableSchema.from_text(kept)
        else:
            self.bodies = body_schema_of(options.body_schema, partial(sample_bodies, options, source))
        return replace(options, body_schema=None if self.bodies is None else self.bodies.to_text())

    @abstractmethod
    def _lock_it(self) -> None:
        """Acquire the lock, check again, and finish an interrupted publication."""

    def _busy(self) -> Refused:
        return Refused(f"{self.name}: another dump is being written there")

    @abstractmethod
    def check(self) -> None:
        """Check the existing content without changing it.

        Raises:
            Refused: the output must not be written.
        """

    def begin(self, run: dict[str, Any]) -> bool:
        """Create or reuse the staging directory; return whether it was left by an identical run.

        Raises:
            Refused: another process is writing there, or it cannot be created.
        """
        self.hold()
        self._begun = True
        try:
            self.staging.make()
            if self.staging.read_json(RUN) == run:
                return True
            self._empty()
            self.staging.write(RUN, json.dumps(run), lasting=True)
        except OSError as err:
            raise Refused(f"{self.name}: cannot be written: {describe_error(err)}") from err
        return False

    def _make(self) -> None:
        above, path = [], local_path(self.staging.location)
        while path is not None and not os.path.exists(path := os.path.dirname(path)):
            above.append(os.path.dirname(path))
        self.staging.make()
        for path in above:
            sync(path)

    def _empty(self) -> None:
        for name in self.staging.files():
            self.staging.delete(name)
        self.staging.sync_names()  # leftovers of another run must not reappear as part of this one

    def publish(self, manifest: dict[str, Any]) -> None:
        """Publish the files that the manifest names, and the manifest.

        Raises:
            Refused: publication is not possible.
        """
        try:
            self._keep_only(file["path"] for file in manifest["files"])
            self._publish(manifest)
        except Busy:
            raise self._busy() from None
        except OSError as err:
            raise Refused(f"{self.name}: cannot be written: {describe_error(err)}") from err
        self.leave()

    @abstractmethod
    def _publish(self, manifest: dict[str, Any]) -> None: ...

    def _keep_only(self, paths: Iterable[str]) -> None:
        """Remove files that no completed task has reported: leftovers of tasks that failed and were repeated."""
        keep = set(paths)
        for name in self.staging.files():
            if name not in keep and name != RUN and not name.startswith(f"{DONE}/"):
                self.staging.delete(name)

    def leave(self) -> None:
        """Release the lock; the staging directory is kept."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def discard(self) -> None:
        """Remove unpublished files; does nothing after a publication or without the lock."""
        if self._lock is None:
            return
        if self._begun:
            self._remove_staging()
        elif (path := local_path(self.staging.location)) is not None:
            with suppress(OSError):  # fails if another run has left files, which are kept
                os.rmdir(path)
        self.leave()

    def _remove_staging(self) -> None:
        for _attempt in range(20):
            with suppress(OSError):
                self.staging.fs.delete_dir(self.staging.path)
                break
            if not self.staging.files():
                break
            time.sleep(0.05)  # a worker may take a moment to notice that its JVM has ended, and keep writing


class SwapOutput(DumpOutput):
    """A directory next to OUT that replaces OUT by a rename."""

    def __init__(self, path: str, *, overwrite: bool) -> None:
        parent, name = os.path.split(path)
        self._path, self._old = path, os.path.join(parent, f".{name}.rmqtool-old")
        staging = Folder(os.path.join(parent, f".{name}.rmqtool-new"))
        super().__init__(path, staging, overwrite=overwrite, grow=False)

    def check(self) -> None:
        """As :meth:`DumpOutput.check`."""
        _check_directory(self.name, self._path, overwrite=self._overwrite, grow=False)
        for path in (self.staging.path, self._old):
            if not is_leftover(path) and not (path == self._old and is_output(path)):
                raise Refused(f"{path}: has files that are not from a dump, so it was left alone")

    def _lock_it(self) -> None:
        self._make()
        self._lock = LocalLock(self.staging.path)
        if os.path.lexists(self._old):  # an earlier run was killed between the two renames or during removal
            self.check()
            if os.path.lexists(self._path):
                self._drop_old()
            elif is_output(self._old):
                os.rename(self._old, self._path)
        if os.path.isdir(self._path):
            self.leave()
            self._lock = LocalLock(self.staging.path, self._path)
        self.check()

    def _publish(self, manifest: dict[str, Any]) -> None:
        """If it fails, OUT is unchanged."""
        self.staging.sync_names()
        self.staging.write(MANIFEST, text(manifest), lasting=True)
        self.staging.delete_dir(DONE)
        self.staging.delete(RUN)
        prune(self.staging.path)
        self.staging.write(SUCCESS, "", lasting=True)
        self._swap()

    def _swap(self) -> None:
        try:
            os.rename(self.staging.path, self._path)  # this also replaces an empty directory
            sync(os.path.dirname(self._path))
            return
        except OSError as err:
            if err.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        assert isinstance(self._lock, LocalLock)
        if not self._overwrite or not self._lock.is_on(self._path) or not is_output(self._path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))  # it was created in the meantime
        os.rename(self._path, self._old)
        try:
            os.rename(self.staging.path, self._path)
        except OSError:
            os.rename(self._old, self._path)
            raise
        self._drop_old()  # it was checked before it was moved

    def _drop_old(self) -> None:
        sync(os.path.dirname(self._path))  # otherwise a power failure could bring back a half-deleted output
        shutil.rmtree(self._old, ignore_errors=True)


class MoveOutput(DumpOutput):
    """A directory inside OUT whose files are moved up: for an OUT that grows, is remote, or cannot be renamed.

    The journal is written once all files are complete. From then on the new files belong to the output: the next run
    that opens it finishes the moves. ``_SUCCESS`` is absent while they are in progress.
    """

    def __init__(self, location: str, *, overwrite: bool, grow: bool) -> None:
        self._folder, self._made = Folder(location), False
        super().__init__(location, self._folder.below(STAGING), overwrite=overwrite, grow=grow)

    def check(self) -> None:
        """As :meth:`DumpOutput.check`."""
        path = local_path(self.location)
        if path is not None:
            _check_directory(self.name, path, overwrite=self._overwrite, grow=self._grow)
            if not is_leftover(self.staging.path):
                raise Refused(f"{self.staging.path}: has files that are not from a dump, so it was left alone")
            return
        try:
            names = self._others()
        except OSError as err:
            raise Refused(f"{self.name}: cannot be read: {describe_error(err)}") from err
        fit = all(map(belongs_below, names))
        _check(self.name, bool(names), fit, JOURNAL in names, overwrite=self._overwrite, grow=self._grow)

    def _lock_it(self) -> None:
        path = local_path(self.location)
        if path is None:
            self._lock = Claim(self._folder)
        else:
            self._made = not os.path.exists(path)
            self._make()
            self._lock = LocalLock(path)
        self.check()
        journal = PublishJournal.read(self._folder)
        if journal is not None:
            journal.finish(self._folder)
        if path is not None:
            self._make()  # other tools do not replace a directory that is not empty
        self._still_held()

    def _still_held(self) -> None:
        if self._lock is None or not self._lock.is_on(self._folder.path):
            raise Busy
        self._lock.check()

    def discard(self) -> None:
        """As :meth:`DumpOutput.discard`; also removes OUT if it was created for this run."""
        super().discard()
        if self._made:
            with suppress(OSError):  # not empty
                os.rmdir(self._folder.path)

    def _publish(self, manifest: dict[str, Any]) -> None:
        """If it fails, running the same command again finishes it."""
        names = {file["path"] for file in manifest["files"]}
        files = {name: self.staging.size(name) or 0 for name in self.staging.files() if name in names}
        remove = {}
        if not self._grow:
            old = [name for name in self._folder.files() if not name.startswith("_") and name not in names]
            remove = {name: self._folder.size(name) or 0 for name in old}
        self.staging.sync_names()
        self._still_held()
        journal = PublishJournal(self.staging.read_json(RUN), files, remove, manifest)
        journal.write(self._folder)
        journal.finish(self._folder)

    def _others(self) -> list[str]:
        """Return all files except claims and those in the staging directory."""
        return [name for name in self._folder.files() if not name.startswith((f"{STAGING}/", CLAIM))]


def open_output(location: str, keep_out: Iterable[str], *, overwrite: bool = False, grow: bool = False) -> DumpOutput:
    """Return the output of a dump after checking it. Nothing in it changes before :meth:`DumpOutput.hold`.

    Args:
        location: a path or a URI.
        keep_out: input directories; OUT must be neither inside nor above them.
        overwrite: allow replacing an older output.
        grow: add files to an older output.

    Raises:
        BadValue: a URI of an unknown file system.
        Refused: OUT has content that must not be replaced, is not a directory, or is inside an input directory.
    """
    path = local_path(location)
    output: DumpOutput
    if path is None:
        output = MoveOutput(location, overwrite=overwrite, grow=grow)
    else:
        path = os.path.realpath(path)
        _check_apart(location, path, keep_out)
        beside = os.R_OK | os.W_OK | os.X_OK
        inside = os.path.isdir(path) and (os.path.ismount(path) or not os.access(os.path.dirname(path), beside))
        inside = inside or grow
        output = MoveOutput(path, overwrite=overwrite, grow=grow) if inside else SwapOutput(path, overwrite=overwrite)
        output.name = location
    output.check()
    return output


@contextmanager
def holding(output: DumpOutput) -> Iterator[ExitStack]:
    """Hold an output, so that no other run changes it, and remove what a failure leaves unless another run can use it.

    Yields:
        A stack for cleanup that need not be waited for.

    Raises:
        Refused: as :meth:`DumpOutput.hold`.
    """
    with ExitStack() as beside:
        beside.callback(output.leave)
        try:
            output.hold()
            yield beside
        except RmqError:
            output.discard()
            raise
        except BaseException:
            if not output.staging.files(DONE):
                output.discard()
            raise


def _check_directory(name: str, path: str, *, overwrite: bool, grow: bool) -> None:
    try:
        names = set(os.listdir(path)) - {STAGING}
        home = path == os.path.realpath(os.path.expanduser("~"))
        fit = not home and (not names or is_output(path))
    except FileNotFoundError:
        return
    except OSError as err:
        raise Refused(f"{name}: {describe_error(err)}") from err
    _check(name, bool(names), fit, JOURNAL in names, overwrite=overwrite, grow=grow)


def _check_apart(location: str, path: str, keep_out: Iterable[str]) -> None:
    for directory in map(os.path.realpath, keep_out):
        common = os.path.commonpath([directory, path])
        if common == directory:
            raise Refused(f"{location}: the output must not lie in the store ({directory})")
        if common == path and os.path.exists(directory):
            raise Refused(f"{location}: the store ({directory}) lies in it")


def _check(name: str, there: bool, fit: bool, interrupted: bool, *, overwrite: bool, grow: bool) -> None:
    if there and not overwrite and not grow:
        more = "; a dump was interrupted there, and --overwrite makes it whole or new" if interrupted else ""
        raise Refused(f"{name}: exists and is not empty; give --overwrite to replace an older output{more}")
    if there and not fit:
        raise Refused(f"{name}: has files that are not Parquet output, so it was left alone")


def manifest_of(location: str) -> dict[str, Any] | None:
    """Return the manifest of an output; None without one."""
    manifest = Folder(local_path(location) or location).read_json(MANIFEST)
    return manifest if isinstance(manifest, dict) else None


def describe_run(
    report: DumpReport, options: DumpOptions, schema: pa.Schema, before: dict[str, Any] | None, files: list[PartFile]
) -> dict[str, Any]:
    """Return the part of the manifest that outputs of a store and of a cluster have in common.

    Args:
        before: manifest of the output that grows; None without one.
        files: what this run has written.
    """
    return {
        "rmqtool": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": asdict(options),
        "schema": {field.name: str(field.type) for field in schema},
        "report": report.to_dict(),
        "files": [*(before["files"] if before else []), *map(PartFile.to_dict, files)],
    }


def describe_error(err: OSError) -> str:
    """Return the message of a file system error in one line."""
    return os.strerror(err.errno) if err.errno else remove_secrets(str(err)).splitlines()[0]
