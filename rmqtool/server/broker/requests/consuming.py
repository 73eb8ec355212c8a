"""Heartbeats of clients, and what the consumers of a group share: members, locks, failed messages.

Source: broker.processor.ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor (locks),
SendMessageProcessor.consumerSendMsgBack (4.9.8, 5.3.3); remoting-protocol 9.1, 9.6; message-services 12, 14.3.
"""

import logging
from collections.abc import Iterable

from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Connection
from rmqtool.rules.sending import Rejected
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.filters import TAG, compile_subscription
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.retries.send_back import SendBackStore

log = logging.getLogger(__name__)


class Consuming:
    """Requests about consumer groups."""

    def __init__(self, context: BrokerContext, back: SendBackStore) -> None:
        self._context, self._back = context, back

    # -- members ------------------------------------------------------------------------------------------------------

    @handles(C.HEART_BEAT, right=rights.heartbeat)
    def take_heartbeat(self, call: Call[None, b.HeartbeatData]) -> Command:
        """Request 34."""
        context = self._context
        data = call.body
        known = []
        for consumer in data.consumer_data_set:
            group = context.state.ensure_group(consumer.group_name)
            if group is None:
                continue  # it gets the error when it asks for messages
            known.append(consumer)
            if not context.settings.read_only:
                context.ensure_topic(RETRY_PREFIX + consumer.group_name, group.retry_queue_nums, later=True)
        data.consumer_data_set = known
        self._notify(context.clients.heartbeat(call.connection, call.request, data, context.now()))
        differs = context.clients.differs(data)
        if not context.release.is_5:
            return call.answer()
        changed = differs or not data.heartbeat_fingerprint
        return call.answer(h.HeartbeatAnswer(is_support_heart_beat_v2=True, is_sub_change=changed))

    @handles(C.UNREGISTER_CLIENT, right=rights.consume)
    def unregister(self, call: Call[h.Unregister, None]) -> Command:
        """Request 35."""
        header = call.header
        self._notify(self._context.clients.leave(call.connection, header.producer_group, header.consumer_group))
        return call.answer()

    def end_connection(self, connection: Connection) -> None:
        """Forget the clients of a closed connection, and notify their groups."""
        self._notify(self._context.clients.drop(connection))

    def expire(self) -> None:
        """Close the connections of clients whose heartbeats are overdue."""
        for connection in self._context.clients.find_silent(self._context.now()):
            log.warning("%s: no heartbeat: closed", connection.peer)
            connection.abort()

    def _notify(self, groups: Iterable[str]) -> None:
        """Have the members of groups rebalance."""
        for name in groups:
            group = self._context.clients.consumers.get(name)
            config = self._context.state.groups.get(name)
            if group is None or (config is not None and not config.notify_consumer_ids_changed_enable):
                continue
            fields = to_fields(h.ConsumerGroup(consumer_group=name))
            for connection in list(group.clients):
                connection.tell(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields=fields))

    @handles(C.GET_CONSUMER_LIST_BY_GROUP, right=rights.consume)
    def list_members(self, call: Call[h.ConsumerGroup, None]) -> Command:
        """Request 38."""
        name = call.header.consumer_group
        group = self._context.clients.consumers.get(name)
        if group is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return call.answer(body=b.ConsumerIds([client.client_id for client in group.clients.values()]))

    @handles(C.CHECK_CLIENT_CONFIG, right=rights.check_client)
    def check_client(self, call: Call[None, b.CheckClient]) -> Command:
        """Request 46: whether a filter can be used."""
        body = call.body
        kind = body.subscription_data.expression_type
        if kind != TAG and not self._context.settings.property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        if kind != TAG and compile_subscription(body.subscription_data, self._context.release) is None:
            raise Failed(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "Invalid MessageSelector. ")
        return call.answer()

    # -- queues for one alone -----------------------------------------------------------------------------------------

    @handles(C.LOCK_BATCH_MQ, right=rights.lock)
    def lock(self, call: Call[None, b.LockRequest]) -> Command:
        """Request 41."""
        asked = call.body
        locked = self._context.locks.lock(asked.consumer_group, asked.client_id, asked.mq_set)
        return call.answer(body=b.LockResponse(locked))

    @handles(C.UNLOCK_BATCH_MQ, right=rights.lock)
    def unlock(self, call: Call[None, b.LockRequest]) -> Command:
        """Request 42."""
        asked = call.body
        self._context.locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return call.answer()

    # -- failures -----------------------------------------------------------------------------------------------------

    @handles(C.CONSUMER_SEND_MSG_BACK, right=rights.send_back)
    def take_back(self, call: Call[h.ConsumerSendBack, None]) -> Command:
        """Request 36."""
        header = call.header
        context = self._context
        context.check_writable()
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
            raise context.failure("a message cannot be taken back", err, ResponseCode.SYSTEM_ERROR) from None
        if result is not None:
            if context.state.topic(topic := header.origin_topic or "") is not None:
                context.counts.add(counts.SENT_BACK, f"{topic}@{header.group}", 1)
            if result.topic != SCHEDULE and context.state.topic(DLQ_PREFIX + header.group) is not None:
                context.topic_changes.publish()
            context.arrivals.publish(result.topic, result.queue_id)
        return call.answer()
