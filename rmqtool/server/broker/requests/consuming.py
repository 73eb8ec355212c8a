"""Clients that come and go, and what consumers of one group must agree on: members, locks, failed messages.

Source: broker.processor.ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor (locks),
SendMessageProcessor.consumerSendMsgBack (4.9.8, 5.3.3); remoting-protocol 9.1, 9.6; message-services 12, 14.3.
"""

import logging
from collections.abc import Iterable

from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Connection
from rmqtool.rules.sending import Rejected
from rmqtool.server.broker.known import counts
from rmqtool.server.broker.known.answers import Failed, answer, content_of, header_of
from rmqtool.server.broker.known.core import Core
from rmqtool.server.broker.known.filters import TAG, compiled
from rmqtool.services.sending.back import SendBack

log = logging.getLogger(__name__)


class Consuming:
    """The jobs of a broker around consumer groups."""

    def __init__(self, core: Core, back: SendBack) -> None:
        self._core, self._back = core, back

    # -- members ------------------------------------------------------------------------------------------------------

    def heartbeat(self, connection: Connection, request: Command) -> Command:
        """Request 34."""
        core = self._core
        data = content_of(b.HeartbeatData, request)
        known = []
        for consumer in data.consumer_data_set:
            group = core.state.ensure_group(consumer.group_name)
            if group is None:
                continue  # it will be told so when it asks for messages
            known.append(consumer)
            if not core.settings.read_only:
                core.ensure_topic(RETRY_PREFIX + consumer.group_name, group.retry_queue_nums, later=True)
        data.consumer_data_set = known
        self._tell(core.clients.heartbeat(connection, request, data, core.now()))
        differs = core.clients.differs(data)
        if not core.release.is_5:
            return answer(request)
        told = differs or not data.heartbeat_fingerprint
        return answer(request, h.HeartbeatAnswer(is_support_heart_beat_v2=True, is_sub_change=told))

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Request 35."""
        header = header_of(h.Unregister, request)
        self._tell(self._core.clients.leave(connection, header.producer_group, header.consumer_group))
        return answer(request)

    def ended(self, connection: Connection) -> None:
        """A connection is gone, and its clients with it."""
        self._tell(self._core.clients.ended(connection))

    def expire(self) -> None:
        """Close the connections of clients that were not heard of for too long."""
        for connection in self._core.clients.silent(self._core.now()):
            log.warning("%s: no heartbeat: closed", connection.peer)
            connection.abort()

    def _tell(self, groups: Iterable[str]) -> None:
        """Have the members of groups share the queues anew."""
        for name in groups:
            group = self._core.clients.consumers.get(name)
            config = self._core.state.groups.get(name)
            if group is None or (config is not None and not config.notify_consumer_ids_changed_enable):
                continue
            fields = to_fields(h.Group(consumer_group=name))
            for connection in list(group.clients):
                connection.tell(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields=fields))

    def members(self, _connection: Connection, request: Command) -> Command:
        """Request 38."""
        name = header_of(h.Group, request).consumer_group
        group = self._core.clients.consumers.get(name)
        if group is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return answer(request, body=b.ConsumerIds([client.client_id for client in group.clients.values()]))

    def check_client(self, _connection: Connection, request: Command) -> Command:
        """Request 46: whether a filter can be used."""
        found = content_of(b.CheckClient, request)
        kind = found.subscription_data.expression_type
        if kind != TAG and not self._core.settings.property_filter:
            words = f"The broker does not support consumer to filter message by {kind}"
            raise Failed(ResponseCode.SYSTEM_ERROR, words)
        if kind != TAG and compiled(found.subscription_data, self._core.release) is None:
            raise Failed(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "Invalid MessageSelector. ")
        return answer(request)

    # -- queues for one alone -----------------------------------------------------------------------------------------

    def lock(self, _connection: Connection, request: Command) -> Command:
        """Request 41."""
        asked = content_of(b.LockRequest, request)
        got = self._core.locks.lock(asked.consumer_group, asked.client_id, asked.mq_set)
        return answer(request, body=b.LockResponse(got))

    def unlock(self, _connection: Connection, request: Command) -> Command:
        """Request 42."""
        asked = content_of(b.LockRequest, request)
        self._core.locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return answer(request)

    # -- failures -----------------------------------------------------------------------------------------------------

    def give_back(self, _connection: Connection, request: Command) -> Command:
        """Request 36."""
        header = header_of(h.SendBack, request)
        core = self._core
        if core.settings.read_only:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{core.settings.address}] is read-only")
        try:
            result = self._back.send_back(
                header.group,
                header.offset,
                delay_level=header.delay_level,
                max_reconsume_times=header.max_reconsume_times,
            )
        except Rejected as err:
            raise Failed(err.code, str(err)) from None
        except (OSError, RmqError) as err:
            raise core.failed("a message cannot be taken back", err, ResponseCode.SYSTEM_ERROR) from None
        if result is not None:
            if core.state.topic(topic := header.origin_topic or "") is not None:
                core.counts.add(counts.SENT_BACK, f"{topic}@{header.group}", 1)
            if result.topic != SCHEDULE and core.state.topic(DLQ_PREFIX + header.group) is not None:
                core.topics_changed()
            core.arrived(result.topic, result.queue_id)
        return answer(request)
