"""Plans of single commands: topics, groups, settings of brokers, and what name servers hold."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.remoting.shapes import TopicOffset
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, Perm
from rmqtool.admin.changes.access import Rules, Users
from rmqtool.admin.changes.change import Place, Value, ValueChange
from rmqtool.admin.changes.modes import ColdThresholds, Modes
from rmqtool.admin.changes.name_servers import ORDER_TOPICS, KeyValues, Routes, WritePermissions
from rmqtool.admin.changes.run import Plan, Servers, check_allowed, need_values
from rmqtool.admin.changes.static_topics import StaticTopicParts
from rmqtool.admin.changes.tables import (
    GroupSettings,
    NameServerSettings,
    Offsets,
    Settings,
    TopicSettings,
    group_value,
    topic_value,
)
from rmqtool.admin.live.access import in_order
from rmqtool.admin.live.brokers import fetch_settings
from rmqtool.admin.live.questions import Node, Questions, Unanswered
from rmqtool.admin.live.static_topics import fetch_parts
from rmqtool.admin.live.tables import fetch_clients, fetch_offsets, fetch_ranges
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import BadValue, Refused
from rmqtool.rules.sending import Rejected, check_group, check_topic
from rmqtool.words import command_line, counted

Edit = Callable[[dict[str, Value]], dict[str, Value]]
CREATE, UPDATE, DELETE = "create", "update", "delete"
_NO_UNDO = "undo cannot bring it back, as brokers do not take the name"


@dataclass(frozen=True, kw_only=True)
class Where:
    """The servers that a command addresses.

    Attributes:
        brokers: names of brokers; empty for all of the target's cluster.
    """

    target: Target
    brokers: tuple[str, ...] = ()

    async def masters(self, questions: Questions) -> list[Node]:
        """The masters of these brokers.

        Raises:
            ClientError: a broker does not exist, or has no master.
            BadValue: there are several clusters, and none is named.
            RemotingError: no name server answers.
        """
        nodes = await questions.nodes()
        names = {node.name for node in nodes}
        if unknown := [name for name in self.brokers if name not in names]:
            raise ClientError(f"{self.target.text}: no broker {', '.join(unknown)}: it has {', '.join(sorted(names))}")
        wanted = [node for node in nodes if not self.brokers or node.name in self.brokers]
        clusters = sorted({node.cluster for node in wanted})
        if len(clusters) > 1:
            raise BadValue(f"{self.target.text}: has clusters {', '.join(clusters)}: name one, as in /{clusters[0]}")
        masters = [node for node in wanted if node.is_master]
        if headless := sorted({node.name for node in wanted} - {node.name for node in masters}):
            raise ClientError(f"broker {', '.join(headless)} has no master now: nothing was changed")
        return masters


async def _values(questions: Questions, servers: Servers, places: Sequence[Place]) -> list[tuple[Place, Value]]:
    values = await need_values(questions, servers, places)
    return [(place, values[place]) for place in places]


# -- topics -----------------------------------------------------------------------------------------------------------


async def plan_topic(questions: Questions, where: Where, topic: str, edit: Edit, *, create: bool, command: str) -> Plan:
    """Create a topic on brokers, or change it on those that have it.

    Args:
        edit: returns the new settings from existing ones, or those of a new topic.

    Raises:
        BadValue: not a name of a topic.
        Refused: it is there already, or nowhere.
        ClientError, RemotingError: a server does not answer.
    """
    if create and (reason := _why_no_topic(topic)):
        raise BadValue(reason)
    servers, masters = await Servers.of(questions), await where.masters(questions)
    pairs = await _values(questions, servers, [servers.place(TopicSettings, node, topic) for node in masters])
    new = topic_value(TopicConfig(topic_name=topic, read_queue_nums=8, write_queue_nums=8))
    changes = _edit(pairs, edit, new, create=create, what=f"topic {topic}")
    if reason := _why_no_topic(topic):
        raise Refused(f"topic {topic}: brokers refuse to change it: {reason}")
    await check_allowed(questions, servers, [change for change in changes if change.before != change.after])
    warnings = await warn_of_lost_queues(questions, servers, changes)
    return Plan(
        target=where.target.text, command=command, changes=tuple(changes), warnings=tuple(warnings),
    )  # fmt: skip


def _why_no_topic(name: str) -> str | None:
    """Why brokers take no topic of this name, although one may be there."""
    try:
        check_topic(name, sending=False)
    except Rejected as err:
        return str(err)
    return None


def _edit(
    pairs: Sequence[tuple[Place, Value]], edit: Edit, new: dict[str, Value], *, create: bool, what: str
) -> list[ValueChange]:
    there = [place.server for place, value in pairs if value is not None]
    kind = what.partition(" ")[0]
    if not create and not there:
        raise Refused(f"{what}: no broker has it; {command_line(kind, CREATE)} makes it")
    changes = [
        ValueChange(place=place, before=value, after=edit(new if value is None else value))
        for place, value in pairs
        if create or value is not None
    ]
    differing = [change.place.server for change in changes if change.before not in (None, change.after)]
    if create and differing:
        raise Refused(
            f"{what}: is on {', '.join(differing)} with other settings; {command_line(kind, UPDATE)} changes them"
        )
    return changes


async def warn_of_lost_queues(questions: Questions, servers: Servers, changes: Sequence[ValueChange]) -> list[str]:
    """Warnings of queues that nobody would read any more, although they have messages.

    Raises:
        ClientError: a broker does not tell what they have.
    """
    fewer = {
        servers.of_place(change.place): change
        for change in changes
        if change.before is not None and change.after["readQueueNums"] < change.before["readQueueNums"]
    }
    if not fewer:
        return []
    ranges = await fetch_ranges(questions, [(node, change.place.name[0]) for node, change in fewer.items()])
    if ranges.missing:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed")
    warnings = []
    for node, change in fewer.items():
        queues = ranges.of(node, change.place.name[0])
        left = sum(_count(queue) for number, queue in queues.items() if number >= change.after["readQueueNums"])
        if left:
            warnings.append(f"{node.name}: {counted(left, 'message')} in queues that consumers do not read any more")
    return warnings


def _count(queue: TopicOffset) -> int:
    return max(queue.max_offset, 0) - max(queue.min_offset, 0)


async def plan_topic_deletion(questions: Questions, where: Where, topic: str) -> Plan:
    """Delete a topic on brokers, and on the name servers if no other broker has it.

    Raises:
        Refused: no broker has it, or another one keeps queues of a static topic.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await Servers.of(questions), await where.masters(questions)
    parts = await fetch_parts(questions, every := await Where(target=where.target).masters(questions))
    static = [node for node, table in parts.items() if topic in table]
    if static and len(parts) < len(every):  # which may keep queues of it
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed")
    if static and (kept := [node.name for node in static if node not in masters]):
        raise Refused(f"topic {topic}: is a static topic, and has queues on {', '.join(kept)}: delete it there, too")
    kinds = {node: StaticTopicParts if node in static else TopicSettings for node in masters}
    pairs = await _values(questions, servers, [servers.place(kinds[node], node, topic) for node in masters])
    nodes = [servers.of_place(place) for place, value in pairs if value is not None]
    if not nodes:
        raise Refused(f"topic {topic}: no broker has it")
    changes = [ValueChange(place=place, before=value, after=None) for place, value in pairs if value is not None]
    routes = await _values(
        questions, servers, [servers.place(Routes, server, topic) for server in questions.name_servers()]
    )
    gone = {node.name for node in nodes}
    others = sorted({name for _place, brokers in routes for name in brokers or ()} - gone)
    if not others:
        changes += [
            ValueChange(place=place, before=brokers, after=None, step=1) for place, brokers in routes if brokers
        ]
    ranges = await fetch_ranges(questions, [(node, topic) for node in nodes])
    offsets = await fetch_offsets(questions, nodes)
    if ranges.missing or len(offsets) < len(nodes):
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed")
    messages = sum(_count(queue) for node in nodes for queue in ranges.of(node, topic).values())
    groups = sorted({row.group for rows in offsets.values() for row in rows if row.topic == topic})
    reason = _why_no_topic(topic)
    undo = "undo makes the topic again, but empty" if reason is None else f"{_NO_UNDO}: {reason}"
    warnings = [f"{counted(messages, 'message')} cannot be read any more; {undo}"]
    warnings += [f"it stays on {', '.join(others)}"] if others else []
    warnings += [f"consumed by {', '.join(groups)}"] if groups else []
    return Plan(
        target=where.target.text, command="topic delete", changes=tuple(changes), warnings=tuple(warnings),
        effect=f"{counted(messages, 'message is', 'messages are')} lost",
    )  # fmt: skip


def topic_edit(*, read: int | None, write: int | None, perm: int | None, attributes: Mapping[str, str | None]) -> Edit:
    """The settings of a topic with the options of a command applied; for attributes see :func:`settings_edit`."""
    changed = {"readQueueNums": read, "writeQueueNums": write, "perm": None if perm is None else int(perm)}
    return settings_edit({name: number for name, number in changed.items() if number is not None}, attributes)


def settings_edit(settings: Mapping[str, Value], attributes: Mapping[str, str | None]) -> Edit:
    """Settings with new values, by the names in the broker's file; an attribute that is None is removed."""

    def edit(value: dict[str, Value]) -> dict[str, Value]:
        kept = {**value["attributes"], **attributes}
        return {
            **value,
            **settings,
            "attributes": {name: text for name, text in kept.items() if text is not None},
        }

    return edit


# -- groups -----------------------------------------------------------------------------------------------------------


async def plan_group(questions: Questions, where: Where, group: str, edit: Edit, *, create: bool) -> Plan:
    """Create a group on brokers, or change it on those that have it.

    Raises:
        BadValue: not a name of a group.
        Refused: it is there already, or nowhere.
        ClientError, RemotingError: a server does not answer.
    """
    if create:
        try:
            check_group(group)
        except Rejected as err:
            raise BadValue(str(err)) from err
    servers, masters = await Servers.of(questions), await where.masters(questions)
    pairs = await _values(questions, servers, [servers.place(GroupSettings, node, group) for node in masters])
    new = group_value(SubscriptionGroup(group_name=group))
    changes = _edit(pairs, edit, new, create=create, what=f"group {group}")
    command = f"group {CREATE if create else UPDATE}"
    return Plan(target=where.target.text, command=command, changes=tuple(changes))


async def plan_group_deletion(questions: Questions, where: Where, group: str) -> Plan:
    """Delete a group with its offsets. Its retry topic and its dead letters stay.

    Raises:
        Refused: no broker has it, or its clients are online and would recreate it.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await Servers.of(questions), await where.masters(questions)
    pairs = await _values(questions, servers, [servers.place(GroupSettings, node, group) for node in masters])
    offsets = await fetch_offsets(questions, masters)
    if len(offsets) < len(masters):
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed")
    changes, count = [], 0
    for place, value in pairs:
        node = servers.of_place(place)
        rows = [row for row in offsets[node] if row.group == group]
        count += len(rows)
        changes += [
            ValueChange(
                place=servers.place(Offsets, node, group, row.topic, str(row.queue_id)), before=row.offset, after=None
            )
            for row in rows
        ]
        if value is not None:
            changes.append(ValueChange(place=place, before=value, after=None, step=1))
    if not any(value for _place, value in pairs):
        raise Refused(f"group {group}: no broker has it")
    try:
        online = [node.name for node in masters if await fetch_clients(questions, node, group)]
    except Unanswered:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed") from None
    if online:
        raise Refused(
            f"group {group} is online on {', '.join(online)}, and its consumers would make it again: stop them first"
        )
    return Plan(
        target=where.target.text, command="group delete", changes=tuple(changes),
        warnings=(f"{RETRY_PREFIX}{group} and {DLQ_PREFIX}{group} stay, where they are",),
        effect=f"{counted(count, 'offset goes', 'offsets go')} with it, which undo brings back",
    )  # fmt: skip


async def plan_mode(questions: Questions, where: Where, group: str, topic: str, mode: str, share: int) -> Plan:
    """Have a group pull a topic, or pop it.

    Args:
        share: popping: queues of so many other clients that a client also reads; 0 for all.

    Raises:
        BadValue: the topic is a retry topic.
        Refused: no broker has the topic.
        ClientError, RemotingError: a server does not answer.
    """
    if topic.startswith(RETRY_PREFIX):
        raise BadValue(f"{topic}: retry topics are always pulled")
    servers, masters = await Servers.of(questions), await where.masters(questions)
    topics = await _values(questions, servers, [servers.place(TopicSettings, node, topic) for node in masters])
    there = [servers.of_place(place) for place, value in topics if value is not None]
    if not there:
        raise Refused(f"topic {topic}: no broker has it")
    after = {"mode": mode, "popShareQueueNum": share}
    pairs = await _values(questions, servers, [servers.place(Modes, node, group, topic) for node in there])
    changes = tuple(ValueChange(place=place, before=value, after=after) for place, value in pairs)
    warnings = ["clients that assign queues themselves do not heed it (clientRebalance, true by default)"]
    return Plan(target=where.target.text, command="group mode", changes=changes, warnings=tuple(warnings))


async def plan_cold_threshold(questions: Questions, where: Where, group: str, threshold: int | None) -> Plan:
    """Limit the cold data that a group may read, or take its own limit away.

    Args:
        threshold: bytes in a period; None for the brokers' limit for all groups.

    Raises:
        Refused: there is no limit to take away.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await Servers.of(questions), await where.masters(questions)
    pairs = await _values(questions, servers, [servers.place(ColdThresholds, node, group) for node in masters])
    if threshold is None:
        changes = _deletions(pairs, f"cold-data {group}")
    else:
        changes = [ValueChange(place=place, before=value, after=threshold) for place, value in pairs]
    command = f"cold-data {'set' if threshold is not None else 'remove'}"
    return Plan(
        target=where.target.text, command=command, changes=tuple(changes),
        warnings=("brokers keep it in memory: a restart loses it",),
    )  # fmt: skip


# -- settings ---------------------------------------------------------------------------------------------------------


async def plan_settings(questions: Questions, where: Where, settings: Mapping[str, str]) -> Plan:
    """Change settings of brokers.

    Raises:
        BadValue: a broker has no such setting; it would accept the name and ignore it.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await Servers.of(questions), await where.masters(questions)
    places = [servers.place(Settings, node, name) for node in masters for name in settings]
    changes = []
    for place, value in await _values(questions, servers, places):
        if value is None:
            raise BadValue(await _no_setting(questions, servers.of_place(place), place.name[0]))
        if value and not value.strip("*"):
            raise Refused(f"broker {place.server} hides the value of {place.name[0]}: undo could not put it back")
        changes.append(ValueChange(place=place, before=value, after=settings[place.name[0]]))
    return Plan(target=where.target.text, command="broker-config set", changes=tuple(changes))


async def _no_setting(questions: Questions, node: Node, name: str) -> str:
    try:
        table: Mapping[str, str] = await fetch_settings(questions, node)
    except Unanswered:
        table = {}
    near = difflib.get_close_matches(name, table, 1)
    return f"broker {node.name} has no setting {name}" + (f"; it has {near[0]}" if near else "")


async def plan_name_server_settings(questions: Questions, target: Target, settings: Mapping[str, str]) -> Plan:
    """Set settings of every name server.

    Raises:
        BadValue: a name server has no such setting.
        ClientError, RemotingError: a name server does not answer.
    """
    servers = await Servers.of(questions)
    places = [servers.place(NameServerSettings, node, name) for node in questions.name_servers() for name in settings]
    pairs = await _values(questions, servers, places)
    for place, value in pairs:
        if value is None:
            raise BadValue(f"name server {place.server} has no setting {place.name[0]}")
    changes = tuple(ValueChange(place=place, before=value, after=settings[place.name[0]]) for place, value in pairs)
    return Plan(target=target.text, command="namesrv-config set", changes=changes)


# -- name servers -----------------------------------------------------------------------------------------------------


async def plan_key_value(
    questions: Questions, target: Target, namespace: str, key: str, value: str | None, *, command: str
) -> Plan:
    """Set or delete an entry of every name server.

    Raises:
        ClientError, RemotingError: a name server does not answer.
    """
    servers = await Servers.of(questions)
    places = [servers.place(KeyValues, node, namespace, key) for node in questions.name_servers()]
    pairs = await _values(questions, servers, places)
    if value is None and not any(known for _place, known in pairs):
        raise Refused(f"{namespace} {key}: no name server has it")
    changes = tuple(ValueChange(place=place, before=known, after=value) for place, known in pairs)
    return Plan(target=target.text, command=command, changes=changes)


async def plan_order(questions: Questions, target: Target, topic: str, queues: str | None) -> Plan:
    """Set which queues an ordered topic has on which broker, or that it is no longer ordered.

    Args:
        queues: ``BROKER:QUEUES;BROKER:QUEUES``; None to delete the entry.

    Raises:
        BadValue: it has another form.
        ClientError, RemotingError: a name server does not answer.
    """
    for part in () if queues is None else queues.split(";"):
        name, _, number = part.rpartition(":")
        if not name or not number.isascii() or not number.isdigit():
            raise BadValue(f"{queues}: give BROKER:QUEUES, several with ; between")
    command = f"order-conf {'delete' if queues is None else 'set'}"
    return await plan_key_value(questions, target, ORDER_TOPICS, topic, queues, command=command)


async def plan_write_permission(questions: Questions, where: Where, broker: str, *, wipe: bool) -> Plan:
    """Revoke write permission for a broker on every name server, or grant it.

    Raises:
        ClientError, RemotingError: a server does not answer, or there is no such broker.
    """
    servers = await Servers.of(questions)
    await Where(target=where.target, brokers=(broker,)).masters(questions)
    places = [servers.place(WritePermissions, node, broker) for node in questions.name_servers()]
    changes, warnings = [], []
    for place, known in await _values(questions, servers, places):
        if known is None:
            raise ClientError(f"name server {place.server} has no topic of broker {broker}: nothing was changed")
        after = {topic: perm & ~Perm.WRITE if wipe else int(Perm.READ | Perm.WRITE) for topic, perm in known.items()}
        if not wipe and not any(perm & Perm.WRITE == 0 for perm in known.values()):
            after = known
        changes.append(ValueChange(place=place, before=known, after=after))
        more = [topic for topic, perm in known.items() if not wipe and not perm & Perm.READ]
        warnings += [f"{place.server}: {', '.join(more)}: can be read then, too"] if more else []
    warnings.append("a name server forgets it when it is restarted, or when the broker registers a changed topic")
    return Plan(
        target=where.target.text, command=f"write-perm {'wipe' if wipe else 'add'}", changes=tuple(changes),
        warnings=tuple(warnings),
    )  # fmt: skip


# -- access control ---------------------------------------------------------------------------------------------------


async def plan_user(
    questions: Questions, where: Where, user: str, settings: Mapping[str, str] | None, *, create: bool
) -> Plan:
    """Create, change or delete a user of access control 2.0.

    Args:
        settings: password, userType and userStatus, those that are set; None to delete the user with its rules.

    Raises:
        Refused: it is there already, or nowhere.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await Servers.of(questions), await where.masters(questions)
    pairs = await _values(questions, servers, [servers.place(Users, node, user) for node in masters])
    if settings is None:
        # brokers delete the user's rules, too, and undo can only restore them once the user is back
        users = [replace(change, step=1) for change in _deletions(pairs, f"user {user}")]
        places = [servers.place(Rules, node, f"User:{user}") for node in masters]
        rules = await _values(questions, servers, places)
        changes = [ValueChange(place=place, before=value, after=None) for place, value in rules if value] + users
    else:
        new: dict[str, Value] = {"password": None, "userType": "Normal", "userStatus": "enable"}
        changes = _edit(pairs, lambda value: {**value, **settings}, new, create=create, what=f"user {user}")
    command = f"user {DELETE if settings is None else CREATE if create else UPDATE}"
    return Plan(target=where.target.text, command=command, changes=tuple(changes))


async def plan_rules(
    questions: Questions, where: Where, subject: str, rules: Mapping[str, Value] | None, resources: Sequence[str] = ()
) -> Plan:
    """Grant permissions to a subject, or revoke them.

    Args:
        rules: by policy and resource; None to revoke those of the resources, or all.

    Raises:
        Refused: there is nothing to revoke.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await Servers.of(questions), await where.masters(questions)
    pairs = await _values(questions, servers, [servers.place(Rules, node, subject) for node in masters])
    if rules is not None:
        changes = [
            ValueChange(place=place, before=value, after=_with_rules(value or {}, rules)) for place, value in pairs
        ]
    else:
        changes = [
            replace(
                change, after={name: rule for name, rule in change.before.items() if _keeps(name, resources)} or None
            )
            for change in _deletions(pairs, f"acl {subject}")
        ]
    return Plan(target=where.target.text, command=f"acl {DELETE if rules is None else 'set'}", changes=tuple(changes))


def _with_rules(existing: Mapping[str, Value], rules: Mapping[str, Value]) -> dict[str, Value]:
    """Existing rules with others added; one that is there already stays as the broker has it."""
    new = {name: rule for name, rule in rules.items() if in_order(existing.get(name) or {}) != in_order(rule)}
    return {**existing, **new}


def _keeps(rule: str, resources: Sequence[str]) -> bool:
    """Whether a rule is kept when those of some resources, or all, are revoked."""
    return bool(resources) and rule.partition(" ")[2] not in resources


def _deletions(pairs: Sequence[tuple[Place, Value]], what: str) -> list[ValueChange]:
    changes = [ValueChange(place=place, before=value, after=None) for place, value in pairs if value is not None]
    if not changes:
        raise Refused(f"{what}: no broker has it")
    return changes
