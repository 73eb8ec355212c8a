"""Names of files and directories that belong to a dump. Everything else in a directory is foreign."""

import os
import re
from typing import Any

from rmqtool.analytics.remote.files import Folder, local_path

MANIFEST = "_rmqtool.json"
SUCCESS = "_SUCCESS"
STAGING = "_rmqtool-new"
JOURNAL = "_rmqtool-commit.json"
CLAIM = "_rmqtool-claim-"
# in the staging directory: description of the run, directory of completed splits, directory of spilled rows
RUN, DONE, SPILL = "_run.json", "_done", "_spill"
_MARKS = (SUCCESS, MANIFEST, JOURNAL)
_LEVELS = 4  # maximum number of directory levels; partitions have three
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
_LEFT = re.compile(r"_done|_spill|_where-[0-9]{1,9}")


def is_plain(name: Any) -> bool:
    """Return whether a name relative to OUT is a valid name for a Parquet file of a run.

    Such a name cannot escape OUT and cannot be that of a hidden file or of a metadata file.
    """
    if not isinstance(name, str):
        return False
    *levels, last = name.split("/")
    return (
        len(levels) <= _LEVELS
        and all(_PLAIN.fullmatch(level) and "=" in level and level[0] not in "._" for level in levels)
        and _PLAIN.fullmatch(last) is not None
        and last[0] not in "._"
        and last.endswith(".parquet")
    )


def is_replaceable(name: Any) -> bool:
    """Return whether a name relative to OUT can be a file of an older output, whatever wrote it."""
    if not isinstance(name, str) or not all(map(_PLAIN.fullmatch, name.split("/"))):
        return False
    return not {".", ".."} & set(name.split("/")) and not name.startswith("_") and belongs_below(name)


def belongs(name: str) -> bool:
    """Return whether a file with this name may be in an output."""
    return name.endswith(".parquet") or name.startswith("_") or (name.startswith(".") and name.endswith(".crc"))


def belongs_below(name: str) -> bool:
    """As :func:`belongs`, for a path with directories."""
    *levels, last = name.split("/")
    return belongs(last) and all("=" in level or level.startswith("_") for level in levels)


def is_output(path: str) -> bool:
    """Return whether a directory contains a Parquet output and nothing else; symbolic links are not allowed."""
    marked = any(os.path.isfile(os.path.join(path, mark)) for mark in _MARKS)
    pending = [path]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if "=" not in name and not name.startswith("_"):
                        return False
                    if name != STAGING:
                        pending.append(entry.path)
                    elif not is_leftover(entry.path):
                        return False
                elif not entry.is_file(follow_symlinks=False) or not belongs(name):
                    return False
                marked = marked or name.endswith(".parquet")
    return marked


def is_leftover(path: str) -> bool:
    """Return whether a local directory contains only what a killed run leaves behind.

    Such a directory may be emptied; anything else is left alone. A missing directory counts as a leftover.
    """
    if os.path.islink(path) or not os.path.isdir(path):
        return not os.path.lexists(path)
    pending = [path]
    while pending:
        with os.scandir(folder := pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if "=" not in entry.name and not (folder == path and _LEFT.fullmatch(entry.name)):
                        return False
                    pending.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) or not _is_left(entry.name, folder != path):
                    return False
    return True


def _is_left(name: str, deeper: bool) -> bool:
    return belongs(name) or (deeper and name.endswith(".json"))


def has_links(folder: Folder) -> bool:
    """Return whether there is a symbolic link anywhere in a local directory; False for other file systems."""
    path = local_path(folder.location)
    if path is None:
        return False
    if os.path.islink(path):
        return True
    for above, folders, names in os.walk(path):
        if any(os.path.islink(os.path.join(above, name)) for name in (*folders, *names)):
            return True
    return False
