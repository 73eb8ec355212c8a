"""The one way for a command to change a store: lock, finish or refuse an interrupted run, clean up, change, commit."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from rmqtool.errors import CorruptFile, Refused, RmqError
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes.change import PLAN_HINT, Change, Snapshot
from rmqtool.store.changes.outside import locked_store
from rmqtool.store.changes.places import MARKER, Places
from rmqtool.store.changes.runs import Run, find_marked, read_marker, runs, sweep, unmark
from rmqtool.store.changes.signals import Signals, Stop
from rmqtool.store.changes.survey import ActionState
from rmqtool.store.disk.files import rename
from rmqtool.store.disk.scratch import temporary_folder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.words import command_line


@contextmanager
def changing(
    layout: StoreLayout,
    command: str,
    backup: str | None = None,
    *,
    named: Iterable[str] = (),
    folders: Iterable[str] = (),
) -> Iterator[Change]:
    """Change a store under the broker's lock. An interrupted run is completed first; :attr:`Change.finished` then says
    which. Nothing is changed before :meth:`Change.commit`.

    Args:
        layout: read it again inside, since completing a run may have changed the store.
        command: for the name of the run's folder.
        backup: directory for backups, instead of the one next to the store.
        named: files outside the store that the user has named and that may be changed.
        folders: directories with files to be changed that few commands change, such as that of the store's tier.

    Raises:
        Refused: the store is in use, or half changed by a run that cannot be completed, or the backup directory is in
            one of the store's own directories; or files outside its directory belong to another store.
        CorruptFile: a manifest or marker cannot be read.
        Interrupted: SIGINT or SIGTERM.
    """
    if backup is not None and (part := layout.part_with(backup)) is not None:
        raise Refused(f"{backup}: lies in {part}, where a broker treats every file as its own: nothing was changed")
    named = list(named)
    finished: tuple[str, str] | None = None
    with Signals() as signals:
        try:
            with locked_store(layout, named) as places:
                finished = settle(places, backup, signals)
                if finished is not None:
                    signals.resume()
                sweep(places, backup)
                snapshot = Snapshot(layout, named, folders)
                with Change(places, command, backup, signals=signals, snapshot=snapshot) as change:
                    change.finished = finished
                    yield change
        except Stop:
            before = f"the interrupted run in {finished[0]} was finished, " if finished is not None else ""
            raise signals.error(f"{before}nothing {'else ' if before else ''}was changed") from None


def hold_to_plan(root: str, shown: object, now: object) -> None:
    """Refuse a plan that differs from the confirmed one.

    Args:
        shown: what was confirmed; None if nothing was shown.
        now: the same part of the plan that is about to be carried out.

    Raises:
        Refused: they differ.
    """
    if shown is not None and shown != now:
        raise Refused(f"{root}: has changed since the plan was shown: nothing of it was done; run it again")


@contextmanager
def planning(layout: StoreLayout) -> Iterator[Change]:
    """Like :func:`changing`, for a plan: the store is only read, and staged files are discarded.

    Raises:
        Interrupted: SIGINT or SIGTERM.
    """
    with Signals() as signals:
        with suppress(Stop), ExitStack() as stack:
            directory = stack.enter_context(temporary_folder())
            change = stack.enter_context(Change(Places.of(layout), "plan", directory, PLAN_HINT, dry=True))
            stack.callback(signals.hold)  # a signal must not interrupt the removal of the folder
            yield change
        if signals.asked is not None:
            raise signals.error("nothing was changed")


_MOST_SHOWN = 5  # files named in an error
UNDOING = "undoing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRun:
    """An interrupted run, or another problem that blocks writers.

    Attributes:
        folder: the run's folder; None if the store's own marker cannot be read.
        command: the command that started it; empty if unknown.
        undoing: an undo was interrupted, and only an undo can complete it.
        problem: why nothing is known about it: its manifest or marker is unreadable, missing, or another store's.
        differences: per file, what keeps it from being completed.
        to_finish: whether the next writing command (the next undo, if an undo was interrupted) completes it.
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
        """Description of the problem."""
        if self.problem is not None:
            return self.problem
        action = "an undo" if self.undoing else "a change"
        more = f", and cannot be finished: {shorten(self.differences)}" if self.differences else ""
        return f"{action} was interrupted{more}"

    def action(self) -> str:
        """The first line of a plan."""
        if self.to_finish:
            return f"finish the interrupted {'undo' if self.undoing else 'run'} in {self.folder}"
        return f"nothing before the interrupted run is out of the way{f' ({self.folder})' if self.folder else ''}"

    def warnings(self, root: str) -> list[str]:
        """Warnings for a plan."""
        if self.to_finish:
            return [f"an undo was interrupted: finish it with {command_line('undo', root)}"] if self.undoing else []
        first = [self.problem] if self.problem is not None else []
        return [*first, *(f"cannot be finished: {difference}" for difference in self.differences), remedy_for(root)]


def remedy_for(root: str) -> str:
    """Return the user's options for a run that cannot be completed."""
    return (
        f"{command_line('undo', root, '--forget')} abandons the interrupted run: the store and the backup stay as "
        "they are, and recover then makes a new plan"
    )


def find(places: Places, home: str | None = None) -> Run | None:
    """The interrupted run; None without one.

    Raises:
        CorruptFile: a manifest or the store's marker cannot be read.
        Refused: its folder is missing, or belongs to another store.
    """
    known = runs(places, home)
    if (marker := read_marker(places)) is not None:
        run = find_marked(marker, places, known)
        if run.state in ("committed", UNDOING):
            return run
        # the marker is removed before the manifest is set to its final state, so that state was set for another copy of
        # the store; for a run that was abandoned it is the other way round
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
    """Whether every file is in the state in which the completed run left it."""
    how = open_run(places, run).survey().how
    return all(state is (ActionState.AFTER if run.state == "done" else ActionState.BEFORE) for state in how)


def open_run(places: Places, run: Run, signals: Signals | None = None) -> Change:
    """Load a recorded run.

    Raises:
        CorruptFile: not a manifest of this store.
    """
    return Change.at(places, run.path, manifests.read(run.path, places), signals)


def pending_runs(places: Places, home: str | None = None) -> list[PendingRun]:
    """Interrupted runs and other obstacles, for commands that only read: raises and writes nothing."""
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
    """Complete an interrupted run, under the lock; returns its folder and command, or None.

    Raises:
        Refused: it cannot be completed: the store is not in the state in which the run left it, or its folder is
            missing. Nothing was changed.
        CorruptFile: its manifest cannot be read.
        UnreadableStore: there is no space to complete it.
    """
    try:
        run = find(places, home)
    except Refused as err:
        if not os.path.lexists(os.path.join(places.root, MARKER)):
            raise  # the backups' place cannot be used, and no run was interrupted
        raise Refused(f"{err}; or else {remedy_for(places.root)}") from err
    except CorruptFile as err:
        raise CorruptFile(err.path, err.at, f"{err.reason}; {remedy_for(places.root)}") from err
    if run is None:
        unmark(places)
        return None
    if run.state == UNDOING:
        raise Refused(f"{run.path}: an undo was interrupted here: finish it with {command_line('undo', places.root)}")
    try:
        change = open_run(places, run, signals)
    except CorruptFile as err:
        raise CorruptFile(err.path, err.at, f"{err.reason}; {remedy_for(places.root)}") from err
    except Refused as err:
        raise Refused(f"{err}; {remedy_for(places.root)}") from err
    if differences := _hindrances(change, undoing=False):
        raise Refused(
            f"{run.path}: this run was interrupted and cannot be finished, because the store has changed since: "
            f"{shorten(differences)}. Nothing was changed. {remedy_for(places.root)}"
        )
    if signals is not None:
        signals.defer()
    change.apply()
    return run.path, change.command


def _hindrances(change: Change, *, undoing: bool) -> list[str]:
    """Per file, what keeps a run from being completed."""
    survey = change.survey()
    tears = [] if undoing else [f"{change.places.show(path)}: {reason}" for path, reason in survey.find_tears()]
    return survey.differences + survey.lacks(undoing=undoing) + tears


def refuse_pending(places: Places) -> None:
    """Refuse to write to a half-changed store; for writers that keep no backup.

    Raises:
        Refused: a change was interrupted.
    """
    for run in pending_runs(places):
        reasons = "; ".join([run.problem] if run.problem else run.differences[:_MOST_SHOWN])
        raise Refused(
            f"{places.root}: a change of it was interrupted{f' ({run.folder})' if run.folder else ''}"
            f"{': ' + reasons if reasons else ''}: see {command_line('recover', places.root, '--dry-run')}"
        )


def forget(places: Places, home: str | None = None) -> str | None:
    """Abandon the interrupted run, under the lock: the store and the backup stay as they are.

    Returns:
        What was abandoned; None if nothing was interrupted.
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
    """Rename a manifest that cannot be read, so that it is ignored."""
    target, number = f"{path}.forgotten", 1
    while os.path.lexists(target):
        number += 1
        target = f"{path}.forgotten-{number}"
    rename(path, target)
    unmark(places)
    return target


def shorten(differences: list[str]) -> str:
    """The first few differences, joined to one line."""
    more = len(differences) - _MOST_SHOWN
    return "; ".join(differences[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
