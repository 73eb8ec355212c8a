"""Topics and groups of a store directory as a file declares them, for a broker that is stopped, or ``serve``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formats.config.files import SubscriptionGroups, Topics
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from rmqtool.admin.changes.change import Place, Value, ValueChange
from rmqtool.admin.changes.declared import NEW_GROUP, NEW_TOPIC, Declarations, DeclaredEntry
from rmqtool.admin.changes.run import DONE, SAME, Outcome, Plan
from rmqtool.admin.changes.tables import group_value, topic_value
from rmqtool.errors import BadValue, Refused
from rmqtool.services.lookup.configs import load_config
from rmqtool.services.open_store.broker_state import TableFile
from rmqtool.store.append.appender import system_clock
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.writing import changing, hold_to_plan, pending_runs
from rmqtool.store.config.files import config_place
from rmqtool.store.config.release import release_of
from rmqtool.store.disk.directories import read_small
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.roles.table import heed

_TOPICS, _GROUPS = "topics.json", "subscriptionGroup.json"
COMMAND = "apply"


def plan_stored(layout: StoreLayout, declared: Declarations, broker: str | None) -> Plan:
    """What makes the tables of a store as the file declares them. What the file does not name stays.

    Args:
        broker: name of the store's broker, for settings of single brokers; None for that of its properties file.

    Raises:
        BadValue: the file has settings of single brokers, and it is not known which is meant.
        CorruptFile: a table and its ``.bak`` are broken.
        Refused: the tables are in RocksDB.
    """
    return _plan(layout, declared, _name_of(layout, declared, broker), *_load(layout))


def apply_stored(
    layout: StoreLayout, declared: Declarations, broker: str | None, *, backup: str | None, shown: Plan | None
) -> Plan:
    """Plan again under the broker's lock, and write; the old files become ``.bak``. ``undo`` of the store reverts it.

    Args:
        backup: directory for what is replaced.
        shown: the plan that was confirmed; another is refused.

    Raises:
        Refused: the store is in use, or the plan has changed.
        BadValue, CorruptFile: as :func:`plan_stored`.
    """
    name = _name_of(layout, declared, broker)
    if not pending_runs(Places.of(layout, []), backup):
        plan = _plan(layout, declared, name, *_load(layout))
        if not plan.needed:
            return plan
    with changing(layout, COMMAND, backup) as change:
        layout = StoreLayout(layout.root, layout.conf)
        topics, groups = _load(layout)
        plan = _plan(layout, declared, name, topics, groups)
        hold_to_plan(layout.root, shown and shown.changes, plan.changes)
        if not plan.needed:
            return plan
        for file, data in _build(layout, topics, groups, plan.needed).items():
            path = layout.path("config", file)
            previous = read_small(path)
            if previous is not None:
                change.put_content(path + ".bak", previous)
            change.put_content(path, data)
        kept = change.path
        change.commit()
    outcomes = [
        Outcome(change=each, state=SAME if each.before == each.after else DONE, now=each.after) for each in plan.changes
    ]
    return replace(plan, outcomes=tuple(outcomes), journal=kept)


def _name_of(layout: StoreLayout, declared: Declarations, broker: str | None) -> str:
    name = broker or layout.conf.text("brokerName")
    named = sorted(
        {broker for table in (declared.topics, declared.groups) for entry in table.values() for broker in entry.brokers}
    )
    if name is None and named:
        raise BadValue(f"the file has settings of {', '.join(named)}: give --broker NAME for the store's broker")
    return name or ""


def _load(layout: StoreLayout) -> tuple[Topics, SubscriptionGroups]:
    for name in (_TOPICS, _GROUPS):
        if place := config_place(layout, name):
            raise Refused(f"{layout.path(place)}: {name} is in a RocksDB database, which this version cannot write")
    topics = load_config(layout, _TOPICS, lambda _text: None)
    groups = load_config(layout, _GROUPS, lambda _text: None)
    return (
        topics if isinstance(topics, Topics) else Topics(),
        groups if isinstance(groups, SubscriptionGroups) else SubscriptionGroups(),
    )


def _plan(layout: StoreLayout, declared: Declarations, broker: str, topics: Topics, groups: SubscriptionGroups) -> Plan:
    topic_values = {name: topic_value(config) for name, config in topics.topics.items()}
    group_values = {name: group_value(config) for name, config in groups.groups.items()}
    changes = [
        *_changes("topic", declared.topics, topic_values, NEW_TOPIC, broker),
        *_changes("group", declared.groups, group_values, NEW_GROUP, broker),
    ]
    fewer = [
        change.place.name[0]
        for change in changes
        if change.before is not None and change.after.get("readQueueNums", 0) < change.before.get("readQueueNums", 0)
    ]
    warnings = [f"topic {name}: messages in queues that are no longer read stay in the log" for name in fewer]
    return Plan(
        target=layout.root, command=COMMAND, changes=tuple(changes), warnings=(*heed(layout, COMMAND), *warnings)
    )


def _changes(
    kind: str,
    entries: Mapping[str, DeclaredEntry],
    values: Mapping[str, dict[str, Value]],
    new: Mapping[str, Value],
    broker: str,
) -> list[ValueChange]:
    changes = []
    for name, entry in entries.items():
        wanted = entry.of(broker)
        if wanted is not None:
            place = Place(kind=kind, cluster=None, server=broker, name=(name,))
            before = values.get(name)
            changes.append(ValueChange(place=place, before=before, after={**(before or new), **wanted}))
    return changes


def _build(
    layout: StoreLayout, topics: Topics, groups: SubscriptionGroups, changes: tuple[ValueChange, ...]
) -> dict[str, bytes]:
    """The files that change, as a broker writes them."""
    release, files = release_of(layout), {}
    topic_table, group_table = dict(topics.topics), dict(groups.groups)
    for change in changes:
        (name,) = change.place.name
        if change.place.kind == "topic":
            topic = topic_table.get(name) or TopicConfig(topic_name=name)
            topic_table[name] = TopicConfig.read(_merge(topic.write(release.version), change.after, topicName=name))
        else:
            group = group_table.get(name) or SubscriptionGroup(group_name=name)
            group_table[name] = SubscriptionGroup.read(
                _merge(group.write(release.version), change.after, groupName=name)
            )
    now = system_clock()
    if topic_table != topics.topics:
        version = replace(topics.data_version, counter=topics.data_version.counter + 1, timestamp=now)
        table: TableFile[Any] = TableFile(topics.topics, "topics", "topicConfigTable", release)
        files[_TOPICS] = table.build(replace(topics, topics=topic_table, data_version=version))
    if group_table != groups.groups:
        version = replace(groups.data_version, counter=groups.data_version.counter + 1, timestamp=now)
        table = TableFile(groups.groups, "groups", "subscriptionGroupTable", release)
        files[_GROUPS] = table.build(replace(groups, groups=group_table, data_version=version))
    return files


def _merge(known: Mapping[Any, Any], settings: Mapping[str, Value], **name: str) -> dict[Any, Any]:
    """An entry with some settings, as plain values of the file."""
    content = {**known, **settings, **name}
    merged = loads(dumps(content, BODY), BODY)
    assert isinstance(merged, dict)
    return dict(merged)
