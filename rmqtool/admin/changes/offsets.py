"""Offsets of a group of a live cluster: the same plans as for a store, broker by broker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.shapes import TopicOffset
from formats.topics import RETRY_PREFIX
from rmqtool.admin.changes.change import ValueChange
from rmqtool.admin.changes.plans import Where
from rmqtool.admin.changes.run import Plan, Servers
from rmqtool.admin.changes.tables import Offsets, offsets_of
from rmqtool.admin.live.questions import Node, Questions, Unanswered
from rmqtool.admin.live.tables import fetch_clients, fetch_groups, fetch_offsets, fetch_ranges, fetch_topics
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import row_dict
from rmqtool.errors import BadValue, Refused
from rmqtool.rules.sending import Rejected, check_group
from rmqtool.services.consumers.offset_plan import OffsetMove, OffsetTarget, PlanRow, effect_of, plan_move
from rmqtool.words import command_line, counted

SETTLE = 6.0
"""Seconds until the clients of a group have written their offsets again, which they do every 5."""
_FIRST, _END = 0, -1  # ms; the broker itself uses it for the end of a queue
Key = tuple[str, int]  # topic and queue id


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOffsetMove(OffsetMove):
    """One offset to set on one broker."""

    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChanges:
    """The changes of a group's offsets: rows and plan."""

    moves: list[LiveOffsetMove]
    plan: Plan


@dataclass(frozen=True)
class _Broker:
    """What a plan needs to know of one broker."""

    node: Node
    offsets: Mapping[Key, int]  # of the group
    ranges: Mapping[Key, TopicOffset]
    topics: frozenset[str]


class Resets:
    """Makes plans for one group.

    Args:
        clamp: move an offset outside its queue's range to the nearest end instead of refusing it.
    """

    def __init__(self, questions: Questions, where: Where, group: str, *, clamp: bool) -> None:
        self._questions, self._where, self._group, self._clamp = questions, where, group, clamp

    async def reset(self, topics: Sequence[str], queues: Sequence[int], to: OffsetTarget) -> OffsetChanges:
        """Move the offsets, by the rules of :func:`rmqtool.services.consumers.offset_plan.reset`.

        Raises:
            Refused: an offset would be out of its queue's range, or not last.
            ClientError, RemotingError: a server does not answer.
        """
        wanted: list[tuple[_Broker, Key, OffsetTarget]] = []
        for broker in await self._brokers(self._group, topics):
            own = {topic for topic, _queue in broker.offsets}
            chosen = own - {RETRY_PREFIX + self._group}
            if topics:
                chosen = {topic for topic in own if any(fnmatchcase(topic, glob) for glob in topics)}
                chosen |= broker.topics & {*topics}
            keys = {key for key in broker.offsets if key[0] in chosen}
            keys |= {key for key, queue in broker.ranges.items() if key[0] in chosen and queue.max_offset > 0}
            wanted += [(broker, key, to) for key in sorted(keys) if not queues or key[1] in queues]
        since = {"earliest": _FIRST, "latest": _END, "time": to.value}.get(to.kind) if not queues else None
        return await self._changes("group reset", await self._moves(wanted), since)

    async def from_rows(self, rows: Sequence[PlanRow]) -> OffsetChanges:
        """Set the offsets of a file, whose rows name their brokers.

        Raises:
            BadValue: a row of another group, or of no broker.
            Refused: an offset has moved since the file was made, or there is no such queue.
            ClientError, RemotingError: a server does not answer.
        """
        brokers = {
            broker.node.name: broker for broker in await self._brokers(self._group, [row.key[0] for row in rows])
        }
        moves = []
        for row in rows:
            (topic, group, queue_id), where = row.key, f"line {row.line}: "
            if group != self._group:
                raise BadValue(f"{where}column group: {topic} queue {queue_id}: of group {group!r}, not {self._group}")
            name = row.broker if row.broker is not None or len(brokers) != 1 else next(iter(brokers))
            broker = brokers.get(name or "")
            if broker is None:
                raise BadValue(f"{where}column brokerName: {name!r} is none of {', '.join(brokers)}")
            if (topic, queue_id) not in {*broker.offsets, *broker.ranges}:
                raise Refused(f"{where}broker {name} has no queue {queue_id} of topic {topic!r}")
            now = broker.offsets.get((topic, queue_id))
            if row.before is not None and now != row.before:
                text = f"{topic} queue {queue_id}: is at {now} now, not at {row.before} as in the plan: make a new plan"
                raise Refused(where + text)
            moves.append(await self._move(broker, (topic, queue_id), OffsetTarget("offset", row.offset)))
        return await self._changes("group reset", moves, None)

    async def clone(self, source: str, topics: Sequence[str]) -> OffsetChanges:
        """Give the group the offsets of another, except those of its retry topic.

        Raises:
            Refused: an offset is out of its queue's range, or would not last.
            ClientError, RemotingError: a server does not answer.
        """
        own = {broker.node: broker for broker in await self._brokers(self._group, topics)}
        moves = []
        for other in await self._brokers(source, topics):
            mine = replace(own[other.node], ranges={**own[other.node].ranges, **other.ranges})
            for (topic, queue_id), offset in sorted(other.offsets.items()):
                if topic != RETRY_PREFIX + source and (not topics or any(fnmatchcase(topic, glob) for glob in topics)):
                    moves.append(await self._move(mine, (topic, queue_id), OffsetTarget("offset", offset)))
        return await self._changes("group clone", moves, None)

    # -- parts --------------------------------------------------------------------------------------------------------

    async def _brokers(self, group: str, topics: Sequence[str]) -> list[_Broker]:
        """The offsets of a group, and the ranges of its queues and of topics, on each broker."""
        questions = self._questions
        masters = await self._where.masters(questions)
        offsets, tables = await fetch_offsets(questions, masters), await fetch_topics(questions, masters)
        if len(offsets) < len(masters) or len(tables) < len(masters):
            raise self._unanswered()
        own = {
            node: {(topic, int(queue)): offset for (_group, topic, queue), offset in offsets_of(rows, group).items()}
            for node, rows in offsets.items()
        }
        wanted = [
            (node, topic)
            for node in masters
            for topic in sorted(({topic for topic, _queue in own[node]} | {*topics}) & tables[node].keys())
        ]
        ranges = await fetch_ranges(questions, wanted)
        if ranges.missing:
            raise self._unanswered()
        return [
            _Broker(
                node,
                own[node],
                {
                    (topic, number): queue
                    for place, topic in wanted
                    if place == node
                    for number, queue in ranges.of(node, topic).items()
                },
                frozenset(tables[node]),
            )
            for node in masters
        ]

    def _unanswered(self) -> ClientError:
        return ClientError(f"{'; '.join(self._questions.reasons())}: nothing was changed")

    async def _moves(self, wanted: Sequence[tuple[_Broker, Key, OffsetTarget]]) -> list[LiveOffsetMove]:
        """The rows in their order; questions about times are in flight together, with a limit.

        Raises:
            Refused: an offset would be out of its queue's range.
            ClientError: a broker does not answer.
        """
        try:
            moves = await self._questions.collect(range(len(wanted)), lambda at: self._move(*wanted[at]))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return list(moves.values())

    async def _move(self, broker: _Broker, key: Key, to: OffsetTarget) -> LiveOffsetMove:
        (topic, queue_id), before = key, broker.offsets.get(key)
        queue = broker.ranges.get(key)
        low, high = (max(queue.min_offset, 0), max(queue.max_offset, 0)) if queue is not None else (0, 0)
        wanted = {
            "earliest": low, "latest": high, "offset": to.value, "shift": (before or 0) + to.value,
        }.get(to.kind)  # fmt: skip
        if wanted is None:
            wanted = await self._at_time(broker.node, key, to.value, queue)
        move = plan_move(
            (topic, self._group, queue_id), before, wanted, low, high, clamp=self._clamp, where=f"{broker.node.name}: "
        )
        return LiveOffsetMove(**row_dict(move), brokerName=broker.node.name)

    async def _at_time(self, node: Node, key: Key, timestamp: int, queue: TopicOffset | None) -> int:
        if queue is None or queue.max_offset <= 0:
            return 0
        low, high = max(queue.min_offset, 0), queue.max_offset
        if timestamp > queue.last_update_timestamp:
            return high
        header = h.QueueTime(topic=key[0], queue_id=key[1], timestamp=timestamp)
        try:
            answer = await self._questions.fetch_header(
                node, C.SEARCH_OFFSET_BY_TIMESTAMP, h.Offset, header, what="offsets of times are"
            )
        except Unanswered:
            raise self._unanswered() from None
        return min(max(answer.offset, low), high)

    async def _changes(self, command: str, moves: list[LiveOffsetMove], since: int | None) -> OffsetChanges:
        """The plan of these rows.

        Args:
            since: ms; the time that clients of a group are sent if their broker leaves the reset to them; None if there
                is no such request, because only some queues are reset.
        """
        questions = self._questions
        servers = await Servers.of(questions)
        nodes = {node.name: node for node in await self._where.masters(questions)}
        warnings, online, kind = [], False, Offsets()
        tells: dict[str, bool] = {}
        try:
            configured = await questions.need(fetch_groups(questions, nodes.values()), nodes)
            for name in dict.fromkeys(move.brokerName for move in moves):
                node = nodes[name]
                clients = await fetch_clients(questions, node, self._group)
                sets = await kind.sets_offsets(questions, node)
                online |= bool(clients)
                tells[name] = bool(clients) and not sets and since is not None
                if clients:
                    warnings.append(f"{name}: the group is online with {counted(len(clients), 'client')}")
                if sets and self._group not in configured[node]:
                    raise Refused(
                        f"broker {name} has no settings of group {self._group}: {command_line('group', 'create')} first"
                    )
        except Unanswered:
            raise self._unanswered() from None
        fresh = sum(move.consumerOffset is None for move in moves)
        if fresh:
            warnings.append(
                f"{counted(fresh, 'queue has', 'queues have')} no offset of the group: undo leaves the new one there, "
                "as brokers forget none"
            )
        changes = [
            ValueChange(
                place=servers.place(Offsets, nodes[move.brokerName], move.group, move.topic, str(move.queueId)),
                before=move.consumerOffset,
                after=move.newOffset,
                since=since if tells[move.brokerName] else None,
            )
            for move in moves
        ]
        plan = Plan(
            target=self._where.target.text, command=command, changes=tuple(changes), warnings=tuple(warnings),
            effect=effect_of(moves), settle=SETTLE if online else 0.0,
        )  # fmt: skip
        return OffsetChanges(moves=moves, plan=plan)


def check_name(group: str) -> None:
    """Refuse an invalid group name.

    Raises:
        BadValue: the name is invalid, with the broker's reason.
    """
    try:
        check_group(group)
    except Rejected as err:
        raise BadValue(f"group {group[:80]!r}: {err}") from err
