"""Requests that change a broker or its clients: reset and clone offsets, ask clients, clean up.

Source: broker.processor.AdminBrokerProcessor, broker.client.net.Broker2Client (4.9.8, 5.3.3); remoting-protocol 10.5.
"""

import logging
from dataclasses import replace

from formats.config.properties import parse_properties
from formats.errors import FormatError
from formats.fastjson.declare import body_of, read_body, to_json
from formats.fastjson.dialects import BODY
from formats.fastjson.write import dumps
from formats.message.ids import parse_offset_id
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import Language, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.errors import BadValue
from rmqtool.remoting.connection import Answer
from rmqtool.remoting.errors import RemotingError
from rmqtool.server.access import rights
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.clients import Client
from rmqtool.server.broker.requests.positions import OffsetRequests
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.serving.cleaning import Cleaning
from rmqtool.store.config.settings import settings_of
from rmqtool.words import counted

log = logging.getLogger(__name__)

_OLDEST_RESET, _OLDEST_ASKED = 28, 62  # versions of clients that understand 220, and 307 and 309
_PATIENCE = 10.0  # s that a client has to answer


class Control:
    """Requests that change offsets of groups, are passed on to clients, or remove what has expired.

    Args:
        state: the tables of a store that is open for writing; None for one that is only read.
    """

    def __init__(self, context: BrokerContext, positions: OffsetRequests, state: BrokerState | None) -> None:
        self._context, self._positions = context, positions
        self._cleaning: Cleaning | None = None
        if state is not None:
            self._cleaning = Cleaning(context.store, state, context.reading, context.is_system, self._restart)

    # -- cleaning -----------------------------------------------------------------------------------------------------

    @handles(C.DELETE_EXPIRED_COMMITLOG)
    def remove_expired_files(self, call: Call[None, None]) -> Command:
        """Request 329: all expired files at once; a broker removes ten of the log every ten seconds."""
        removed = self._need_cleaning().remove_expired_files()
        log.info("%s has removed %s that had expired", call.connection.peer, counted(removed, "file"))
        return call.answer()

    @handles(C.CLEAN_EXPIRED_CONSUMEQUEUE)
    def remove_expired_queues(self, call: Call[None, None]) -> Command:
        """Request 306: queues none of whose messages is in the log."""
        self._report_removed(call.connection.peer, self._need_cleaning().remove_expired_queues())
        return call.answer()

    @handles(C.CLEAN_UNUSED_TOPIC)
    def remove_unused_queues(self, call: Call[None, None]) -> Command:
        """Request 316: queues of topics without settings, as far as none of their messages is in the log."""
        removed, kept = self._need_cleaning().remove_unused_queues()
        self._report_removed(call.connection.peer, removed)
        if kept:
            topics = ", ".join(sorted({topic for topic, _queue_id in kept}))
            remark = (
                f"{counted(len(kept), 'queue')} of {topics} stay: their messages are in the log, and after a kill the "
                "next start would take them for the beginning of the queue"
            )
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        return call.answer()

    def _need_cleaning(self) -> Cleaning:
        self._context.check_writable()
        assert self._cleaning is not None
        return self._cleaning

    def _report_removed(self, peer: str, queues: list[tuple[str, int]]) -> None:
        for topic, queue_id in queues:
            log.info("%s has removed queue %d of %s: its messages had expired", peer, queue_id, topic)

    def _restart(self, topic: str, group: str, queue_id: int) -> None:
        """Have a group that is online begin a queue at offset 0 again."""
        if self._context.settings.server_side_reset:
            self._context.resets[topic, group, queue_id] = 0

    # -- settings -----------------------------------------------------------------------------------------------------

    @handles(C.UPDATE_BROKER_CONFIG)
    def change_settings(self, call: Call[None, bytes]) -> Command:
        """Request 25: change settings, until the broker is restarted."""
        context = self._context
        values = {name: text for name, text in parse_properties(call.body).items() if not self._has(name, text)}
        try:
            changed = context.settings.with_changes(values)
        except BadValue as err:
            raise Failed(ResponseCode.SYSTEM_ERROR, str(err)) from None
        permission, context.settings = context.settings.permission, changed
        for name, value in values.items():
            log.info("%s has set %s=%s", call.connection.peer, name, value)
        if not changed.server_side_reset:
            context.resets.clear()  # from now on, groups move by themselves
        if changed.permission != permission:
            context.topic_changes.publish()
        return call.answer()

    def _has(self, name: str, text: str) -> bool:
        """Whether a setting that cannot change has this value already."""
        context = self._context
        setting = settings_of(context.release).get(name)
        if setting is None or name in context.settings.changeable:
            return False
        here = context.store.layout.conf.text(name)
        value = setting.default if here is None else setting.takes(here)
        return value is not None and setting.takes(text.strip()) == value

    # -- offsets ------------------------------------------------------------------------------------------------------

    @handles(C.INVOKE_BROKER_TO_RESET_OFFSET, right=rights.consume)
    def reset_offsets(self, call: Call[h.ResetOffset, None]) -> Command:
        """Request 222."""
        header = call.header
        config = self._context.state.topic(header.topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise Failed(self._context.release.no_topic_code, remark)
        if self._context.settings.server_side_reset:
            return self._reset_here(call, config.read_queue_nums)
        return self._reset_by_clients(call, config.write_queue_nums)

    def _reset_here(self, call: Call[h.ResetOffset, None], queues: int) -> Command:
        """As in 5.x: the broker sets the offsets, and the next pulls get them."""
        context, header = self._context, call.header
        topic, group = header.topic, header.group
        if group not in context.state.groups:
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the group {group} does not exist")
        table: dict[MessageQueue, int] = {}
        only_queue = header.queue_id if header.queue_id is not None and header.queue_id >= 0 else None
        for queue_id in range(queues) if only_queue is None else [only_queue]:
            low, high = context.reading.min_offset(topic, queue_id), context.reading.max_offset(topic, queue_id)
            if only_queue is not None and header.offset is not None and header.offset >= 0:
                wanted = header.offset
                if not low <= wanted <= high + 1:
                    remark = f"Target offset {wanted} not in consume queue range [{low}-{high}]"
                    raise Failed(ResponseCode.SYSTEM_ERROR, remark)
            else:
                wanted = high if header.timestamp < 0 else self._positions.offset_at(topic, queue_id, header.timestamp)
            table[MessageQueue(topic, context.settings.name, queue_id)] = wanted
        for queue, offset in table.items():
            context.state.set_offset(topic, group, queue.queue_id, offset)
            context.resets[topic, group, queue.queue_id] = offset
            context.arrivals.publish(topic, queue.queue_id)
        return call.answer(body=b.ResetOffsets(table))

    def _reset_by_clients(self, call: Call[h.ResetOffset, None], queues: int) -> Command:
        """As in 4.9: the clients get the offsets, and commit them."""
        context, header = self._context, call.header
        topic, group = header.topic, header.group
        table: dict[MessageQueue, int] = {}
        for queue_id in range(queues):
            known = context.state.offset(topic, group, queue_id)
            if known is None:
                raise Failed(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            if header.timestamp == -1:
                wanted = context.reading.max_offset(topic, queue_id)
            else:
                wanted = max(self._positions.offset_at(topic, queue_id, header.timestamp), 0)
            if not header.is_force and wanted >= known:
                wanted = known
            table[MessageQueue(topic, context.settings.name, queue_id)] = wanted
        online = context.clients.consumers.get(group)
        if online is None:
            remark = f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
            raise Failed(ResponseCode.CONSUMER_NOT_ONLINE, f"{remark}Timestamp: {header.timestamp}")
        old = [client for client in online.clients.values() if client.version < _OLDEST_RESET]
        if old:
            remark = f"the client does not support this feature. version={old[0].version}"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        fields = to_fields(replace(header, queue_id=None, offset=None))
        body = _reset_body(table, call.request.language)
        for connection in list(online.clients):
            connection.tell(Command(C.RESET_CONSUMER_CLIENT_OFFSET, fields=fields, body=body))
        return call.answer(body=b.ResetOffsets(table))

    @handles(C.CLONE_GROUP_OFFSET)
    def clone_offsets(self, call: Call[a.CloneOffsets, None]) -> Command:
        """Request 314."""
        header = call.header
        state = self._context.state
        for (topic, group, queue_id), offset in list(state.offsets.items()):
            if group == header.src_group and header.topic in (None, "", topic):
                state.set_offset(topic, header.dest_group, queue_id, offset)
        return call.answer()

    # -- clients ------------------------------------------------------------------------------------------------------

    @handles(C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, right=rights.consume)
    async def show_status(self, call: Call[a.ConsumerStatus, None]) -> Command:
        """Request 223: where each client is."""
        header = call.header
        group = self._context.clients.consumers.get(header.group)
        clients = list(group.clients.values()) if group is not None else []
        if header.client_addr:
            clients = [client for client in clients if client.client_id == header.client_addr]
        if not clients:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        table = {}
        fields = to_fields(replace(header, client_addr=None))
        for client in clients:
            answer = await self._ask(client, Command(C.GET_CONSUMER_STATUS_FROM_CLIENT, fields=fields))
            if not answer.code:
                table[client.client_id] = read_body(a.ClientOffsets, answer.body).message_queue_table
        return call.answer(body=a.GroupStatus(consumer_table=table))

    @handles(C.GET_CONSUMER_RUNNING_INFO, right=rights.consume)
    def show_running_info(self, call: Call[a.RunningInfo, None]) -> Answer:
        """Request 307."""
        header = call.header
        return self._pass_on(call.request, header.consumer_group, header.client_id, call.request.fields or {}, b"")

    @handles(C.CONSUME_MESSAGE_DIRECTLY, right=rights.consume_directly)
    def consume_directly(self, call: Call[a.ConsumeDirectly, None]) -> Answer:
        """Request 309: a client consumes one message now."""
        header = call.header
        body = b""
        if header.msg_id:
            try:
                offset = parse_offset_id(header.msg_id).physical_offset
            except FormatError as err:
                raise Failed(ResponseCode.SYSTEM_ERROR, f"{header.msg_id}: {err}") from None
            body = bytes(self._context.reading.record(offset) or b"")
        fields = {**(call.request.fields or {}), "brokerName": self._context.settings.name}
        return self._pass_on(call.request, header.consumer_group, header.client_id or "", fields, body)

    async def _pass_on(
        self, request: Command, group: str, client_id: str, fields: dict[str, str], body: bytes
    ) -> Command:
        consumers = self._context.clients.consumers.get(group)
        client = consumers.client(client_id) if consumers is not None else None
        if client is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if client.version < _OLDEST_ASKED:
            remark = f"The Consumer <{client_id}> Version <{client.version}> too low to finish, please upgrade it"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        answer = await self._ask(client, Command(request.code, fields=fields, body=body))
        return request.response(answer.code, answer.remark, fields=answer.fields, body=answer.body)

    async def _ask(self, client: Client, request: Command) -> Command:
        try:
            return await client.connection.call(request, _PATIENCE)
        except RemotingError as err:
            raise Failed(ResponseCode.CONSUME_MSG_TIMEOUT, str(err)) from None


def _reset_body(table: dict[MessageQueue, int], language: Language | None) -> bytes:
    """C++ clients get a list, as their JSON cannot have objects as keys."""
    if language is not Language.CPP:
        return body_of(b.ResetOffsets(table))
    return dumps({"offsetTable": [{**to_json(queue), "offset": offset} for queue, offset in table.items()]}, BODY)
