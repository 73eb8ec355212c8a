"""Plans, and how they are carried out: journal, requests, reading back, undo.

A run that was killed leaves an unfinished journal. Running the same command again writes what is missing; its own
journal has the values before the first of the two runs, and ``undo`` reverts either of them.
"""

import asyncio
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rmqtool.admin.changes.change import Place, Value, ValueChange, ValueKind
from rmqtool.admin.changes.journal import BEGUN, CONTINUED, ENDED, UNDONE, Journal, begin, find_journals
from rmqtool.admin.changes.kinds import KINDS
from rmqtool.admin.live.controllers import find_controllers, find_leader
from rmqtool.admin.live.questions import Node, Questions, Unanswered, ask
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.errors import HungUp, Interrupted, Refused, Terminated
from rmqtool.remoting.errors import RemotingError
from rmqtool.words import command_line, counted

PATIENCE = 3.0
"""Seconds in which a value that was written must be there."""
_PAUSE = 0.25  # s between two reads

DONE, SAME, PENDING, KEPT, OTHER, UNKNOWN, SKIPPED = (
    "done", "same", "pending", "not-done", "other", "unknown", "skipped",
)  # fmt: skip
"""What became of a change: see :class:`Outcome`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one change.

    Attributes:
        state: ``done``: it reads back; ``same``: there was nothing to do; ``pending``: only planned; ``not-done``: the
            earlier value is still there; ``other``: it reads back differently; ``unknown``: the server does not
            answer; ``skipped``: not begun, because something before it failed.
        now: the current value, if it was read. reason: why it is not done.
    """

    change: ValueChange
    state: str
    now: Value = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """One value of one server, as machine output has it.

    ``before`` and ``after`` are null for no value.
    """

    kind: str
    name: str
    setting: str | None  # of what has several
    before: Any
    after: Any
    state: str
    reason: str | None
    cluster: str | None  # null of a name server
    server: str

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a command will change and, once carried out, what it has changed.

    Attributes:
        changes: for all places that the command addresses, including those already as wanted.
        warnings: what a person should know before saying yes.
        effect: what the change means, for the question, such as the number of skipped messages.
        settle: seconds to wait before reading back, where others may write meanwhile.
        patience: seconds in which a written value must be there; None for :data:`PATIENCE`.
        undoes: the journal that is undone.
        blocked: why it must not be carried out.
        outcomes: set once it was carried out. journal: its path, once there is one.
    """

    target: str
    command: str
    changes: tuple[ValueChange, ...]
    warnings: tuple[str, ...] = ()
    effect: str | None = None
    settle: float = 0.0
    patience: float | None = None
    undoes: Journal | None = None
    blocked: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = field(default=())
    journal: str | None = None

    @property
    def needed(self) -> tuple[ValueChange, ...]:
        """The changes whose value differs."""
        return tuple(change for change in self.changes if change.before != change.after)

    @property
    def can_be_undone(self) -> bool:
        """Whether undo can put back any of it, and nothing of it stays for ever."""
        return _can_be_undone(self.changes) and all(
            KINDS[change.place.kind].why_stays(change) is None for change in self.needed
        )

    @property
    def applied(self) -> bool:
        """Whether it was carried out, completely or in part."""
        return bool(self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The outcomes that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.state not in (DONE, SAME))

    def rows(self) -> list[ChangeRow]:
        """A row for each value."""
        outcomes = self.outcomes or [
            Outcome(change=change, state=SAME if change.before == change.after else PENDING) for change in self.changes
        ]
        return [row for outcome in outcomes for row in _rows(outcome)]

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {
            "target": self.target,
            "command": self.command,
            "changes": [row.to_dict() for row in self.rows()],
            "warnings": list(self.warnings),
            "applied": self.applied,
            "journal": self.journal,
        }


def _can_be_undone(changes: Iterable[ValueChange]) -> bool:
    return any(change.place.kind not in KINDS or KINDS[change.place.kind].undone for change in changes)


def _rows(outcome: Outcome) -> Iterable[ChangeRow]:
    change, kind = outcome.change, KINDS[outcome.change.place.kind]
    before, after = kind.show(change.before), kind.show(change.after)
    pairs: list[tuple[str | None, Any, Any]] = [(None, before, after)]
    if kind.fields and before != after:
        olds, news = before or {}, after or {}
        names = {**olds, **news}
        pairs = [(name, olds.get(name), news.get(name)) for name in names if olds.get(name) != news.get(name)]
    place = change.place
    for setting, old, new in pairs:
        yield ChangeRow(
            kind=place.kind, name=" ".join(place.name), setting=setting, before=old, after=new, state=outcome.state,
            reason=outcome.reason, cluster=place.cluster, server=place.server,
        )  # fmt: skip


# -- servers and values -----------------------------------------------------------------------------------------------


class Servers:
    """The servers of a cluster, by the names used in places.

    Args:
        nodes: the masters, whose slaves follow them, the name servers, and where they are needed, the controllers.

    Attributes:
        kinds: how values are read and written, for one run.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {(node.cluster or None, node.name): node for node in nodes}
        self.kinds = {name: kind() for name, kind in KINDS.items()}

    @classmethod
    async def of(cls, questions: Questions, changes: Iterable[ValueChange] = ()) -> "Servers":
        """The servers that exist now.

        Args:
            changes: if one of them is at a controller, these servers include the controllers.

        Raises:
            ClientError, RemotingError: as :meth:`Questions.nodes`; or there is no controller.
        """
        masters = [node for node in await questions.nodes() if node.is_master]
        if any(KINDS[change.place.kind].at_controllers for change in changes):
            controllers = await find_controllers(questions)
            masters += [*controllers, await find_leader(questions, controllers)]
        return cls([*masters, *questions.name_servers()])

    def of_place(self, place: Place) -> Node:
        """The server of a place.

        Raises:
            ClientError: there is none.
        """
        node = self._nodes.get((place.cluster, place.server))
        if node is None:
            what = "server" if place.cluster is None else f"master of broker {place.server}"
            raise ClientError(f"{place.server}: there is no {what} of that name now: nothing was changed")
        return node

    def place(self, kind: type[ValueKind], node: Node, *name: str) -> Place:
        """A place on a server."""
        return Place(kind=kind.name, cluster=node.cluster or None, server=node.name, name=name)


async def read_values(
    questions: Questions, servers: Servers, places: Iterable[Place]
) -> tuple[dict[Place, Value], set[Place]]:
    """The values of places, None for no value, and the places that could not be read.

    Raises:
        ClientError: one of the servers no longer exists.
    """
    groups: dict[tuple[Node, str], list[Place]] = defaultdict(list)
    for place in dict.fromkeys(places):
        groups[servers.of_place(place), place.kind].append(place)

    async def fetch(key: tuple[Node, str]) -> dict[Place, Value]:
        node, kind = key
        current = await servers.kinds[kind].read(questions, node, [place.name for place in groups[key]])
        return {place: current.get(place.name) for place in groups[key]}

    tables = await questions.collect(groups, fetch)
    values = {place: value for table in tables.values() for place, value in table.items()}
    return values, {place for group in groups.values() for place in group} - values.keys()


async def need_values(questions: Questions, servers: Servers, places: Iterable[Place]) -> dict[Place, Value]:
    """Like :func:`read_values`, but none may be missing.

    Raises:
        ClientError: one is.
    """
    values, missing = await read_values(questions, servers, places)
    if missing:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed")
    return values


# -- carrying out -----------------------------------------------------------------------------------------------------


def carry_out_plan(target: Target, plan: Plan, folder: str | None, warn: Callable[[str], None]) -> Plan:
    """Carry out a plan, and read the values back.

    Args:
        folder: where the journal is kept; None for the default.
        warn: called with what could not be read back.

    Raises:
        Refused: something has changed since the plan was made, or must not be changed, or there is no place for the
            journal. Nothing was changed.
        ClientError, RemotingError: a server does not answer before the first request; nothing was changed.
        Interrupted: a signal came; some values may have changed.
    """
    if plan.blocked:
        raise Refused(f"{'; '.join(plan.blocked)}: nothing was changed")
    journals: list[Journal] = []
    came: list[int] = []

    async def work(questions: Questions) -> Plan:
        with _cancelled_by_signals(came):
            return await _carry_out(questions, target, plan, folder, journals)

    try:
        return ask(target, warn, work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        if not journals:
            raise KeyboardInterrupt from None
        kinds: dict[int, type[Interrupted]] = {signal.SIGTERM: Terminated, signal.SIGHUP: HungUp}
        kind = kinds.get(came[0] if came else signal.SIGINT, Interrupted)
        raise kind(
            f"interrupted, and some of it may be written: run the same again to finish it, or "
            f"{command_line('undo', plan.target)} to take it back; what was before is in {journals[0].path}"
        ) from None


@contextmanager
def _cancelled_by_signals(came: list[int]) -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP cancel the task, as SIGINT does under asyncio; the list receives them."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()

    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _carry_out(
    questions: Questions, target: Target, plan: Plan, folder: str | None, journals: list[Journal]
) -> Plan:
    servers = await Servers.of(questions, plan.changes)
    values = await need_values(questions, servers, (change.place for change in plan.changes))
    plan = replace(plan, changes=tuple(_as_it_is(change, values[change.place]) for change in plan.changes))
    for change in plan.changes:
        if values[change.place] != change.before:
            text = f"{_name(change.place)} has changed since the plan was made: nothing was changed"
            raise Refused(f"{text}; make a new one")
    await check_allowed(questions, servers, plan.needed)
    older = [] if plan.undoes else [journal for journal in find_journals(folder, target) if journal.state == BEGUN]
    undoes = None if plan.undoes is None else plan.undoes.path
    journals.append(begin(folder, target, plan.command, _with_first(plan.changes, older), undoes=undoes))
    places = {change.place for change in plan.changes}
    for journal in older:
        if journal.undoes is None and {change.place for change in journal.changes} <= places:
            journal.mark(CONTINUED)
    failures = await _write(questions, servers, plan.needed)
    outcomes = await _read_back(questions, servers, plan, failures)
    journals[0] = journals[0].mark(ENDED)
    done = replace(plan, outcomes=tuple(outcomes), journal=journals[0].path)
    if plan.undoes is not None and not done.failed:
        plan.undoes.mark(UNDONE)
    return done


def _as_it_is(change: ValueChange, now: Value) -> ValueChange:
    """The change of a value that moves by itself, from its current value."""
    return replace(change, before=now) if KINDS[change.place.kind].moves else change


def _name(place: Place) -> str:
    return f"{place.server}: {place.kind} {' '.join(place.name)}"


def _with_first(changes: Iterable[ValueChange], older: Sequence[Journal]) -> list[ValueChange]:
    """The changes for the journal; where a run was interrupted, with the values before that run."""
    first: dict[Place, ValueChange] = {}
    for journal in older:
        for change in journal.changes if journal.undoes is None else ():
            first.setdefault(change.place, change)
    kept = []
    for change in changes:
        known = first.get(change.place)
        if known is not None and change.before in (known.before, known.after):
            change = replace(change, before=known.before)
        if change.before != change.after:
            kept.append(change)
    return kept


async def check_allowed(questions: Questions, servers: Servers, changes: Iterable[ValueChange]) -> None:
    """Check that values may be written now.

    Raises:
        Refused: one must not.
        ClientError: a server does not answer.
    """
    groups: dict[tuple[Node, str], list[ValueChange]] = defaultdict(list)
    for change in changes:
        groups[servers.of_place(change.place), change.place.kind].append(change)
    for (node, kind), group in groups.items():
        try:
            reason = await servers.kinds[kind].why_not(questions, node, group)
        except Unanswered:
            raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed") from None
        if reason is not None:
            raise Refused(f"{reason}; nothing was changed")


async def _write(questions: Questions, servers: Servers, changes: Sequence[ValueChange]) -> dict[Place, str]:
    """Send the requests step by step; returns why some failed. A step is not begun if the previous one failed."""
    failures: dict[Place, str] = {}

    by_place = {change.place: change for change in changes}

    async def send(place: Place) -> None:
        change = by_place[place]
        try:
            await servers.kinds[change.place.kind].write(questions, servers.of_place(change.place), change)
        except Unanswered:
            failures[change.place] = "; ".join(questions.reasons())
        except (BrokerError, RemotingError) as err:
            failures[change.place] = str(err)

    for step in sorted({change.step for change in changes}):
        if failures:
            break
        await questions.collect([change.place for change in changes if change.step == step], send)
    return failures


async def _read_back(
    questions: Questions, servers: Servers, plan: Plan, failures: Mapping[Place, str]
) -> list[Outcome]:
    if plan.settle:
        await asyncio.sleep(plan.settle)
    places = [change.place for change in plan.needed]
    values, missing = await read_values(questions, servers, places)
    loop = asyncio.get_running_loop()
    end = loop.time() + (PATIENCE if plan.patience is None else plan.patience)
    late = {change.place: change.after for change in plan.needed if change.place not in failures}
    while loop.time() < end and any(values.get(place) != after for place, after in late.items()):
        await asyncio.sleep(_PAUSE)
        values, missing = await read_values(questions, servers, places)
    last = max((change.step for change in plan.needed if change.place in failures), default=None)
    return [_outcome(change, values, missing, failures, last) for change in plan.changes]


def _outcome(
    change: ValueChange,
    values: Mapping[Place, Value],
    missing: Iterable[Place],
    failures: Mapping[Place, str],
    failed_step: int | None,
) -> Outcome:
    place, reason = change.place, failures.get(change.place)
    if change.before == change.after:
        return Outcome(change=change, state=SAME, now=change.after)
    if place in missing:
        return Outcome(change=change, state=UNKNOWN, reason=reason or "it could not be read back")
    now = values[place]
    if now == change.after:
        return Outcome(change=change, state=DONE, now=now)
    if reason is None and KINDS[place.kind].went_on(change, now):
        return Outcome(change=change, state=DONE, now=now, reason=f"its consumers have gone on from there to {now}")
    if failed_step is not None and change.step > failed_step:
        return Outcome(change=change, state=SKIPPED, now=now, reason="not begun, because something before it failed")
    apart = KINDS[place.kind].tell_apart(now, change.after)
    if now == change.before:
        if KINDS[place.kind].undone and not KINDS[place.kind].moves:
            apart = "the old value is back"
        return Outcome(change=change, state=KEPT, now=now, reason=reason or f"it did not stick: {apart}")
    return Outcome(change=change, state=OTHER, now=now, reason=reason or f"it did not stick: {apart}")


# -- undo -------------------------------------------------------------------------------------------------------------


def last_journal(target: Target, folder: str | None) -> Journal | None:
    """The journal that undo reverts: the newest that is not undone yet, of what can be.

    Raises:
        UnreadableStore, CorruptFile: journals cannot be read.
    """
    candidates = [
        journal
        for journal in find_journals(folder, target)
        if journal.undoes is None and journal.state in (BEGUN, ENDED) and _can_be_undone(journal.changes)
    ]
    return candidates[-1] if candidates else None


def need_no_undo(plan: Plan) -> None:
    """Note that a journal needs no undo, because everything is as it was before.

    Raises:
        Refused: the journal cannot be written.
    """
    if plan.undoes is not None and not plan.needed and not plan.blocked:
        plan.undoes.mark(UNDONE)


def plan_undo(target: Target, journal: Journal, *, force: bool, warn: Callable[[str], None]) -> Plan:
    """The plan that reverts a journal.

    Args:
        force: also revert values that have changed since.

    Raises:
        ClientError, RemotingError: a server does not answer.
        Refused: the journal is of a newer release.
    """
    unknown = {change.place.kind for change in journal.changes} - KINDS.keys()
    if unknown:
        raise Refused(f"{journal.path}: has {', '.join(sorted(unknown))}, which this release cannot put back")

    async def work(questions: Questions) -> Plan:
        servers = await Servers.of(questions, journal.changes)
        values = await need_values(questions, servers, (change.place for change in journal.changes))
        last = max((change.step for change in journal.changes), default=0)
        changes, warnings, blocked = [], [], []
        for change in reversed(journal.changes):
            now, kind = values[change.place], KINDS[change.place.kind]
            change = replace(
                change, before=kind.complete(change.before, now), after=kind.complete(change.after, now)
            )  # fmt: skip
            if not kind.undone or now == change.before:
                continue
            if change.before is None and kind.stays:
                warnings.append(f"{_name(change.place)}: there was none before, and no server forgets one: it stays")
                continue
            halfway = kind.is_halfway(change, now)
            if (reason := kind.why_stays(change)) is not None:
                blocked.append(f"{_name(change.place)}: {reason}")
            elif now != change.after and not halfway and not force:
                blocked.append(f"{_name(change.place)} has changed since")
            changes.append(ValueChange(place=change.place, before=now, after=change.before, step=last - change.step))
        orders = [KINDS[change.place.kind].tell_order(change) for change in changes]
        warnings += dict.fromkeys(order for order in orders if order is not None)
        changes += await _find_stale_routes(questions, servers, changes)
        if journal.command == "topic delete":
            warnings.append("topics come back without messages, and groups begin there as with new ones")
        return Plan(
            target=target.text, command="undo", changes=tuple(changes), warnings=tuple(warnings), undoes=journal,
            blocked=tuple(blocked), effect=f"as before {journal.command}, {counted(len(changes), 'entry', 'entries')}",
        )  # fmt: skip

    return ask(target, warn, work)


async def _find_stale_routes(
    questions: Questions, servers: Servers, changes: Sequence[ValueChange]
) -> list[ValueChange]:
    """Routes of topics that no broker has after these changes; name servers keep them until they are removed there.

    Raises:
        ClientError: a name server does not answer.
    """
    gone: dict[str, set[str]] = defaultdict(set)
    for change in changes:
        if change.place.kind in ("topic", "static-topic") and change.after is None:
            gone[change.place.name[0]].add(change.place.server)
    kind, step = KINDS["route"], max((change.step for change in changes), default=0) + 1
    places = [servers.place(kind, node, topic) for topic in gone for node in questions.name_servers()]
    routes = await need_values(questions, servers, places) if places else {}
    others = {
        place.name[0] for place, brokers in routes.items() if set(brokers or ()) - gone[place.name[0]]
    }  # some brokers keep it
    return [
        ValueChange(place=place, before=brokers, after=None, step=step)
        for place, brokers in routes.items()
        if brokers and place.name[0] not in others
    ]


def make_plan(
    target: Target, work: Callable[[Questions], Coroutine[Any, Any, Plan]], warn: Callable[[str], None]
) -> Plan:
    """A plan for the cluster as it is now; nothing is changed.

    Raises:
        ClientError, RemotingError: a server does not answer.
    """
    return ask(target, warn, work)
