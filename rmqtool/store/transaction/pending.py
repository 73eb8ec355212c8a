"""Interrupted runs of a store and journals that cannot be used, told without raising: for those who only look."""

import os
from typing import NamedTuple

from rmqtool.errors import RmqError
from rmqtool.store.transaction.change import SUFFIX, transactions


class Pending(NamedTuple):
    """One journal that is not done with.

    Attributes:
        state: ``committed`` (a change was decided and not completed), ``undoing`` (an undo was), ``foreign`` (one of
            these, of another store), or ``unreadable``.
        path: of its folder, or of the file that cannot be read.
        reason: what is the matter, in words.
    """

    state: str
    path: str
    reason: str


def pending(root: str, home: str | None = None) -> list[Pending]:
    """All of a store, oldest first; a journal that cannot be read hides those behind it.

    Args:
        home: where backups are, unless beside the store.
    """
    found = []
    home = home or root.rstrip("/") + SUFFIX
    try:
        for state, transaction in transactions(root, home):
            if state not in ("committed", "undoing"):
                continue
            paths = [str(action["path"]) for action in transaction.actions]
            if paths and not any(path.startswith(root.rstrip("/") + os.sep) for path in paths):
                found.append(Pending("foreign", transaction.path, f"of another store: {paths[0]}"))
            else:
                what = "an undo" if state == "undoing" else "a change"
                found.append(Pending(state, transaction.path, f"{what} was interrupted"))
    except (RmqError, KeyError, TypeError) as err:
        at = getattr(err, "path", home)
        found.append(Pending("unreadable", at, str(err).removeprefix(f"{at}: ")))
    return found
