"""Put back what a writing command replaced, from the manifest of its transaction.

Done only while the store is still as that command left it: a broker that has run since has built on it. A killed undo
is finished by the next one.
"""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.errors import Refused
from rmqtool.store.disk.durable import copy_aside, move, sync
from rmqtool.store.disk.lock import StoreLock, check_alone
from rmqtool.store.disk.sparse import has_bytes, written
from rmqtool.store.transaction.change import Transaction, transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReport:
    """What an undo would do, or did."""

    store: str
    backup: str | None  # the transaction that is undone; None when there is none left
    actions: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)  # files that are not as the command left them
    applied: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


def _newest(root: str, home: str | None) -> tuple[str, Transaction] | None:
    """The last transaction that is not undone yet; an interrupted undo before all others."""
    found = [(state, transaction) for state, transaction in transactions(root, home) if state != "undone"]
    return next((one for one in found if one[0] == "undoing"), found[-1] if found else None)


def plan_undo(root: str, home: str | None = None) -> UndoReport:
    """What an undo would do; nothing is written."""
    newest = _newest(root, home)
    if newest is None:
        return UndoReport(store=root, backup=None)
    state, transaction = newest
    conflicts = [] if state in ("undoing", "committed") else _conflicts(transaction)
    return UndoReport(store=root, backup=transaction.path, actions=_words(transaction), conflicts=conflicts)


def undo(root: str, home: str | None = None, *, force: bool = False) -> UndoReport:
    """Undo the last writing command of a store, under the broker's lock.

    Args:
        force: also where a file has changed since; what is there now is kept in the transaction's ``after/``.

    Raises:
        Refused: the store is in use, or has changed since.
    """
    if _newest(root, home) is None:
        return UndoReport(store=root, backup=None)
    with StoreLock(root):
        newest = _newest(root, home)
        if newest is None:
            return UndoReport(store=root, backup=None)
        state, transaction = newest
        if state == "committed":
            transaction.apply()
        conflicts = _conflicts(transaction) if state == "done" else []
        if conflicts and not force:
            more = f" (and {len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
            raise Refused(f"{conflicts[0]}{more}: has changed since; --force puts the old one back all the same")
        with transaction.held_off(), transaction.going_on():
            transaction.write_manifest("undoing")
            for action in reversed(transaction.actions):
                check_alone(root)
                {"put": _unput, "remove": _unremove, "zero": _unzero}[action["do"]](transaction, action)
            transaction.write_manifest("undone")
    return UndoReport(
        store=root, backup=transaction.path, actions=_words(transaction), conflicts=conflicts, applied=True
    )


def _words(transaction: Transaction) -> list[str]:
    names = {"put": "put back", "remove": "put back", "zero": "write the old bytes into"}
    return [
        f"{names[a['do']] if 'kept' in a else 'remove'} {os.path.relpath(a['path'], transaction.root)}"
        for a in reversed(transaction.actions)
    ]


def _conflicts(transaction: Transaction) -> list[str]:
    """Files that are not as the transaction left them."""
    found = []
    for action in transaction.actions:
        path = action["path"]
        if action["do"] == "put":
            try:
                now = os.stat(path)
            except OSError:
                found.append(path)
                continue
            if (now.st_size, now.st_mtime_ns) != (action["bytes"], action["mtime_ns"]):
                found.append(path)
        elif action["do"] == "remove":
            if os.path.lexists(path):
                found.append(path)
        elif not os.path.exists(path) or has_bytes(path, action["start"], action["stop"]) > action["start"]:
            found.append(path)
    return found


def _unput(transaction: Transaction, action: dict[str, Any]) -> None:
    path, staged = action["path"], transaction.inside(action["staged"])
    kept = transaction.inside(action["kept"]) if "kept" in action else None
    if kept is None:
        if os.path.lexists(path):
            move(path, staged)
    elif os.path.lexists(kept):
        if os.path.lexists(path) and not os.path.lexists(staged):
            copy_aside(path, staged)
        move(kept, path)
    if os.path.isdir(os.path.dirname(path)):
        sync(os.path.dirname(path))
    for directory in action.get("made", ()):
        with suppress(OSError):  # something else is in it by now
            os.rmdir(directory)


def _unremove(transaction: Transaction, action: dict[str, Any]) -> None:
    kept, path = transaction.inside(action["kept"]), action["path"]
    if os.path.lexists(kept):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        move(kept, path)
        sync(os.path.dirname(path))


def _unzero(transaction: Transaction, action: dict[str, Any]) -> None:
    path, start = action["path"], action["start"]
    if not os.path.exists(path):
        return
    accessed = os.stat(path).st_atime_ns
    with open(transaction.inside(action["kept"]), "rb") as kept, open(path, "r+b", buffering=0) as file:
        for at, data in written(kept.fileno(), 0, action["stop"] - start):
            if data.strip(b"\0"):
                os.pwrite(file.fileno(), data, start + at)
        os.fsync(file.fileno())
    os.utime(path, ns=(accessed, action["mtime_ns"]))
