"""Topics and groups as administrators make, change and remove them.

Source: broker.processor.AdminBrokerProcessor (4.9.8, 5.3.3); remoting-protocol 10.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

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
from rmqtool.remoting.connection import Connection
from rmqtool.rules.sending import Rejected, check_group, check_topic
from rmqtool.server.broker.known.answers import Failed, answer, header_of
from rmqtool.server.broker.known.core import Core
from rmqtool.store.releases.rules import BATCH_QUEUE, batch_topics_of

Handle = Callable[[Connection, Command], Command | None]
_MOST_QUEUES = 1 << 16


class Tables:
    """Requests that read or change the tables of topics and groups."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def handlers(self) -> dict[int, Handle]:
        """By request code."""
        of_5: dict[int, Handle] = {
            C.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topics,
            C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            C.GET_SUBSCRIPTIONGROUP_CONFIG: self.group,
        }
        return {
            **(of_5 if self._core.release.is_5 else {}),
            C.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            C.GET_ALL_TOPIC_CONFIG: self.topics,
            C.GET_TOPIC_CONFIG: self.topic,
            C.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.groups,
            C.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def _may_change(self) -> None:
        if self._core.settings.read_only:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{self._core.settings.address}] is read-only")

    # -- topics -------------------------------------------------------------------------------------------------------

    def update_topic(self, _connection: Connection, request: Command) -> Command:
        """Request 17."""
        self._may_change()
        header = header_of(h.CreateTopic, request)
        name = header.topic
        self._check(name, header.read_queue_nums, header.write_queue_nums)
        found = self._core.state.topic(name)
        known = found or TopicConfig(topic_name=name)
        attributes = known.attributes
        if self._core.release.has_attributes:
            attributes = _with_attributes(found, header.attributes or "")
        self._core.set_topic(
            replace(
                known,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag or 0,
                attributes=attributes,
            )
        )
        return answer(request)

    def _check(self, name: str, *queues: int) -> None:
        """Whether there may be such a topic.

        Raises:
            Failed: there may not.
        """
        try:
            check_topic(name, sending=False)
        except Rejected as err:
            raise Failed(self._core.invalid(), str(err)) from None
        if self._core.is_system(name):
            raise Failed(self._core.invalid(), f"The topic[{name}] is conflict with system topic.")
        for number in queues:
            if not 0 <= number <= _MOST_QUEUES:
                raise Failed(ResponseCode.SYSTEM_ERROR, f"{number} queues: 0 to {_MOST_QUEUES} are taken")

    def update_topics(self, _connection: Connection, request: Command) -> Command:
        """Request 18: all of them, or none."""
        self._may_change()
        wanted = a.TopicsToSet.parse(request.body).topics
        for config in wanted:
            self._check(config.topic_name or "", config.read_queue_nums, config.write_queue_nums)
        changed = []
        for config in wanted:
            known = self._core.state.topic(config.topic_name or "")
            changes = ",".join(
                f"{name}={value}" if value else name for name, value in (config.attributes or {}).items()
            )
            attributes = _with_attributes(known, changes)
            changed.append(replace(config, attributes=attributes))
        self._core.set_topics(changed)
        return answer(request)

    def topics(self, _connection: Connection, request: Command) -> Command:
        """Request 21."""
        state = self._core.state
        table = a.TopicConfigs(dict(state.topics), replace(state.topics_version, state_version=None))
        return answer(request, body=body_of(table, self._core.release.version))

    def topic(self, _connection: Connection, request: Command) -> Command:
        """Request 351."""
        name = header_of(h.Topic, request).topic
        config = self._core.state.topic(name)
        if config is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return answer(request, body=body_of(config, self._core.release.version))

    def delete_topic(self, _connection: Connection, request: Command) -> Command:
        """Request 215."""
        self._may_change()
        name = header_of(h.Topic, request).topic
        if self._core.is_system(name):
            raise Failed(self._core.invalid(), f"The topic[{name}] is conflict with system topic.")
        if name in batch_topics_of(self._core.state.topics):
            # their files stay, and without the attribute no broker starts on them
            raise Failed(ResponseCode.SYSTEM_ERROR, f"the topic[{name}] has batch consume queues, and is not deleted")
        state = self._core.state
        if self._core.release.is_5 and state.layout.conf.flag("clearRetryTopicWhenDeleteTopic", True):
            for group in {group for topic, group, _queue_id in state.offsets if topic == name}:
                for newer in (False, True):
                    state.remove_topic(retry_topic(name, group, newer=newer))
        state.remove_topic(name)
        self._core.topics_changed()
        return answer(request)

    def system_topics(self, _connection: Connection, request: Command) -> Command:
        """Request 305."""
        names = sorted(topic.topic_name or "" for topic in self._core.system_topics())
        return answer(request, body=b.TopicList(names, self._core.settings.address))

    # -- groups -------------------------------------------------------------------------------------------------------

    def update_group(self, _connection: Connection, request: Command) -> Command:
        """Request 200: the members that it has, whatever they are, as the file has them."""
        return self._set_groups(request, [SubscriptionGroup.parse(request.body)])

    def update_groups(self, _connection: Connection, request: Command) -> Command:
        """Request 225: all of them, or none."""
        return self._set_groups(request, a.GroupsToSet.parse(request.body).groups)

    def _set_groups(self, request: Command, wanted: Sequence[SubscriptionGroup]) -> Command:
        self._may_change()
        for config in wanted:
            try:
                check_group(config.group_name or "")
            except Rejected as err:
                raise Failed(ResponseCode.SYSTEM_ERROR, str(err)) from None
        for config in wanted:
            self._core.state.set_group(config)
        return answer(request)

    def groups(self, _connection: Connection, request: Command) -> Command:
        """Request 201."""
        return answer(request, body=self._core.state.groups_file())

    def group(self, _connection: Connection, request: Command) -> Command:
        """Request 352. One that is missing is made where a consumer of it would make it."""
        name = header_of(a.OneGroup, request).group
        found = self._core.state.groups.get(name) or self._core.state.ensure_group(name)
        if found is None:
            words = "No group in this broker"
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, words)
        return answer(request, body=dumps(found.write(self._core.release.version), BROWSER))

    def delete_group(self, _connection: Connection, request: Command) -> Command:
        """Request 207."""
        self._may_change()
        header = header_of(a.DeleteGroup, request)
        self._core.state.remove_group(header.group_name, offsets=header.remove_offset)
        return answer(request)


def _with_attributes(topic: TopicConfig | None, changes: str) -> dict[str, str]:
    """Attributes of a topic after ``+key=value,-key`` (common.attribute.AttributeParser, AttributeUtil).

    Raises:
        Failed: it does not read so, or a topic that is there would get queues of another kind.
    """
    known = dict((topic and topic.attributes) or {})
    for part in filter(None, (part.strip() for part in changes.split(","))):
        name, _, value = part[1:].partition("=")
        if topic is not None and name == BATCH_QUEUE[0]:
            words = f"attempt to update an unchangeable attribute. key: {name}"
            raise Failed(ResponseCode.SYSTEM_ERROR, words)
        if part[0] == "+" and name and value:
            known[name] = value
        elif part[0] == "-" and name and not value:
            known.pop(name, None)
        else:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"attribute format is wrong: {part}")
    return known
