"""The one way for a command to change a store: lock, complete or refuse interrupted runs, clean up, change, commit."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from rmqtool.errors import Refused
from rmqtool.store.changes.change import PLAN_HINT, Change
from rmqtool.store.changes.pending import settle
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import sweep
from rmqtool.store.changes.signals import Signals, Stop
from rmqtool.store.changes.snapshot import Snapshot
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.disk.scratch import temporary_folder
from rmqtool.store.layout.paths import StoreLayout


@contextmanager
def changing(
    layout: StoreLayout, command: str, backup: str | None = None, *, named: Iterable[str] = ()
) -> Iterator[Change]:
    """Change a store under the broker's lock. An interrupted run is completed first; :attr:`Change.finished` then tells
    which. Nothing is changed before :meth:`Change.commit`.

    Args:
        layout: read it again inside, since completing a run may have changed the store.
        command: for the name of the run's folder.
        backup: directory for backups, instead of the one next to the store.
        named: files outside the store that the user has named and that may be changed.

    Raises:
        Refused: the store is in use, or half changed by a run that cannot be completed, or the backup directory is in
            one of the store's own directories.
        CorruptFile: a manifest or marker cannot be read.
        Interrupted: SIGINT or SIGTERM.
    """
    if backup is not None and (part := layout.part_with(backup)) is not None:
        raise Refused(f"{backup}: lies in {part}, where a broker takes every file for its own: nothing was changed")
    named = list(named)
    places = Places.of(layout, named)
    finished: tuple[str, str] | None = None
    with Signals() as signals:
        try:
            with StoreLock(places.root):
                finished = settle(places, backup, signals)
                if finished is not None:
                    signals.resume()
                sweep(places, backup)
                snapshot = Snapshot(layout, named)
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
def planning(root: str) -> Iterator[Change]:
    """Like :func:`changing`, for a plan: the store is only read, and staged files are discarded.

    Raises:
        Interrupted: SIGINT or SIGTERM.
    """
    with Signals() as signals:
        with suppress(Stop), ExitStack() as stack:
            directory = stack.enter_context(temporary_folder())
            change = stack.enter_context(Change(root, "plan", directory, PLAN_HINT, dry=True))
            stack.callback(signals.hold)  # a signal must not interrupt the removal of the folder
            yield change
        if signals.asked is not None:
            raise signals.error("nothing was changed")
