"""Topics, groups, offsets and settings of a broker, and settings of a name server."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from formats.fastjson.declare import NEWEST
from formats.fastjson.dialects import BODY
from formats.fastjson.write import dumps
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.remoting import admin as a
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.topics import AUTO_CREATE
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.live.brokers import fetch_settings
from rmqtool.admin.live.questions import Code, Node, Questions
from rmqtool.admin.live.settings import fetch_name_server_settings
from rmqtool.admin.live.static_topics import fetch_parts
from rmqtool.admin.live.tables import fetch_clients, fetch_groups, fetch_offsets, fetch_topics
from rmqtool.words import command_line

_ATTRIBUTES, _ORDER = "attributes", "order"
_COUNTS = "readQueueNums", "writeQueueNums"


def attribute_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The changes of attributes as 5.x brokers expect them: ``+name`` to its value, ``-name`` for removal."""
    return {f"-{name}": "" for name in sorted(before.keys() - after.keys())} | {
        f"+{name}": value for name, value in sorted(after.items()) if before.get(name) != value
    }


class TopicSettings(ValueKind):
    """Settings of topics; the name is the topic's."""

    name, fields = "topic", True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        table = (await questions.need(fetch_topics(questions, [node])))[node]
        return {name: topic_value(table[name[0]]) for name in names if name[0] in table}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        (topic,) = change.place.name
        if change.after is None:
            await questions.send(node, C.DELETE_TOPIC_IN_BROKER, h.Topic(topic=topic))
            return
        after: dict[str, Any] = change.after
        changes = attribute_changes((change.before or {}).get(_ATTRIBUTES, {}), after[_ATTRIBUTES])
        header = h.CreateTopic(
            topic=topic,
            default_topic=AUTO_CREATE,
            read_queue_nums=after["readQueueNums"],
            write_queue_nums=after["writeQueueNums"],
            perm=after["perm"],
            topic_filter_type=after["topicFilterType"],
            topic_sys_flag=after["topicSysFlag"],
            order=after[_ORDER],
            attributes=",".join(f"{name}={value}" if value else name for name, value in changes.items()) or None,
        )
        await questions.send(node, C.UPDATE_AND_CREATE_TOPIC, header)

    async def why_not(self, questions: Questions, node: Node, changes: Sequence[ValueChange]) -> str | None:
        """A static topic has as many queues on a broker as its mapping says."""
        resized = {
            change.place.name[0]
            for change in changes
            if change.after is not None
            and any((change.before or {}).get(name) != change.after[name] for name in _COUNTS)
        }
        if not resized:
            return None
        parts = (await questions.need(fetch_parts(questions, [node])))[node]
        if not (static := sorted(resized & parts.keys())):
            return None
        command = command_line("static-topic", "create")
        return (
            f"broker {node.name}: {', '.join(static)} is a static topic: its mapping says how many queues it has; "
            f"{command} adds some"
        )

    @classmethod
    def complete(cls, journaled: Value, now: Value) -> Value:
        if journaled is None or _ORDER in journaled:
            return journaled
        return {**journaled, _ORDER: False if now is None else now[_ORDER]}


def topic_value(config: TopicConfig) -> dict[str, Value]:
    """What request 17 sets for a topic."""
    return {
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": config.perm,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        _ORDER: config.order,
        _ATTRIBUTES: dict(config.attributes),
    }


class GroupSettings(ValueKind):
    """Settings of groups; the name is the group's. A group that is deleted loses its offsets, too."""

    name, fields = "group", True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        table = (await questions.need(fetch_groups(questions, [node])))[node]
        return {name: group_value(table[name[0]]) for name in names if name[0] in table}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        (group,) = change.place.name
        if change.after is None:
            header = a.DeleteGroup(group_name=group, remove_offset=True, clean_offset=True)
            await questions.send(node, C.DELETE_SUBSCRIPTIONGROUP, header)
            return
        before, after = change.before or {}, {**change.after, "groupName": group}
        after[_ATTRIBUTES] = attribute_changes(before.get(_ATTRIBUTES, {}), after.get(_ATTRIBUTES, {}))
        await questions.send(node, C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, dumps(after, BODY))


def group_value(group: SubscriptionGroup) -> dict[str, Value]:
    """The settings of a group, by their names in subscriptionGroup.json."""
    value: dict[str, Value] = json.loads(dumps(group.write(NEWEST), BODY))
    del value["groupName"]
    return value


class Offsets(ValueKind):
    """Offsets of groups; the name is group, topic and queue id.

    Brokers of 5.x set them with request 222, and pass them to the group with its next pull. Those of 4.9 leave that to
    the group's clients while they are online; no other offset lasts then.
    """

    name, moves, stays = "offset", True, True

    def __init__(self) -> None:
        self._sets: dict[Node, bool] = {}
        self._asked: dict[tuple[Node, str, str], asyncio.Task[None]] = {}

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        if not await self.sets_offsets(questions, node):
            rows = (await questions.need(fetch_offsets(questions, [node])))[node]
            table = {(row.group, row.topic, str(row.queue_id)): row.offset for row in rows}
            return {name: table[name] for name in names if name in table}

        async def fetch(name: Name) -> int | None:  # including what waits for the next pull
            group, topic, queue_id = name
            header = h.GroupQueue(
                consumer_group=group, topic=topic, queue_id=int(queue_id), set_zero_if_not_found=False
            )
            answer = await questions.fetch_header_if_any(
                node, C.QUERY_CONSUMER_OFFSET, h.Offset, header,
                what="offsets are", absent=(ResponseCode.QUERY_NOT_FOUND,),
            )  # fmt: skip
            return None if answer is None else answer.offset

        offsets = await questions.need(questions.collect(names, fetch), names)
        return {name: offset for name, offset in offsets.items() if offset is not None}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        group, topic, queue_id = change.place.name
        if change.after is None:
            return  # goes with its group
        commit = h.Commit(consumer_group=group, topic=topic, queue_id=int(queue_id), commit_offset=change.after)
        if await self.sets_offsets(questions, node):
            if change.before is None:  # a reset alone would be in memory only, until the group pulls
                await questions.send(node, C.UPDATE_CONSUMER_OFFSET, commit)
            header = h.ResetOffset(
                topic=topic, group=group, timestamp=-1, is_force=True, queue_id=int(queue_id), offset=change.after
            )
            await questions.send(node, C.INVOKE_BROKER_TO_RESET_OFFSET, header)
        elif change.since is not None:
            key = (node, group, topic)
            if key not in self._asked:  # one request for all queues; if it fails, each of them fails
                header = h.ResetOffset(topic=topic, group=group, timestamp=change.since, is_force=True)
                send = questions.send(node, C.INVOKE_BROKER_TO_RESET_OFFSET, header)
                self._asked[key] = asyncio.create_task(send)
            await self._asked[key]
        else:
            await questions.send(node, C.UPDATE_CONSUMER_OFFSET, commit)

    async def why_not(self, questions: Questions, node: Node, changes: Sequence[ValueChange]) -> str | None:
        groups = {change.place.name[0] for change in changes if change.after is not None and change.since is None}
        if not groups or await self.sets_offsets(questions, node):
            return None
        online = sorted([group for group in groups if await fetch_clients(questions, node, group)])
        if not online:
            return None
        return (
            f"broker {node.name}: group {', '.join(online)} is online, and its consumers would write their own offsets "
            "over these: stop them first"
        )

    @classmethod
    def went_on(cls, change: ValueChange, now: Value) -> bool:
        if now is None or change.after is None or now < change.after:
            return False
        return change.before is None or change.before <= change.after or bool(now < change.before)

    @classmethod
    def tell_apart(cls, now: Value, wanted: Value) -> str:
        return f"it is at {now} now: its consumers have written over it, or have consumed everything again"

    async def sets_offsets(self, questions: Questions, node: Node) -> bool:
        """Whether the broker itself sets a group's offsets (``useServerSideResetOffset`` of 5.x).

        Raises:
            Unanswered: it gave no answer.
        """
        if node not in self._sets:
            settings = await fetch_settings(questions, node)
            self._sets[node] = settings.get("useServerSideResetOffset", "false").strip() == "true"
        return self._sets[node]


class Settings(ValueKind):
    """Settings of a broker; the name is the setting's."""

    name = "setting"
    fetch: ClassVar = staticmethod(fetch_settings)
    update: ClassVar[Code] = C.UPDATE_BROKER_CONFIG

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        table = await self.fetch(questions, node)
        return {name: table[name[0]] for name in names if name[0] in table}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        await questions.send(node, self.update, None, property_line(change.place.name[0], change.after))


class NameServerSettings(Settings):
    """Settings of a name server."""

    name = "namesrv-setting"
    fetch = staticmethod(fetch_name_server_settings)
    update = C.UPDATE_NAMESRV_CONFIG


def property_line(name: str, value: str) -> bytes:
    """A setting as java.util.Properties reads it, on a server that takes the bytes for UTF-8."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"{name}={chr(92) if text.startswith(' ') else ''}{text}\n".encode()


def offsets_of(rows: Iterable[Any], group: str) -> dict[Name, int]:
    """The offsets of one group among those of a broker."""
    return {(row.group, row.topic, str(row.queue_id)): row.offset for row in rows if row.group == group}
