"""The run of a store that is half done: found, described, finished, or given up."""

import os
from dataclasses import dataclass, field

from rmqtool.errors import CorruptFile, Refused, RmqError
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes.change import Change
from rmqtool.store.changes.places import MARKER, Places
from rmqtool.store.changes.runs import Run, find_marked, read_marker, runs, unmark
from rmqtool.store.changes.signals import Signals
from rmqtool.store.changes.survey import How
from rmqtool.store.disk.files import rename
from rmqtool.words import command_line

_TOLD = 5  # files that an error names
UNDOING = "undoing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRun:
    """A run that is half done, or a problem that keeps writers from a store.

    Attributes:
        folder: of the run; None where the store's own marker cannot be read.
        command: that began it; empty where that is not known.
        undoing: an undo was interrupted, and only an undo goes on with it.
        problem: why nothing is known of it: its manifest or marker is unreadable, gone, or another store's.
        differences: file by file, what keeps it from being finished.
        to_finish: whether the next writing command (or undo, where that was interrupted) finishes it.
    """

    folder: str | None
    command: str = ""
    undoing: bool = False
    problem: str | None = None
    differences: list[str] = field(default_factory=list)

    @property
    def to_finish(self) -> bool:
        return self.problem is None and not self.differences

    def reason(self) -> str:
        """What is the matter."""
        if self.problem is not None:
            return self.problem
        action = "an undo" if self.undoing else "a change"
        more = f", and cannot be finished: {shorten(self.differences)}" if self.differences else ""
        return f"{action} was interrupted{more}"

    def action(self) -> str:
        """What a plan says of it, before all else."""
        if self.to_finish:
            return f"finish the interrupted {'undo' if self.undoing else 'run'} in {self.folder}"
        return f"nothing before the interrupted run is out of the way{f' ({self.folder})' if self.folder else ''}"

    def warnings(self, root: str) -> list[str]:
        """What a plan warns of."""
        if self.to_finish:
            return [f"an undo was interrupted: finish it with {command_line('undo', root)}"] if self.undoing else []
        first = [self.problem] if self.problem is not None else []
        return [*first, *(f"cannot be finished: {difference}" for difference in self.differences), way_on(root)]


def way_on(root: str) -> str:
    """What to do about a run that cannot be finished."""
    return (
        f"{command_line('undo', root, '--forget')} gives the interrupted run up: the store stays as it is, and the "
        "backup too; recover then makes a new plan"
    )


def find(places: Places, home: str | None = None) -> Run | None:
    """The run that is half done.

    Raises:
        CorruptFile: a manifest, or what the store says of it, cannot be read.
        Refused: its folder is gone, or another store's.
    """
    known = runs(places, home)
    if (marker := read_marker(places)) is not None:
        run = find_marked(marker, places, home, known)
        if run.state in ("committed", UNDOING):
            return run
        # the marker goes before a manifest says that it is through, so this was another copy of the store; a run that
        # was given up says so first
        if run.state != "forgotten" and not _as_left(places, run):
            raise Refused(
                f"{places.root}: was half changed when this copy of it was made; that run, in {run.path}, has been "
                f"{run.state} for another copy since"
            )
    for run in known:
        if run.problem is not None:
            raise run.problem
        if run.state in ("committed", UNDOING):
            return run
    return None


def _as_left(places: Places, run: Run) -> bool:
    """Whether every file is as the run, which is through, leaves it."""
    how = open_run(places, run).survey().how
    return all(state is (How.AFTER if run.state == "done" else How.BEFORE) for state in how)


def open_run(places: Places, run: Run, signals: Signals | None = None) -> Change:
    """A run that was written down.

    Raises:
        CorruptFile: not a manifest of this store.
    """
    return Change.at(places, run.path, manifests.read(run.path, places), signals)


def pending_runs(places: Places, home: str | None = None) -> list[PendingRun]:
    """What is half done or in the way, for those who only look: nothing is raised, nothing is written."""
    try:
        run = find(places, home)
    except CorruptFile as err:
        folder = os.path.dirname(err.path)
        return [PendingRun(folder=None if folder == places.root else folder, problem=str(err))]
    except (RmqError, OSError) as err:
        return [PendingRun(folder=None, problem=str(err))]
    if run is None or run.head is None:
        return []
    undoing = run.state == UNDOING
    try:
        change = open_run(places, run)
        differences = _hindrances(change, undoing=undoing)
    except (RmqError, OSError) as err:
        return [PendingRun(folder=run.path, command=run.head.command, undoing=undoing, problem=str(err))]
    return [PendingRun(folder=run.path, command=run.head.command, undoing=undoing, differences=differences)]


def settle(places: Places, home: str | None = None, signals: Signals | None = None) -> tuple[str, str] | None:
    """Finish what was interrupted, under the lock; its folder and command, or None.

    Raises:
        Refused: it cannot be finished: the store is not as that run left it, or its folder is gone. Nothing was
            changed.
        CorruptFile: its manifest cannot be read.
        UnreadableStore: it cannot be finished for want of room.
    """
    try:
        run = find(places, home)
    except Refused as err:
        raise Refused(f"{err}; or else {way_on(places.root)}") from err
    except CorruptFile as err:
        raise CorruptFile(err.path, err.at, f"{err.reason}; {way_on(places.root)}") from err
    if run is None:
        unmark(places)
        return None
    if run.state == UNDOING:
        raise Refused(f"{run.path}: an undo was interrupted here: finish it with {command_line('undo', places.root)}")
    try:
        change = open_run(places, run, signals)
    except CorruptFile as err:
        raise CorruptFile(err.path, err.at, f"{err.reason}; {way_on(places.root)}") from err
    except Refused as err:
        raise Refused(f"{err}; {way_on(places.root)}") from err
    if differences := _hindrances(change, undoing=False):
        raise Refused(
            f"{run.path}: this run was interrupted and cannot be finished, because the store has changed since: "
            f"{shorten(differences)}. Nothing was changed. {way_on(places.root)}"
        )
    if signals is not None:
        signals.defer()
    change.apply()
    return run.path, change.command


def _hindrances(change: Change, *, undoing: bool) -> list[str]:
    """File by file, what keeps a run from being gone on with."""
    survey = change.survey()
    tears = [] if undoing else [f"{change.places.show(path)}: {reason}" for path, reason in survey.torn_by()]
    return survey.differences + survey.lacks(undoing=undoing) + tears


def refuse_pending(places: Places) -> None:
    """For writers that keep no backup: they add nothing to a store that is half changed.

    Raises:
        Refused: it is.
    """
    for run in pending_runs(places):
        reasons = "; ".join([run.problem] if run.problem else run.differences[:_TOLD])
        raise Refused(
            f"{places.root}: a change of it was interrupted{f' ({run.folder})' if run.folder else ''}"
            f"{': ' + reasons if reasons else ''}: see {command_line('recover', places.root, '--dry-run')}"
        )


def forget(places: Places, home: str | None = None) -> str | None:
    """Give the interrupted run up, under the lock: the store stays as it is, and so does the backup.

    Returns:
        What was given up; None where nothing was interrupted.
    """
    try:
        run = find(places, home)
    except CorruptFile as err:
        if os.path.basename(err.path) == MARKER:
            unmark(places)
            return err.path
        return _set_aside(places, err.path)
    except Refused:
        unmark(places)
        return os.path.join(places.root, MARKER)
    if run is None:
        unmark(places)
        return None
    try:
        change = open_run(places, run)
    except (CorruptFile, Refused):
        return _set_aside(places, os.path.join(run.path, manifests.NAME))
    if change.head.format == 1:
        return _set_aside(places, os.path.join(run.path, manifests.NAME))
    change.write_manifest("forgotten")
    unmark(places)
    return run.path


def _set_aside(places: Places, path: str) -> str:
    """A manifest that cannot be read gets another name, under which nobody looks for it."""
    target, number = f"{path}.forgotten", 1
    while os.path.lexists(target):
        number += 1
        target = f"{path}.forgotten-{number}"
    rename(path, target)
    unmark(places)
    return target


def shorten(differences: list[str]) -> str:
    """Some of them in a line."""
    more = len(differences) - _TOLD
    return "; ".join(differences[:_TOLD]) + (f"; and {more} more" if more > 0 else "")
