"""The steps of a change. Each is idempotent, and checks once more what it is about to replace."""

import os
from collections.abc import Callable

from rmqtool.store.changes.manifest import Action, digest_of, print_of
from rmqtool.store.changes.places import Places
from rmqtool.store.disk.durable import link_aside, move
from rmqtool.store.disk.files import make_file, open_file, open_to_change, set_times
from rmqtool.store.disk.ownership import make_folders, make_folders_as

Folders = set[str]  # whose names must be made durable


class Differs(Exception):
    """A file is neither in its old state nor in the one that the run leaves."""


def own_path(folder: str, name: str) -> str:
    """A path in a run's own folder.

    Raises:
        Differs: a symbolic link leads out of the folder.
    """
    path = os.path.join(folder, name)
    above = os.path.realpath(os.path.dirname(path))
    if above != os.path.join(os.path.realpath(folder), os.path.dirname(name)):
        raise Differs(f"{path}: a symbolic link leads out of {folder}")
    return path


def room_for(folder: str, places: Places, kept: str) -> Folders:
    """Create the directory for a backup."""
    path = os.path.dirname(own_path(folder, kept))
    return {path, *map(os.path.dirname, make_folders_as(path, places.real))}


def save_range(folder: str, action: Action) -> None:
    """Back up the bytes that will be zeroed."""
    with open_file(action.path) as file, make_file(own_path(folder, action.kept or ""), 0o600) as out:
        for at, data in file.written_parts(action.start, action.stop):
            if data.strip(b"\0"):
                out.write(at - action.start, data)
        out.cut(action.stop - action.start)
        out.take_after(action.path)
        out.sync()
        action.digest = digest_of(out, 0, action.stop - action.start)


def keep(folder: str, places: Places, action: Action, changed: Folders) -> None:
    """Back up the file that will be replaced, as a hard link if possible."""
    if action.kept is None or not os.path.exists(own_path(folder, action.staged or "")):
        return
    if not os.path.lexists(kept := own_path(folder, action.kept)):
        changed |= room_for(folder, places, action.kept)
        check_unchanged(action)
        link_aside(action.path, kept)


def check_unchanged(action: Action) -> None:
    """Check that a file has not changed, by its length and time if those match.

    Raises:
        Differs: it has changed.
    """
    was = action.was
    if not action.known:
        return
    try:
        status = os.lstat(action.path)
    except FileNotFoundError:
        if was is None:
            return
        raise Differs(f"{action.path}: has gone") from None
    if was is None:
        raise Differs(f"{action.path}: has appeared")
    if was.link is not None or (status.st_size, status.st_mtime_ns) == (was.size, was.mtime_ns):
        return
    if was.digest is None or print_of(action.path) != was._replace(mtime_ns=status.st_mtime_ns):
        raise Differs(f"{action.path}: has changed")


def put(folder: str, _places: Places, action: Action, changed: Folders) -> None:
    """Move the staged file into place.

    Raises:
        Differs: a file has appeared there since the planning.
    """
    staged, path = own_path(folder, action.staged or ""), action.path
    changed.update(map(os.path.dirname, (path, *action.made)))
    if not os.path.exists(staged):
        return  # an earlier run got this far
    if action.kept is None and os.path.lexists(path) and print_of(path) != action.put:
        raise Differs(f"{path}: has appeared")
    changed.update(map(os.path.dirname, make_folders(os.path.dirname(path))))
    move(staged, path)


def remove(folder: str, places: Places, action: Action, changed: Folders) -> None:
    """Move the file to the backup."""
    assert action.kept is not None
    kept = own_path(folder, action.kept)
    changed.update(map(os.path.dirname, (kept, action.path)))
    if os.path.lexists(action.path):
        check_unchanged(action)
        changed |= room_for(folder, places, action.kept)
        move(action.path, kept)


def zero(folder: str, _places: Places, action: Action, _changed: Folders) -> None:
    """Zero the bytes that were backed up, and no others.

    Raises:
        Differs: something else was written there in the meantime.
    """
    path = action.path
    accessed = os.stat(path).st_atime_ns
    with open_file(own_path(folder, action.kept or ""), link=False) as kept, open_to_change(path) as file:
        for at, data in file.written_parts(action.start, action.stop):
            if not data.strip(b"\0"):
                continue
            old = kept.read(at - action.start, len(data))
            # an earlier run may have zeroed a part of it
            if data != old and any(here and here != there for here, there in zip(data, old, strict=True)):
                raise Differs(f"{path}: was written to at {at} or after it")
            file.write(at, bytes(len(data)))
        file.sync()
    set_times(path, accessed, action.mtime_ns)


STEPS: dict[str, Callable[[str, Places, Action, Folders], None]] = {"put": put, "remove": remove, "zero": zero}
