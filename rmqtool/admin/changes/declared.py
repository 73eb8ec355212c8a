"""Topics and groups declared in a YAML file: read it, write it for a cluster or store, and compare it with brokers.

::

    topics:
      Orders:
        readQueueNums: 4
        writeQueueNums: 4
        perm: RW
        brokers:              # where brokers differ
          lab-b: {perm: R}
          lab-c: null         # not there
    groups:
      billing: {retryMaxTimes: 5}
    owns:                     # what --prune deletes if it is not above
      topics: [billing-*]
      groups: [billing-*]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import yaml

from formats.config.topic_kinds import kind_of
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.topics import PROXY_HEARTBEATS, Perm
from rmqtool.admin.changes.change import Value, ValueChange, ValueKind
from rmqtool.admin.changes.plans import (
    Where,
    plan_group_deletion,
    plan_topic_deletion,
    warn_of_lost_queues,
)
from rmqtool.admin.changes.run import Plan, Servers, check_allowed, need_values
from rmqtool.admin.changes.static_topics import StaticTopicParts
from rmqtool.admin.changes.tables import GroupSettings, TopicSettings, group_value, topic_value
from rmqtool.admin.live.questions import Questions
from rmqtool.admin.live.tables import fetch_groups, fetch_topics
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import BadValue
from rmqtool.remoting.files import read_small
from rmqtool.rules.sending import Rejected, check_group, check_topic
from rmqtool.services.lookup.topics import permission
from rmqtool.words import counted

_MOST = 16 << 20  # bytes of a file
_BROKERS = "brokers"
_PERMS = {"RW": Perm.READ | Perm.WRITE, "WR": Perm.READ | Perm.WRITE, "R": Perm.READ, "W": Perm.WRITE, "-": 0}
NEW_TOPIC = topic_value(TopicConfig(topic_name="", read_queue_nums=8, write_queue_nums=8))
NEW_GROUP = group_value(SubscriptionGroup(group_name=""))
_OWN_GROUPS = frozenset({
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "SELF_TEST_P_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "SCHEDULE_CONSUMER",
})  # fmt: skip
_OWN_GROUP = "CID_RMQ_SYS_"  # of brokers themselves


@dataclass(frozen=True)
class DeclaredEntry:
    """A topic or a group of the file.

    Attributes:
        settings: of all brokers.
        brokers: of single brokers, in addition; None if it should not exist there.
    """

    settings: Mapping[str, Value]
    brokers: Mapping[str, Mapping[str, Value] | None] = field(default_factory=dict)

    def of(self, broker: str) -> dict[str, Value] | None:
        """The settings on one broker; None if it should not exist there."""
        own = self.brokers.get(broker, {})
        return None if own is None else {**self.settings, **own}


@dataclass(frozen=True)
class Declarations:
    """The content of a file.

    Attributes:
        owns: for ``topics`` and ``groups``, patterns of the names that the file manages.
    """

    topics: Mapping[str, DeclaredEntry]
    groups: Mapping[str, DeclaredEntry]
    owns: Mapping[str, Sequence[str]]

    def is_own(self, what: str, name: str) -> bool:
        """Whether the file manages a topic or group that it does not name."""
        return any(fnmatchcase(name, glob) for glob in self.owns.get(what, ()))


# -- reading ----------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases and without duplicate names."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not taken")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _value in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_declared(path: str) -> Declarations:
    """Read a file.

    Raises:
        BadValue: it is invalid; the line is named.
        UnreadableStore: it cannot be read.
    """
    data = read_small(path, _MOST, "a file of topics and groups")
    try:
        content = yaml.load(data.decode("utf-8"), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        mark, problem = getattr(err, "problem_mark", None), getattr(err, "problem", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else path
        plain = str(err) if type(err) is yaml.YAMLError else "not YAML"
        raise BadValue(f"{where}: {problem or plain}") from None
    if not isinstance(content, dict) or not content:
        raise BadValue(f"{path}: give topics or groups, by their names")
    _need_known(path, content, ("topics", "groups", "owns"))
    owns = _need_mapping(f"{path}: owns", content.get("owns"))
    _need_known(f"{path}: owns", owns, ("topics", "groups"))
    for what, globs in owns.items():
        if not isinstance(globs, list) or not all(isinstance(glob, str) and glob for glob in globs):
            raise BadValue(f"{path}: owns: {what}: give a list of names or patterns")
    return Declarations(
        _entries(path, "topics", content.get("topics"), NEW_TOPIC),
        _entries(path, "groups", content.get("groups"), NEW_GROUP),
        owns,
    )


def _need_known(where: str, table: Mapping[str, object], known: Sequence[str]) -> None:
    for name in table:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            raise BadValue(f"{where}: {name!r} is none of {', '.join(known)}" + (f"; {near[0]}?" if near else ""))


def _need_mapping(where: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadValue(f"{where}: give names and their settings")
    return value


def _entries(path: str, what: str, value: object, known: Mapping[str, Value]) -> dict[str, DeclaredEntry]:
    entries = {}
    for name, content in _need_mapping(f"{path}: {what}", value).items():
        where = f"{path}: {what}: {name}"
        try:
            if what == "topics":
                check_topic(name, sending=False)
            else:
                check_group(name)
        except Rejected as err:
            raise BadValue(f"{where}: {err}") from None
        table = _need_mapping(where, content)
        own = _need_mapping(f"{where}: {_BROKERS}", table.pop(_BROKERS, None))
        entries[name] = DeclaredEntry(
            _settings(where, table, known),
            {
                broker: None if more is None else _settings(f"{where}: {broker}", _need_mapping(where, more), known)
                for broker, more in own.items()
            },
        )
    return entries


def _settings(where: str, table: Mapping[str, Any], known: Mapping[str, Value]) -> dict[str, Value]:
    _need_known(where, table, [*known])
    settings = {}
    for name, value in table.items():
        if name == "perm" and isinstance(value, str):
            if value.upper() not in _PERMS:
                raise BadValue(f"{where}: perm: give RW, R, W or -")
            value = int(_PERMS[value.upper()])
        default = known[name]
        if default is not None and type(value) is not type(default):
            raise BadValue(f"{where}: {name}: {value!r} is no {_KINDS[type(default)]}")
        if type(value) is int and not -(1 << 31) <= value < 1 << 31:
            raise BadValue(f"{where}: {name}: {value} is out of range")
        settings[name] = value
    return settings


_KINDS = {int: "number", bool: "true or false", str: "text", dict: "table", list: "list", float: "number"}


# -- writing ----------------------------------------------------------------------------------------------------------


def declare(
    topics: Mapping[str, Mapping[str, TopicConfig]], groups: Mapping[str, Mapping[str, SubscriptionGroup]]
) -> str:
    """The file that declares what exists, except what brokers create themselves.

    Args:
        topics, groups: broker to its table; a store is one broker.
    """
    known = {name for table in topics.values() for name in table}
    chosen = {
        broker: {
            name: _with_readable_perm(topic_value(config))
            for name, config in table.items()
            if kind_of(name, config, known) == "normal" and name != PROXY_HEARTBEATS
        }
        for broker, table in topics.items()
    }
    own = {
        broker: {
            name: group_value(config)
            for name, config in table.items()
            if name not in _OWN_GROUPS and not name.startswith(_OWN_GROUP)
        }
        for broker, table in groups.items()
    }
    content = {
        "topics": _combine(chosen, _with_readable_perm(NEW_TOPIC), always=("readQueueNums", "writeQueueNums", "perm")),
        "groups": _combine(own, NEW_GROUP, always=("retryMaxTimes",)),
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def _with_readable_perm(value: Mapping[str, Value]) -> dict[str, Value]:
    return {**value, "perm": permission(value["perm"])}


def _combine(
    tables: Mapping[str, Mapping[str, Mapping[str, Value]]], new: Mapping[str, Value], always: Sequence[str]
) -> dict[str, dict[str, Value]]:
    """Entries by name; settings with default values are omitted, unless brokers differ."""
    entries: dict[str, dict[str, Value]] = {}
    for name in sorted({name for table in tables.values() for name in table}):
        values = {broker: table.get(name) for broker, table in tables.items()}
        first = next(value for value in values.values() if value is not None)
        differing = {
            setting
            for value in values.values()
            if value is not None
            for setting in first
            if value.get(setting) != first[setting]
        }
        entry = {
            setting: value
            for setting, value in first.items()
            if setting in always or setting in differing or value != new.get(setting)
        }
        brokers = {
            broker: None if value is None else {s: value[s] for s in first if value.get(s) != first[s] and s in value}
            for broker, value in values.items()
            if value is None or any(value.get(setting) != first[setting] for setting in first)
        }
        entries[name] = {**entry, **({_BROKERS: brokers} if brokers else {})}
    return entries


# -- plan -------------------------------------------------------------------------------------------------------------


async def plan_declared(questions: Questions, where: Where, declared: Declarations, *, prune: bool) -> Plan:
    """The changes that make brokers match the file. Entries and settings that the file does not name are kept.

    Args:
        prune: delete what the file owns and does not name.

    Raises:
        BadValue: the file names a broker that is not there.
        Refused: a group that is to be deleted is online.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await Servers.of(questions), await where.masters(questions)
    names = {node.name for node in await questions.nodes()}
    changes: list[ValueChange] = []
    parts: tuple[tuple[type[ValueKind], Mapping[str, DeclaredEntry], Mapping[str, Value]], ...] = (
        (TopicSettings, declared.topics, NEW_TOPIC), (GroupSettings, declared.groups, NEW_GROUP),
    )  # fmt: skip
    for kind, entries, new in parts:
        for name, entry in entries.items():
            if unknown := sorted(entry.brokers.keys() - names):
                raise BadValue(
                    f"{kind.name} {name}: no broker {', '.join(unknown)}: there are {', '.join(sorted(names))}"
                )
        places = [servers.place(kind, node, name) for name in entries for node in masters]
        values = await need_values(questions, servers, places)
        for place in places:
            wanted, before = entries[place.name[0]].of(place.server), values[place]
            if wanted is not None:
                changes.append(ValueChange(place=place, before=before, after={**(before or new), **wanted}))
    topics = [change for change in changes if change.place.kind == TopicSettings.name]
    await check_allowed(questions, servers, [change for change in topics if change.before != change.after])
    warnings = await warn_of_lost_queues(questions, servers, topics)
    effects = []
    if prune:
        for plan in await _deletions(questions, where, declared):
            changes += plan.changes
            warnings += [
                f"{plan.command.partition(' ')[0]} {plan.changes[-1].place.name[0]}: {text}" for text in plan.warnings
            ]
        deleted = sorted({(change.place.kind, change.place.name[0]) for change in changes if change.after is None})
        things = [
            f"{kind} {name}"
            for kind, name in deleted
            if kind in (TopicSettings.name, StaticTopicParts.name, GroupSettings.name)
        ]
        effects = [f"{counted(len(things), 'thing is', 'things are')} deleted: {', '.join(things)}"] if things else []
    return Plan(
        target=where.target.text, command="apply", changes=tuple(changes), warnings=tuple(warnings),
        effect="; ".join(effects) or None,
    )  # fmt: skip


async def _deletions(questions: Questions, where: Where, declared: Declarations) -> list[Plan]:
    """Plans that delete what the file owns: whole topics and groups, and those on single brokers."""
    masters = await where.masters(questions)
    topics, groups = await fetch_topics(questions, masters), await fetch_groups(questions, masters)
    if len(topics) < len(masters) or len(groups) < len(masters):
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed")
    known = {name for table in topics.values() for name in table}
    plans = []
    for topic in sorted(known):
        nodes = [node for node in masters if topic in topics[node]]
        if kind_of(topic, topics[nodes[0]][topic], known) != "normal":
            continue
        brokers = tuple(node.name for node in nodes if _is_unwanted(declared, "topics", topic, node.name))
        if brokers:
            plans.append(await plan_topic_deletion(questions, Where(target=where.target, brokers=brokers), topic))
    for group in sorted({name for table in groups.values() for name in table}):
        if group in _OWN_GROUPS or group.startswith(_OWN_GROUP):
            continue
        nodes = [node for node in masters if group in groups[node]]
        brokers = tuple(node.name for node in nodes if _is_unwanted(declared, "groups", group, node.name))
        if brokers:
            plans.append(await plan_group_deletion(questions, Where(target=where.target, brokers=brokers), group))
    return plans


def _is_unwanted(declared: Declarations, what: str, name: str, broker: str) -> bool:
    """Whether the file asks for removal from a broker."""
    entries = declared.topics if what == "topics" else declared.groups
    entry = entries.get(name)
    return entry.of(broker) is None if entry is not None else declared.is_own(what, name)
