"""Requests of administrators that create, change and delete topics and groups.

Source: broker.processor.AdminBrokerProcessor (4.9.8, 5.3.3); remoting-protocol 10.2.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from formats.config.files_of_5 import TopicQueueMapping
from formats.fastjson.declare import body_of
from formats.fastjson.dialects import BROWSER
from formats.fastjson.write import dumps
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.variants.pop_handle import retry_topic
from rmqtool.rules.kinds import group_attributes_of
from rmqtool.rules.releases import V5_3, V5_5
from rmqtool.rules.sending import Rejected, check_group, check_topic
from rmqtool.rules.static_topics import BadMapping, merge_mappings
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.store.releases.rules import BATCH_QUEUE, batch_topics_of

_MOST_QUEUES = 1 << 16


class TableRequests:
    """Requests that read or change the tables of topics and groups."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    # -- topics -------------------------------------------------------------------------------------------------------

    @handles(C.UPDATE_AND_CREATE_TOPIC)
    def update_topic(self, call: Call[h.CreateTopic, None]) -> Command:
        """Request 17."""
        self._context.check_writable()
        header = call.header
        name = header.topic
        self._check(name, header.read_queue_nums, header.write_queue_nums)
        self._set_topic(header, header.attributes or "")
        return call.answer()

    def _set_topic(self, header: h.CreateTopic, changes: str) -> None:
        """Create or change a topic.

        Args:
            changes: of its attributes.
        """
        config = self._context.state.topic(header.topic)
        known = config or TopicConfig(topic_name=header.topic)
        attributes = known.attributes
        if self._context.release.has_attributes:
            attributes = _with_attributes(config, changes)
        self._context.set_topic(
            replace(
                known,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag or 0,
                order=header.order,
                attributes=attributes,
            )
        )

    @handles(C.UPDATE_AND_CREATE_STATIC_TOPIC, since=V5_3)
    def update_static_topic(self, call: Call[h.CreateTopic, TopicQueueMapping]) -> Command:
        """Request 513: create or change a static topic, both its settings and this broker's part of its queues.

        A broker also takes the settings of a mapping that it refuses. The mapping is written first here: without it,
        queues of the topic would be taken for those of the broker.
        """
        context, header = self._context, call.header
        context.check_writable()
        self._check(header.topic, header.read_queue_nums, header.write_queue_nums)
        mapping = call.body
        if (mapping.topic, mapping.broker_name) != (header.topic, context.settings.name):
            remark = f"the mapping is one of {mapping.topic} on {mapping.broker_name}, not of {header.topic} here"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        static = context.static_topics
        try:
            merged = merge_mappings(static.mappings.get(header.topic), mapping, force=header.force is True)
        except BadMapping as err:
            raise Failed(ResponseCode.SYSTEM_ERROR, str(err)) from None
        static.set(merged)
        self._set_topic(header, "")
        return call.answer()

    def _check(self, name: str, *queues: int) -> None:
        """Check that the topic may be created.

        Raises:
            Failed: it may not.
        """
        try:
            check_topic(name, sending=False)
        except Rejected as err:
            raise Failed(self._context.invalid_code, str(err)) from None
        if self._context.is_system(name):
            raise Failed(self._context.invalid_code, f"The topic[{name}] is conflict with system topic.")
        for number in queues:
            if not 0 <= number <= _MOST_QUEUES:
                raise Failed(ResponseCode.SYSTEM_ERROR, f"{number} queues: 0 to {_MOST_QUEUES} are taken")

    @handles(C.UPDATE_AND_CREATE_TOPIC_LIST, since=V5_3)
    def update_topics(self, call: Call[None, a.TopicsToSet]) -> Command:
        """Request 18: all of them, or none."""
        self._context.check_writable()
        wanted = call.body.topics
        for config in wanted:
            self._check(config.topic_name or "", config.read_queue_nums, config.write_queue_nums)
        changed = []
        for config in wanted:
            known = self._context.state.topic(config.topic_name or "")
            changes = ",".join(
                f"{name}={value}" if value else name for name, value in (config.attributes or {}).items()
            )
            attributes = _with_attributes(known, changes)
            changed.append(replace(config, attributes=attributes))
        self._context.set_topics(changed)
        return call.answer()

    @handles(C.GET_ALL_TOPIC_CONFIG)
    def list_topics(self, call: Call[None, None]) -> Command:
        """Request 21."""
        state = self._context.state
        static = self._context.static_topics
        table = a.TopicConfigs(dict(state.topics), replace(state.topics_version, state_version=None))
        if static.mappings:
            table.mapping_data_version = replace(static.version, state_version=None)
            table.topic_queue_mapping_detail_map = dict(static.mappings)
        return call.answer(body=body_of(table, self._context.release.version))

    @handles(C.GET_TOPIC_CONFIG)
    def show_topic(self, call: Call[h.Topic, None]) -> Command:
        """Request 351."""
        name = call.header.topic
        config = self._context.state.topic(name)
        if config is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        if call.header.lo and (mapping := self._context.static_topics.mappings.get(name)) is not None:
            both = {field.name: getattr(config, field.name) for field in fields(config)}
            config = a.StaticTopicConfig(**both, mapping_detail=mapping)
        return call.answer(body=body_of(config, self._context.release.version))

    @handles(C.DELETE_TOPIC_IN_BROKER)
    def delete_topic(self, call: Call[h.Topic, None]) -> Command:
        """Request 215: settings go; queues and offsets stay.

        Brokers remove the queues, too, and 5.x the offsets. They number the messages of a recreated topic from 0.
        A start after a kill takes the first message in the log that has a number, where a queue has none yet: here,
        where queues follow the log later than a broker's, new messages would be left out for old ones.
        """
        self._check_deletable(call.header.topic)
        self._delete_topic(call.header.topic)
        self._context.topic_changes.publish()
        return call.answer()

    @handles(C.DELETE_TOPIC_IN_BROKER_LIST, since=V5_5)
    def delete_topics(self, call: Call[None, a.TopicsToDelete]) -> Command:
        """Request 5002 of 5.5.1: as 215 each, all of them or none."""
        names = dict.fromkeys(call.body.topic_list)
        if not names:
            raise Failed(self._context.invalid_code, "The specified topic list is blank.")
        for name in names:
            self._check_deletable(name)
        for name in names:
            self._delete_topic(name)
        self._context.topic_changes.publish()
        return call.answer()

    def _check_deletable(self, name: str) -> None:
        self._context.check_writable()
        if not name.strip():
            raise Failed(self._context.invalid_code, "The specified topic is blank.")
        if self._context.is_system(name):
            raise Failed(self._context.invalid_code, f"The topic[{name}] is conflict with system topic.")
        if name in batch_topics_of(self._context.state.topics):
            # their files stay, and no broker starts on them without the attribute
            raise Failed(ResponseCode.SYSTEM_ERROR, f"the topic[{name}] has batch consume queues, and is not deleted")

    def _delete_topic(self, name: str) -> None:
        state = self._context.state
        if self._context.release.is_5 and state.layout.conf.flag("clearRetryTopicWhenDeleteTopic", True):
            for group in {group for topic, group, _queue_id in state.offsets if topic == name}:
                for newer in (False, True):
                    self._remove_topic(retry_topic(name, group, newer=newer))
        self._remove_topic(name)

    def _remove_topic(self, name: str) -> None:
        self._context.state.remove_topic(name)
        self._context.static_topics.remove(name)
        self._context.forget_positions(topic=name)
        self._context.drop_unused_stats(topic=name)

    @handles(C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def list_system_topics(self, call: Call[None, None]) -> Command:
        """Request 305."""
        names = sorted(topic.topic_name or "" for topic in self._context.system_topics())
        return call.answer(body=b.TopicList(names, self._context.settings.address))

    # -- groups -------------------------------------------------------------------------------------------------------

    @handles(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    def update_group(self, call: Call[None, SubscriptionGroup]) -> Command:
        """Request 200: create or change a group."""
        return self._set_groups(call, [call.body])

    @handles(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, since=V5_3)
    def update_groups(self, call: Call[None, a.GroupsToSet]) -> Command:
        """Request 225: all of them, or none."""
        return self._set_groups(call, call.body.groups)

    def _set_groups(self, call: Call[None, Any], wanted: Sequence[SubscriptionGroup]) -> Command:
        self._context.check_writable()
        for config in wanted:
            try:
                check_group(config.group_name or "")
            except Rejected as err:
                raise Failed(ResponseCode.SYSTEM_ERROR, str(err)) from None
        if self._context.release.is_5:
            groups, allowed = self._context.state.groups, group_attributes_of(self._context.release)
            wanted = [
                replace(c, attributes=_altered(groups.get(c.group_name or ""), c.attributes or {}, allowed))
                for c in wanted
            ]
        for config in wanted:
            self._context.state.set_group(config)
        return call.answer()

    @handles(C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def list_groups(self, call: Call[None, None]) -> Command:
        """Request 201."""
        return call.answer(body=self._context.state.groups_file())

    @handles(C.GET_SUBSCRIPTIONGROUP_CONFIG, since=V5_3)
    def show_group(self, call: Call[a.OneGroup, None]) -> Command:
        """Request 352. A missing group is created if a consumer of it would create it."""
        name = call.header.group
        config = self._context.state.groups.get(name) or self._context.state.ensure_group(name)
        if config is None:
            remark = "No group in this broker"
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return call.answer(body=dumps(config.write(self._context.release.version), BROWSER))

    @handles(C.DELETE_SUBSCRIPTIONGROUP)
    def delete_group(self, call: Call[a.DeleteGroup, None]) -> Command:
        """Request 207."""
        self._context.check_writable()
        header = call.header
        self._delete_group(
            header.group_name, offsets=header.clean_offset if self._context.release.is_5 else header.remove_offset
        )
        return call.answer()

    @handles(C.DELETE_SUBSCRIPTION_GROUP_LIST, since=V5_5)
    def delete_groups(self, call: Call[None, a.GroupsToDelete]) -> Command:
        """Request 5003 of 5.5.1: as 207 each, all of them or none."""
        self._context.check_writable()
        names = dict.fromkeys(call.body.group_name_list)
        if not names:
            raise Failed(self._context.invalid_code, "The specified group name list is blank.")
        if not all(name.strip() for name in names):
            raise Failed(self._context.invalid_code, "The specified group name is blank.")
        for name in names:
            self._delete_group(name, offsets=call.body.clean_offset)
        return call.answer()

    def _delete_group(self, name: str, *, offsets: bool) -> None:
        self._context.state.remove_group(name, offsets=offsets)
        if offsets:
            self._context.forget_positions(group=name)
        self._context.drop_unused_stats(group=name)


def _altered(group: SubscriptionGroup | None, changes: Mapping[str, str], allowed: Container[str]) -> dict[str, str]:
    """Attributes of a group after the changes ``+key`` and ``-key`` (common.attribute.AttributeUtil).

    Args:
        allowed: keys that the release knows.

    Raises:
        Failed: there is no such attribute, or it cannot be changed so.
    """
    known = dict((group and group.attributes) or {})
    for name, value in changes.items():
        key = name[1:]
        if name.startswith("+") and key in allowed:
            known[key] = value
        elif name.startswith("-") and group is not None and key in known:
            del known[key]
        elif name[:1] not in "+-":
            raise Failed(ResponseCode.SYSTEM_ERROR, f"wrong format key: {key}")
        elif group is None and name.startswith("-"):
            remark = f"only add attribute is supported while creating topic. key: {key}"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        else:
            what = "unsupported key" if name.startswith("+") else "attempt to delete a nonexistent key"
            raise Failed(ResponseCode.SYSTEM_ERROR, f"{what}: {key}")
    return known


def _with_attributes(topic: TopicConfig | None, changes: str) -> dict[str, str]:
    """Attributes of a topic after ``+key=value,-key`` (common.attribute.AttributeParser, AttributeUtil).

    Raises:
        Failed: invalid syntax, or an existing topic would get queues of another kind.
    """
    known = dict((topic and topic.attributes) or {})
    for part in filter(None, (part.strip() for part in changes.split(","))):
        name, _, value = part[1:].partition("=")
        if topic is not None and name == BATCH_QUEUE[0]:
            remark = f"attempt to update an unchangeable attribute. key: {name}"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        if part[0] == "+" and name and value:
            known[name] = value
        elif part[0] == "-" and name and not value:
            known.pop(name, None)
        else:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"attribute format is wrong: {part}")
    return known
