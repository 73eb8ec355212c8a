"""The journal of a change: a file with the earlier values, written before the first request."""

import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rmqtool.admin.changes.change import Place, ValueChange
from rmqtool.admin.target import Target
from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.store.disk.directories import list_dir, read_small
from rmqtool.store.disk.durable import replace_file

BEGUN, ENDED, CONTINUED, UNDONE = "begun", "ended", "continued", "undone"
_FORM = 1
_NAME = re.compile(r"[0-9]{13}-[0-9]+-[a-z-]+\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What one command changed.

    Attributes:
        path: of the file.
        command: its name.
        namesrv: the name servers of the cluster.
        timestamp: when it began, ms.
        changes: everything that it writes, with the earlier values.
        state: begun (some of it may be written), ended, continued (by a later run of the same), undone.
        undoes: the journal that it undoes.
    """

    path: str
    command: str
    namesrv: tuple[str, ...]
    timestamp: int
    changes: tuple[ValueChange, ...]
    state: str = BEGUN
    undoes: str | None = None

    def mark(self, state: str) -> "Journal":
        """Write the state into the file.

        Raises:
            Refused: the file cannot be written.
        """
        marked = replace(self, state=state)
        _write(marked)
        return marked


def default_folder(environment: Mapping[str, str] = os.environ) -> str:
    """Where journals are kept: ``$XDG_STATE_HOME/rmqtool``, by default ``~/.local/state/rmqtool``."""
    home = environment.get("XDG_STATE_HOME") or os.path.expanduser(os.path.join("~", ".local", "state"))
    return os.path.join(home, "rmqtool")


def begin(
    folder: str | None, target: Target, command: str, changes: Iterable[ValueChange], *, undoes: str | None = None
) -> Journal:
    """Write a new journal.

    Raises:
        Refused: the file cannot be written.
        UnreadableStore: the folder cannot be read.
    """
    folder, now = os.path.abspath(folder or default_folder()), time.time_ns() // 1_000_000
    # after all others, even if the clock was set back
    number = max([now, *(int(name.partition("-")[0]) + 1 for name in _names(folder))])
    path = os.path.join(folder, f"{number}-{os.getpid()}-{command.replace(' ', '-')}.json")
    journal = Journal(
        path=path, command=command, namesrv=target.namesrv, timestamp=now, changes=tuple(changes), undoes=undoes
    )
    _write(journal)
    return journal


def _write(journal: Journal) -> None:
    content = {"rmqtoolJournal": _FORM} | {
        name: value for name, value in asdict(journal).items() if name != "path"
    }  # fmt: skip
    before = os.umask(0o077)  # values may be secrets
    try:
        replace_file(journal.path, (json.dumps(content, indent=1) + "\n").encode(), keep=False, closed=0o077)
    except OSError as err:
        raise Refused(f"{journal.path}: {os.strerror(err.errno or 0)}: the journal cannot be written") from None
    finally:
        os.umask(before)


def read_journal(path: str) -> Journal:
    """Read a journal.

    Raises:
        UnreadableStore: there is no such file.
        CorruptFile: it is not a journal.
    """
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        content = json.loads(data)
        if not isinstance(content, dict) or content.get("rmqtoolJournal") != _FORM:
            raise ValueError("not a journal of this release")
        undoes = content["undoes"]
        return Journal(
            path=path,
            command=_text(content["command"]),
            namesrv=tuple(map(_text, content["namesrv"])),
            timestamp=int(content["timestamp"]),
            changes=tuple(map(_change, content["changes"])),
            state=_text(content["state"]),
            undoes=None if undoes is None else _text(undoes),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise CorruptFile(path, None, f"not a journal of changes: {err}") from None


def _change(raw: dict[str, Any]) -> ValueChange:
    place = raw["place"]
    cluster, since = place["cluster"], raw["since"]
    return ValueChange(
        place=Place(
            kind=_text(place["kind"]),
            cluster=None if cluster is None else _text(cluster),
            server=_text(place["server"]),
            name=tuple(map(_text, place["name"])),
        ),
        before=raw["before"],
        after=raw["after"],
        step=int(raw["step"]),
        since=None if since is None else int(since),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text must be")
    return value


def _names(folder: str) -> list[str]:
    """The names of all journals, oldest first."""
    if not os.path.lexists(folder):
        return []
    return sorted(entry.name for entry in list_dir(folder) if _NAME.fullmatch(entry.name))


def find_journals(folder: str | None, target: Target) -> Sequence[Journal]:
    """The journals of a cluster, oldest first; those that share a name server with it.

    Raises:
        UnreadableStore: the folder cannot be read.
        CorruptFile: one of them is damaged.
    """
    folder = os.path.abspath(folder or default_folder())
    journals = [read_journal(os.path.join(folder, name)) for name in _names(folder)]
    return [journal for journal in journals if {*journal.namesrv} & {*target.namesrv}]
