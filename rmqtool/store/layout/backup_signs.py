"""By what a directory of backups, and the store of a backup in it, are recognized.

A backup is ``TIME``, or ``TIME.part`` until it is complete, and has the plain files of the store below ``store``.
"""

import os
import re

MARK, STORE, PART = "rmqtool-backups.json", "store", ".part"
NAME = re.compile(r"\d{8}T\d{6}Z(-\d+)?")


def is_home(path: str) -> bool:
    """Whether a directory is one of backups: it has the mark."""
    return os.path.isfile(os.path.join(path, MARK))


def find_home(store: str) -> str | None:
    """The directory of backups of one of which this is the store; None if it is an ordinary store."""
    folder, name = os.path.split(os.path.realpath(store))
    home, backup = os.path.split(folder)
    return home if name == STORE and NAME.fullmatch(backup.removesuffix(PART)) and is_home(home) else None
