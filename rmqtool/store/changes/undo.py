"""Undo a writing command: put back what it replaced, from the manifest of its change.

This works only while the store is in the state in which the command left it, since a broker that has run since has
built on that. A killed undo is completed by the next one; of a killed command, everything it had done so far is undone.
"""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.errors import Refused
from rmqtool.progress import stage
from rmqtool.store.changes.change import Change
from rmqtool.store.changes.manifest import Action
from rmqtool.store.changes.outside import refuse_shared_files
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import mark, runs, unmark
from rmqtool.store.changes.signals import Signals, Stop
from rmqtool.store.changes.steps import own_path
from rmqtool.store.changes.survey import RunSurvey
from rmqtool.store.changes.writing import find, forget, hold_to_plan, open_run, remedy_for, shorten
from rmqtool.store.disk.durable import link_aside, move, sync, sync_all
from rmqtool.store.disk.files import make_file, open_file, open_to_change, remove_folder, set_times
from rmqtool.store.disk.lock import StoreLock, check_alone
from rmqtool.store.disk.ownership import make_folders, make_folders_as

_PIECE = 1 << 20
_LITTLE = 8  # on a signal, this many remaining actions are still carried out


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReport:
    """Result or plan of an undo."""

    store: str
    backup: str | None  # folder of the change; None if there is nothing to undo
    actions: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)  # files that have changed since the command
    applied: bool = False
    reasons: list[str] = field(default_factory=list)  # how they differ

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


def _newest(places: Places, home: str | None, signals: Signals | None = None) -> Change | None:
    """The interrupted run, else the latest one that has not been undone.

    Raises:
        CorruptFile: a manifest cannot be read.
        Refused: the interrupted run cannot be found.
    """
    try:
        if (run := find(places, home)) is not None:
            return open_run(places, run, signals)
    except Refused as err:
        raise Refused(f"{err}; or else {remedy_for(places.root)}") from err
    done = [run for run in runs(places, home) if run.state == "done"]
    return open_run(places, done[-1], signals) if done else None


def plan_undo(root: str | Places, home: str | None = None) -> UndoReport:
    """Plan an undo; writes nothing.

    Raises:
        CorruptFile: a manifest cannot be read.
        Refused: the interrupted run cannot be found.
    """
    places = root if isinstance(root, Places) else Places(root)
    change = _newest(places, home)
    if change is None:
        return UndoReport(store=places.root, backup=None)
    survey = change.survey()
    return _report(change, survey, applied=False)


def _report(change: Change, survey: RunSurvey, *, applied: bool) -> UndoReport:
    gaps = [path for path, _description in survey.gaps()]
    return UndoReport(
        store=change.places.root,
        backup=change.path,
        actions=_describe(change),
        conflicts=list(dict.fromkeys(survey.paths + gaps)),
        reasons=_differences(change, survey) + survey.lacks(undoing=True),
        applied=applied,
    )


def _differences(change: Change, survey: RunSurvey) -> list[str]:
    """The reasons against an undo."""
    return survey.differences + [f"{change.places.show(path)}: {reason}" for path, reason in survey.gaps()]


def undo(
    root: str | Places, home: str | None = None, *, force: bool = False, shown: UndoReport | None = None
) -> UndoReport:
    """Undo the last writing command of a store, under the broker's lock.

    Args:
        force: undo it even if files have changed since; their current state is saved in the change's ``after/``.
        shown: a plan that was confirmed; undoing another command is refused.

    Raises:
        Refused: the store is in use, or has changed since.
        Interrupted: SIGINT or SIGTERM.
    """
    places = root if isinstance(root, Places) else Places(root)
    if _newest(places, home) is None:
        return UndoReport(store=places.root, backup=None)
    with Signals() as signals:
        try:
            with StoreLock(places.root):
                refuse_shared_files(places)
                change = _newest(places, home, signals)
                if change is None:
                    return UndoReport(store=places.root, backup=None)
                hold_to_plan(places.root, shown and (shown.backup, shown.actions), (change.path, _describe(change)))
                return _undo(change, signals, force=force)
        except Stop:
            raise signals.error("nothing was changed") from None


def _undo(change: Change, signals: Signals, *, force: bool) -> UndoReport:
    places, head = change.places, change.head
    survey = change.survey()
    report = _report(change, survey, applied=True)
    differences = _differences(change, survey)
    if differences and not force:
        way = f". {remedy_for(places.root)}" if head.state != "done" else ""
        raise Refused(
            f"{shorten(differences)}: has changed since: nothing was changed; --force puts the old ones back "
            f"anyway, and keeps what is there now{way}"
        )
    if lacks := survey.lacks(undoing=True):
        raise Refused(f"{change.path}: {shorten(lacks)}: nothing was changed")
    signals.defer()
    with change.held_off(), change.half_done_errors(), stage("putting back", len(change.actions), "changes") as back:
        change.write_manifest("undoing")
        mark(places, change.head.run, change.path)
        left = len(change.actions)
        steps = list(zip(change.actions, survey.how, strict=True))
        for action, how in reversed(steps):
            if signals.asked is not None and left > _LITTLE:
                break
            check_alone(places.root)
            if how is None:
                _save(change, action)
            # even if it was only begun, or never carried out: each function checks what remains to be done
            {"put": _revert_put, "remove": _unremove, "zero": _unzero}[action.do](change, action)
            left -= 1
            back.done += 1
        else:
            unmark(places)
            change.write_manifest("undone")
    if signals.asked is not None:
        if left:
            raise signals.error(
                f"{len(steps) - left} of {len(steps)} changes are put back, {left} are left: the same command continues"
            )
        raise signals.error("everything was put back before it stopped")
    return report


def give_up(root: str | Places, home: str | None = None) -> str | None:
    """Abandon the interrupted run, under the lock: the store and the backup stay as they are.

    Returns:
        What was abandoned; None if nothing was interrupted.

    Raises:
        Refused: the store is in use.
    """
    places = root if isinstance(root, Places) else Places(root)
    with StoreLock(places.root):
        return forget(places, home)


def _describe(change: Change) -> list[str]:
    names = {"put": "put back", "remove": "put back", "zero": "write the old bytes into"}
    return [
        f"{names[action.do] if action.kept is not None else 'remove'} {os.path.relpath(action.path, change.root)}"
        for action in reversed(change.actions)
    ]


def _save(change: Change, action: Action) -> None:
    """Save the current, unexpected state of a file without removing it."""
    folder = change.inside("after", "replaced")
    created = make_folders_as(folder, change.places.real)
    if not os.path.lexists(action.path):
        return
    number = 1
    while os.path.lexists(target := os.path.join(folder, f"{number:06d}-{os.path.basename(action.path)}")):
        number += 1
    if action.do == "zero":  # it will be written to, so a hard link would not preserve it
        _copy_range(action, target)
    else:
        link_aside(action.path, target)
    sync_all({folder, *map(os.path.dirname, created)})


def _copy_range(action: Action, target: str) -> None:
    with open_file(action.path) as file, make_file(target) as out:
        for at, data in file.written_parts(action.start, action.stop):
            out.write(at - action.start, data)
        out.cut(action.stop - action.start)
        out.sync()


def _revert_put(change: Change, action: Action) -> None:
    path, staged = action.path, own_path(change.path, action.staged or "")
    kept = own_path(change.path, action.kept) if action.kept is not None else None
    if kept is None:
        if os.path.lexists(path):
            move(path, staged)
    elif os.path.lexists(kept):
        if os.path.lexists(path) and not os.path.lexists(staged):
            link_aside(path, staged)
            sync(os.path.dirname(staged))
        _recreate_parents(path)
        move(kept, path)
    if os.path.isdir(os.path.dirname(path)):
        sync(os.path.dirname(path))
    for directory in action.made:
        with suppress(OSError):  # it may contain something else by now
            remove_folder(directory)
            sync(os.path.dirname(directory))


def _unremove(change: Change, action: Action) -> None:
    kept, path = own_path(change.path, action.kept or ""), action.path
    if os.path.lexists(kept):
        _recreate_parents(path)
        move(kept, path)
        sync(os.path.dirname(path))


def _recreate_parents(path: str) -> None:
    sync_all(set(map(os.path.dirname, make_folders(os.path.dirname(path)))))


def _unzero(change: Change, action: Action) -> None:
    """Restore the range byte for byte, zeros included."""
    path, start, length = action.path, action.start, action.stop - action.start
    accessed = os.stat(path).st_atime_ns
    kept_path = own_path(change.path, action.kept or "")
    with open_file(kept_path, link=False) as kept, open_to_change(path) as file:
        there = [(first - start, end - start) for first, end in file.extents(start, action.stop)]
        for first, end in [*kept.extents(0, length), *there]:
            for at in range(first, end, _PIECE):
                data = kept.read(at, min(_PIECE, end - at))
                if data != file.read(start + at, len(data)):
                    file.write(start + at, data)
        file.sync()
    set_times(path, accessed, action.mtime_ns)
