"""The recorded runs of a store: their folders, their owners, and which of them was interrupted.

A half-changed store is marked by a file in its root (:data:`rmqtool.store.changes.places.MARKER`), so that this shows
by whatever path it is opened, and wherever the run's folder is.
"""

import json
import os
import re
from dataclasses import dataclass
from typing import Any

from rmqtool.errors import CorruptFile, Refused, RmqError, UnreadableStore
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes.manifest import Head
from rmqtool.store.changes.places import MARKER, Places
from rmqtool.store.disk.directories import list_dir, read_small
from rmqtool.store.disk.durable import remove_durably, write_durably
from rmqtool.store.disk.files import remove_tree

SUFFIX = ".rmqtool"
IDENTITY = "run.json"
_NAME = re.compile(r"\d{8}T\d{6}Z-[a-z-]+(-\d+)?")
_MOST_MARKER = 1 << 16


@dataclass(slots=True)
class Run:
    """The folder of one run.

    Attributes:
        head: head of its manifest; None if that cannot be read.
        problem: why it cannot be read.
    """

    path: str
    head: Head | None
    problem: RmqError | None = None

    @property
    def state(self) -> str:
        """The state in the manifest."""
        return self.head.state if self.head is not None else ""


@dataclass(slots=True)
class Marker:
    """The store's reference to its interrupted run."""

    run: str
    folder: str


def identity(places: Places) -> dict[str, Any]:
    """Path, device and inode of a store, by which it is recognized."""
    status = os.stat(places.real)
    return {"path": places.real, "device": status.st_dev, "inode": status.st_ino}


def default_home(places: Places) -> str:
    """The default directory of runs: next to the store itself, not next to a link to it."""
    return places.real.rstrip("/") + SUFFIX


def _homes(places: Places, home: str | None) -> list[str]:
    beside = [
        default_home(places),
        places.root.rstrip("/") + SUFFIX,
    ]  # earlier versions used the path as given
    homes: dict[str, str] = {}
    for path in [*([home] if home is not None else []), *beside]:
        homes.setdefault(os.path.realpath(path), os.path.abspath(path))
    return list(homes.values())


def runs(places: Places, home: str | None = None) -> list[Run]:
    """All recorded runs of a store, oldest first.

    Raises:
        Refused: the backup directory is not a directory, or not readable.
    """
    own: list[Run] = []
    for place in _homes(places, home):
        beside = os.path.realpath(place) == os.path.realpath(default_home(places))
        for entry in _entries(place):
            if not entry.is_dir() or not os.path.lexists(os.path.join(entry.path, manifests.NAME)):
                continue
            try:
                head = manifests.read_head(entry.path)
            except RmqError as err:
                # its owner is unknown; in a shared backup directory it may be another store's
                if beside or _is_claimed(entry.path, places):
                    own.append(Run(entry.path, None, err))
                continue
            if _is_own(head, places, beside=beside):
                own.append(Run(entry.path, head))
    own.sort(key=lambda run: (run.head.number if run.head is not None else 0, os.path.basename(run.path)))
    return own


def _entries(home: str) -> list[Any]:
    try:
        return list_dir(home)
    except UnreadableStore as err:
        raise Refused(f"{err}: no place for a backup (see --backup)") from err


def _is_own(head: Head, places: Places, *, beside: bool) -> bool:
    if beside and head.beside:
        return True  # moved or copied together with the store
    if head.format == 1:
        return bool(os.path.realpath(head.store["path"]) == places.real)
    return is_of(head.store, places)


def is_of(store: dict[str, Any], places: Places) -> bool:
    """Whether a run belongs to this store: the path is still the same, or the directory, under another path."""
    own = identity(places)
    moved = (store.get("device"), store.get("inode")) == (own["device"], own["inode"])
    return moved or bool(store.get("path") == own["path"])


def _is_claimed(folder: str, places: Places) -> bool:
    """Whether a folder is claimed for this store."""
    try:
        data = read_small(os.path.join(folder, IDENTITY), _MOST_MARKER)
        value = json.loads(data or b"null")
        return isinstance(value, dict) and is_of(value, places)
    except (RmqError, ValueError, RecursionError):
        return False


def claim(folder: str, places: Places) -> None:
    """Record the owner of a new folder."""
    write_durably(os.path.join(folder, IDENTITY), json.dumps(identity(places)).encode(), like=places.real)


def sweep(places: Places, home: str | None = None) -> None:
    """Remove leftovers of this store's runs that were killed before they had recorded anything."""
    for place in _homes(places, home):
        beside = os.path.realpath(place) == os.path.realpath(default_home(places))
        for entry in list_dir(place):
            if not entry.is_dir() or not _NAME.fullmatch(entry.name) or os.path.islink(entry.path):
                continue
            names = {inner.name for inner in list_dir(entry.path)}
            if any(name.startswith("manifest.json") and name != "manifest.json.tmp" for name in names):
                continue
            if not names <= {"after", "before", "manifest.json.tmp", IDENTITY, IDENTITY + ".tmp"}:
                continue  # belongs to another store
            if _is_claimed(entry.path, places) or (beside and IDENTITY not in names):
                remove_tree(entry.path)


# -- the marker -------------------------------------------------------------------------------------------------------


def mark(places: Places, run: str, folder: str) -> None:
    """Mark the store as half changed."""
    text = json.dumps({"format": 1, "run": run, "folder": os.path.abspath(folder)})
    write_durably(os.path.join(places.root, MARKER), text.encode("utf-8", "surrogateescape"), like=places.real)


def unmark(places: Places) -> None:
    """Remove that mark."""
    for name in (MARKER + ".tmp", MARKER):
        remove_durably(os.path.join(places.root, name))


def read_marker(places: Places) -> Marker | None:
    """Read the mark; None without one.

    Raises:
        CorruptFile: it cannot be read.
    """
    path = os.path.join(places.root, MARKER)
    if os.path.islink(path):
        raise CorruptFile(path, None, "is a symbolic link")
    data = read_small(path, _MOST_MARKER)
    if data is None:
        return None
    try:
        value = json.loads(data)
        if value["format"] != 1 or not isinstance(value["run"], str) or not isinstance(value["folder"], str):
            raise ValueError("not of this version")
        if not os.path.isabs(value["folder"]) or "\0" in value["folder"]:
            raise ValueError("folder: not absolute")
        return Marker(value["run"], value["folder"])
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise CorruptFile(path, None, f"not a marker of rmqtool: {err}") from err


def find_marked(marker: Marker, places: Places, known: list[Run]) -> Run:
    """The run that a mark refers to.

    Raises:
        Refused: its folder is missing, or belongs to another store.
        CorruptFile: its manifest cannot be read.
    """
    for run in known:
        if run.head is not None and run.head.run == marker.run:
            return run
    for run in known:
        if run.problem is not None and os.path.basename(run.path) == os.path.basename(marker.folder):
            raise run.problem
    try:
        head = manifests.read_head(marker.folder)
    except UnreadableStore:
        raise Refused(
            f"{places.root}: the backup of an interrupted run is in {marker.folder}, which is not there: bring it back"
        ) from None
    if head.run != marker.run:
        raise Refused(
            f"{places.root}: the backup of an interrupted run is in {marker.folder}, which is another run's: bring it "
            "back"
        )
    if not is_of(head.store, places) and _still_exists(head.store):
        raise Refused(
            f"{places.root}: seems to be a copy of {head.store['path']}, made while a run was half done; the files of "
            f"that run are in {marker.folder}, and belong to the original"
        )
    return Run(marker.folder, head)


def _still_exists(store: dict[str, Any]) -> bool:
    """Whether the store of a run still exists at its place."""
    try:
        status = os.stat(store["path"])
    except (OSError, ValueError):
        return False
    return (status.st_dev, status.st_ino) == (store["device"], store["inode"])
