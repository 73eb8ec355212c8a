"""List, verify and restore backups."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rmqtool.contract import PlainRow
from rmqtool.errors import CorruptFile, Refused, RmqError, UnreadableStore
from rmqtool.progress import stage
from rmqtool.store.backup.home import BackupHome
from rmqtool.store.backup.local import LocalHome
from rmqtool.store.backup.manifest import MANIFEST, Backup
from rmqtool.store.backup.sources import ELSEWHERE
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.ownership import make_folders_as
from rmqtool.store.disk.work_folder import WorkFolder, prepare_target
from rmqtool.store.layout.backup_signs import STORE
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import recover
from rmqtool.store.repair.rebuild import rebuild

Warn = Callable[[str], None]
_LOG_PATHS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRow(PlainRow):
    """One backup of a directory.

    ``state``: complete, interrupted (the next run continues it), or damaged (its manifest cannot be read).
    ``copiedBytes`` are those that it does not share with an earlier one.
    """

    name: str
    state: str
    createdTimestamp: int | None = None
    live: bool | None = None
    files: int | None = None
    bytes: int | None = None  # without zeros at the end of files
    copiedBytes: int | None = None
    logFrom: int | None = None
    logTo: int | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(PlainRow):
    """What is wrong with a file of a backup."""

    name: str  # of the backup
    file: str
    fault: str


def home_of(home: str | BackupHome) -> BackupHome:
    """The directory of backups at a path."""
    return LocalHome(home) if isinstance(home, str) else home


def list_backups(home: str | BackupHome, warn: Warn) -> list[BackupRow]:
    """The backups of a directory, oldest first.

    Raises:
        UnreadableStore: it is not a directory of backups.
    """
    home = home_of(home)
    complete, interrupted = home.names()
    rows = [BackupRow(name=name, state="interrupted") for name in interrupted]
    for name in complete:
        try:
            backup = home.read(name)
        except RmqError as err:
            warn(str(err))
            rows.append(BackupRow(name=name, state="damaged"))
            continue
        rows.append(row_of(backup))
    return sorted(rows, key=lambda row: row.name)


def row_of(backup: Backup) -> BackupRow:
    """The row of a complete backup."""
    return BackupRow(
        name=backup.name,
        state="complete",
        createdTimestamp=backup.createdTimestamp,
        live=backup.live,
        files=len(backup.files),
        bytes=sum(file.written for file in backup.files),
        copiedBytes=sum(file.written for file in backup.files if not file.linked),
        logFrom=backup.logFrom,
        logTo=backup.logTo,
        store=backup.store,
    )


def chosen_names(home: str | BackupHome, names: Sequence[str]) -> list[str]:
    """The complete backups with these names; all if none is named.

    Raises:
        UnreadableStore: one of them does not exist, or there are none.
    """
    home = home_of(home)
    complete, _interrupted = home.names()
    for name in names:
        if name not in complete:
            raise UnreadableStore(f"{home.place}: no complete backup {name} in it")
    if not complete:
        raise UnreadableStore(f"{home.place}: no complete backup in it")
    return list(names) or complete


def verify(home: str | BackupHome, names: Sequence[str] = ()) -> Iterator[Fault]:
    """Read backups and compare every file with the manifest.

    Args:
        names: which; all if empty.

    Raises:
        UnreadableStore: see :func:`chosen_names`.
    """
    home = home_of(home)
    for name in chosen_names(home, names):
        try:
            backup = home.read(name)
        except RmqError as err:
            yield Fault(name=name, file=MANIFEST, fault=str(err).removeprefix(f"{home.path_of(name)}/"))
            continue
        with stage(f"verifying {name}", sum(file.written for file in backup.files)) as reading:
            for file in backup.files:
                fault = home.difference(name, file, reading)
                if fault is not None:
                    yield Fault(name=name, file=file.path, fault=fault)
        known = {file.path for file in backup.files} | {"lock"}  # of a command that has changed it under its lock
        for path in home.files_in(name):
            if path not in known:
                yield Fault(name=name, file=path, fault="not in the manifest")


def restore(home: str | BackupHome, new: str, *, name: str | None = None, conf: BrokerConf | None = None) -> Backup:
    """Make a store from a backup. It appears complete, or not at all.

    For a backup of a live store, files are completed as its broker would at startup: queues and index up to the end of
    the log, and the timer.

    Args:
        new: directory that does not exist yet.
        name: which backup; the newest by default.
        conf: settings of the broker.

    Raises:
        Refused: the directory exists, or another run is using it.
        CorruptFile: a file of the backup is damaged.
        UnreadableStore: there is no such backup.
    """
    home = home_of(home)
    name = chosen_names(home, [name] if name else [])[-1]
    backup = home.read(name)
    new = os.path.abspath(new)
    prepare_target(new)
    part = f"{new}.restoring"
    try:
        with WorkFolder(part, (STORE, f"{STORE}.rmqtool")):
            top = os.path.join(part, STORE)
            _copy_all(home, top, backup)
            if backup.live:
                _complete(layout_of(top, conf))
            for above, _folders, _names in os.walk(top):
                sync(above)
            if os.path.isdir(new):
                os.rmdir(new)  # empty
            os.rename(top, new)
            sync(os.path.dirname(new))
    except OSError as err:
        where = err.filename or part
        raise UnreadableStore(f"{where}: {os.strerror(err.errno or 0)}: nothing was restored") from err
    return backup


def _copy_all(home: BackupHome, target: str, backup: Backup) -> None:
    above = os.path.dirname(os.path.dirname(target))
    model = home.path_of(backup.name, ".") if isinstance(home, LocalHome) else above
    make_folders_as(target, model)
    with stage("restoring", sum(file.written for file in backup.files)) as copying:
        for file in backup.files:
            path, copy = home.path_of(backup.name, file.path), os.path.join(target, *file.path.split("/"))
            make_folders_as(os.path.dirname(copy), model)
            copied = home.fetch(backup.name, file, copy, copying)
            if copied is None:
                raise CorruptFile(path, None, "missing: nothing was restored")
            if copied != (file.written, file.sha256) or os.path.getsize(copy) != file.bytes:
                raise CorruptFile(path, None, "differs from the manifest: nothing was restored")
            sync(copy)


def _complete(layout: StoreLayout) -> None:
    """Bring queues, index and timer up to the log."""
    report = recover(layout)
    if report.refusals:
        raise Refused(f"{layout.root}: {report.refusals[0]}")
    if os.path.isfile(layout.path("config", "timercheck")):
        rebuild(StoreLayout(layout.root, layout.conf), ("timer",))


def layout_of(root: str, conf: BrokerConf | None) -> StoreLayout:
    """The store of a backup, or one restored from it.

    Args:
        conf: settings of the broker. Its log is below the root here, and every other path that leads out of the root is
            one of the original store, which nothing may touch.
    """
    conf = (conf or BrokerConf()).without(_LOG_PATHS)
    layout = StoreLayout(root, conf)
    inside = os.path.join(layout.root, "")
    outside = [name for name in ELSEWHERE if not all(path.startswith(inside) for path in layout.configured_paths(name))]
    return layout.with_conf(conf.without(outside))
