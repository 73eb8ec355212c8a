"""Plans for static topics (5.x): creating them, adding queues, and moving queues to other brokers.

Source: remoting.protocol.statictopic.TopicQueueMappingUtils, tools.admin.MQAdminUtils (5.3.3, 5.5.0).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from formats.config.files_of_5 import LogicQueueMapping, TopicQueueMapping
from formats.topics import Perm
from rmqtool.admin.changes.change import Place, Value, ValueChange
from rmqtool.admin.changes.journal import BEGUN, Journal
from rmqtool.admin.changes.plans import Where
from rmqtool.admin.changes.run import Plan, Servers, need_values
from rmqtool.admin.changes.static_topics import MAPPING, StaticTopicParts, fetch_end, plain
from rmqtool.admin.live.questions import Node, Questions
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import BadValue, Refused
from rmqtool.rules.sending import Rejected, check_topic
from rmqtool.rules.static_topics import BLOCK, chains_of, is_decided, is_pending, round_up, share_out, static_offset
from rmqtool.words import command_line, counted

_EPOCH_STEP = 1000
Chain = tuple[LogicQueueMapping, ...]


class _Parts:
    """What the brokers of a cluster hold of a topic, and what they are to hold."""

    def __init__(self, topic: str, pairs: Sequence[tuple[Place, Value]]) -> None:
        self.topic, self.pairs = topic, pairs
        self.mappings = {
            place.server: TopicQueueMapping.read(value[MAPPING])
            for place, value in pairs
            if value is not None and value[MAPPING] is not None
        }
        ordinary = [place.server for place, value in pairs if value is not None and value[MAPPING] is None]
        if ordinary:
            raise Refused(f"topic {topic}: is an ordinary topic on {', '.join(ordinary)}: nothing was changed")
        known = self.mappings.values()
        self.chains: dict[int, Chain] = chains_of(known)
        self.total = max((mapping.total_queues for mapping in known), default=0)
        self._queues = {place.server: 0 if value is None else int(value["writeQueueNums"]) for place, value in pairs}
        for item in (item for chain in self.chains.values() for item in chain):
            if (name := item.broker_name or "") in self._queues:
                self._queues[name] = max(self._queues[name], item.queue_id + 1)
        self.touched: dict[int, set[str]] = {}  # queue id: brokers whose ranges of it change
        self.closed: set[str] = set()  # brokers that stop leading a queue
        for queue_id, chain in self.chains.items():
            if is_pending(queue_id, chain, self.mappings):
                self.touched[queue_id] = {item.broker_name or "" for item in chain[-2:]}

    def leaders(self) -> dict[str, int]:
        """How many queues each broker leads."""
        counts: dict[str, int] = {}
        for chain in self.chains.values():
            name = chain[-1].broker_name or ""
            counts[name] = counts.get(name, 0) + 1
        return counts

    def add(self, queue_id: int, broker: str) -> None:
        """Begin a range of a queue on a broker."""
        chain = self.chains.get(queue_id, ())
        item = LogicQueueMapping(
            gen=chain[-1].gen + 1 if chain else 0,
            queue_id=self._queues[broker],
            broker_name=broker,
            logic_offset=-1 if chain else 0,
        )
        self._queues[broker] += 1
        self.chains[queue_id] = (*chain, item)
        changed = {broker}
        if chain:
            changed.add(chain[-1].broker_name or "")
            self.closed.add(chain[-1].broker_name or "")
        self.touched[queue_id] = self.touched.get(queue_id, set()) | changed

    async def decide(self, questions: Questions, servers: Mapping[str, Node], block: int) -> None:
        """Decide where new ranges begin: behind what the ranges before them may still get."""
        for queue_id in self.touched:
            chain = self.chains[queue_id]
            if is_decided(chain[-1]):
                continue
            before = chain[-2]
            node = servers.get(before.broker_name or "")
            if node is None:
                raise ClientError(f"queue {queue_id}: broker {before.broker_name} is away: nothing was changed")
            end = static_offset(before, await fetch_end(questions, node, self.topic, before))
            self.chains[queue_id] = (*chain[:-1], replace(chain[-1], logic_offset=round_up(end, block)))

    def changes(self, total: int) -> list[ValueChange]:
        """The changes of all brokers; those that stop leading a queue come first."""
        if not self.touched and total == self.total and self._agree():
            return [ValueChange(place=place, before=value, after=value) for place, value in self.pairs]
        epochs = [mapping.epoch + _EPOCH_STEP for mapping in self.mappings.values()]
        epoch = max([time.time_ns() // 1_000_000, *epochs])
        changes = []
        for place, value in self.pairs:
            name = place.server
            known = self.mappings.get(name, TopicQueueMapping(topic=self.topic, broker_name=name))
            hosted = dict(known.hosted_queues)
            for queue_id, brokers in self.touched.items():
                if name in brokers:
                    hosted[queue_id] = self._as_known_to(name, self.chains[queue_id])
            mapping = replace(
                known, epoch=epoch, total_queues=total, current_ids={}, hosted_queues=dict(sorted(hosted.items()))
            )
            number = max(self._queues[name], 0 if value is None else value["readQueueNums"])
            after = {
                "readQueueNums": number,
                "writeQueueNums": self._queues[name],
                "perm": int(Perm.READ | Perm.WRITE) if value is None else value["perm"],
                MAPPING: plain(mapping),
            }
            gains = any(self.chains[queue_id][-1].broker_name == name for queue_id in self.touched)
            step = 0 if name in self.closed and not gains else 1 if gains else 2
            changes.append(ValueChange(place=place, before=value, after=after, step=step))
        return changes

    def _as_known_to(self, broker: str, chain: Chain) -> Chain:
        """A broker that no longer leads a queue need not know where the new range begins, which may change again."""
        if len(chain) > 1 and chain[-1].broker_name != broker:
            return (*chain[:-1], replace(chain[-1], logic_offset=-1))
        return chain

    def _agree(self) -> bool:
        return len(self.mappings) == len(self.pairs) and len({part.epoch for part in self.mappings.values()}) <= 1


async def _gather(questions: Questions, where: Where, topic: str) -> tuple[_Parts, dict[str, Node], list[str]]:
    """(the parts of all brokers, all masters by name, the brokers to use)."""
    masters = await Where(target=where.target).masters(questions)
    wanted = [node.name for node in await where.masters(questions)]
    servers = await Servers.of(questions)
    places = [servers.place(StaticTopicParts, node, topic) for node in masters]
    values = await need_values(questions, servers, places)
    parts = _Parts(topic, [(place, values[place]) for place in places])
    return parts, {node.name: node for node in masters}, wanted


def _check_complete(parts: _Parts, nodes: Mapping[str, Node], where: Where, begun: Iterable[Journal] = ()) -> None:
    """Check that no broker with queues of the topic is away: they would get a second leader.

    Args:
        begun: journals of runs that were interrupted; they say which brokers were to get a part.

    Raises:
        Refused: one is, or may be.
    """
    topic = parts.topic
    if away := sorted(parts.leaders().keys() - nodes.keys()):
        raise Refused(f"topic {topic}: {', '.join(away)} leads queues of it, and is away: nothing was changed")
    missing = parts.total - len(parts.chains)
    if missing and not any(_of_all(journal, topic, nodes) for journal in begun):
        undo = command_line("undo", where.target.text)
        raise Refused(
            f"topic {topic}: {counted(missing, 'queue is', 'queues are')} on no broker that is there, and one may be "
            f"away: nothing was changed; if its creation was interrupted, {undo} takes it back"
        )


def _of_all(journal: Journal, topic: str, nodes: Mapping[str, Node]) -> bool:
    """Whether an interrupted run was to create a topic, on brokers that are all there."""
    servers = {
        change.place.server
        for change in journal.changes
        if (change.place.kind, change.place.name) == (StaticTopicParts.name, (topic,))
    }
    return journal.state == BEGUN and journal.undoes is None and bool(servers) and servers <= nodes.keys()


async def plan_static_creation(
    questions: Questions, where: Where, topic: str, queues: int, block: int = BLOCK, *, begun: Iterable[Journal] = ()
) -> Plan:
    """Create a static topic, or add queues to it; each broker of the cluster gets its part, even if without a queue.

    Args:
        where: the brokers that lead new queues.
        begun: journals of interrupted runs.

    Raises:
        BadValue: not a name of a topic.
        Refused: it is an ordinary topic, or has more queues, or a broker that may lead some is away.
        ClientError, RemotingError: a server does not answer.
    """
    try:
        check_topic(topic, sending=False)
    except Rejected as err:
        raise BadValue(str(err)) from err
    parts, nodes, wanted = await _gather(questions, where, topic)
    if parts.total > queues:
        raise Refused(f"topic {topic}: has {counted(parts.total, 'queue')}, and a static topic never loses one")
    _check_complete(parts, nodes, where, begun)
    for queue_id in range(queues):
        if queue_id not in parts.chains:
            counts = parts.leaders()
            parts.add(queue_id, min(wanted, key=lambda name: (counts.get(name, 0), name)))
    await parts.decide(questions, nodes, block)
    return Plan(
        target=where.target.text, command="static-topic create", changes=tuple(parts.changes(queues)),
    )  # fmt: skip


async def plan_static_remap(questions: Questions, where: Where, topic: str, block: int = BLOCK) -> Plan:
    """Move the queues of a static topic to brokers, as few as possible, so that each leads as many as the others.

    Messages stay where they are: consumers read them through the new leaders.

    Args:
        where: the brokers that lead the queues afterwards.
        block: offsets of a moved queue go on at a multiple of this.

    Raises:
        Refused: no broker has it, or it is an ordinary topic, or a broker that may lead queues is away.
        ClientError, RemotingError: a server does not answer.
    """
    parts, nodes, wanted = await _gather(questions, where, topic)
    if not parts.mappings:
        raise Refused(f"topic {topic}: no broker has it; {command_line('static-topic', 'create')} makes it")
    _check_complete(parts, nodes, where)
    quota = share_out(len(parts.chains), parts.leaders(), wanted)
    homeless = []
    for queue_id, chain in parts.chains.items():
        leader = chain[-1].broker_name or ""
        if quota.get(leader, 0) > 0:
            quota[leader] -= 1
        else:
            homeless.append(queue_id)
    free = [name for name, number in sorted(quota.items()) for _ in range(number)]
    for queue_id, broker in zip(homeless, free, strict=True):
        parts.add(queue_id, broker)
    await parts.decide(questions, nodes, block)
    warnings = []
    if homeless:
        warnings.append(
            f"{counted(len(homeless), 'queue moves', 'queues move')}; "
            "clients that have an older route are refused until they ask for a new one, within half a minute; "
            f"for consumers, offsets of a moved queue go on at a multiple of {block}"
        )
    return Plan(
        target=where.target.text, command="static-topic remap", changes=tuple(parts.changes(parts.total)),
        warnings=tuple(warnings), effect=f"{counted(len(homeless), 'queue moves', 'queues move')}",
    )  # fmt: skip
