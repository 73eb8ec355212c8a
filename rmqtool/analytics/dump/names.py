"""Which names and directories are a dump's own. Whatever else lies in a directory belongs to others."""

import os
import re
from typing import Any

from rmqtool.analytics.remote.files import Folder, local_path

MANIFEST = "_rmqtool.json"
SUCCESS = "_SUCCESS"
STAGING = "_rmqtool-new"
JOURNAL = "_rmqtool-commit.json"
CLAIM = "_rmqtool-claim-"
# in the staging: what is being done, a directory of what is, and one of rows that wait for others of their partition
RUN, DONE, SPILL = "_run.json", "_done", "_spill"
_MARKS = (SUCCESS, MANIFEST, JOURNAL)
_LEVELS = 4  # of directories at most; partitions have three
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
_LEFT = re.compile(r"_done|_spill|_where-[0-9]{1,9}")


def is_plain(name: Any) -> bool:
    """Whether a name is one that a run gives a Parquet file of its own, relative to OUT.

    Such a name leads neither out of OUT nor to a file that is hidden or says something of the output itself.
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
    """Whether a name, relative to OUT, may be that of a file in an older output, whatever has written it."""
    if not isinstance(name, str) or not all(map(_PLAIN.fullmatch, name.split("/"))):
        return False
    return not {".", ".."} & set(name.split("/")) and not name.startswith("_") and belongs_below(name)


def belongs(name: str) -> bool:
    """Whether a file with this name may lie in an output."""
    return name.endswith(".parquet") or name.startswith("_") or (name.startswith(".") and name.endswith(".crc"))


def belongs_below(name: str) -> bool:
    """As :func:`belongs`, for a name with directories."""
    *levels, last = name.split("/")
    return belongs(last) and all("=" in level or level.startswith("_") for level in levels)


def is_output(path: str) -> bool:
    """Whether a directory holds a Parquet output and nothing else; a link anywhere in it counts as something else."""
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
    """Whether a directory of this machine is what a run that was killed leaves behind, and holds nothing else.

    Such a directory is emptied; what others have put under its name is not. One that is missing is none.
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
    """Whether a link lies anywhere in a directory of this machine; elsewhere there are none."""
    path = local_path(folder.location)
    if path is None:
        return False
    if os.path.islink(path):
        return True
    for above, folders, names in os.walk(path):
        if any(os.path.islink(os.path.join(above, name)) for name in (*folders, *names)):
            return True
    return False
