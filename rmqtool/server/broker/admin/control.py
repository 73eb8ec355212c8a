"""What administrators have a broker do: reset and clone offsets, ask clients, clean up.

Source: broker.processor.AdminBrokerProcessor, broker.client.net.Broker2Client (4.9.8, 5.3.3); remoting-protocol 10.5.
"""

import logging
from collections.abc import Callable
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
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.server.broker.known.answers import Failed, answer, header_of
from rmqtool.server.broker.known.clients import Client
from rmqtool.server.broker.known.core import Core
from rmqtool.server.broker.requests.positions import Positions

log = logging.getLogger(__name__)

Handle = Callable[[Connection, Command], Answer]
_OLDEST_RESET, _OLDEST_ASKED = 28, 62  # versions of clients that understand 220, and 307 with 309
_PATIENCE = 10.0  # s that a client has


class Control:
    """Requests that change where groups are, or are passed on to clients."""

    def __init__(self, core: Core, positions: Positions) -> None:
        self._core, self._positions = core, positions

    def handlers(self) -> dict[int, Handle]:
        """By request code."""
        return {
            C.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
            C.GET_CONSUMER_RUNNING_INFO: self.running_info,
            C.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            C.CLONE_GROUP_OFFSET: self.clone,
            C.UPDATE_BROKER_CONFIG: self.change_settings,
            C.CLEAN_EXPIRED_CONSUMEQUEUE: self.nothing,
            C.CLEAN_UNUSED_TOPIC: self.nothing,
            C.DELETE_EXPIRED_COMMITLOG: self.nothing,
        }

    def nothing(self, _connection: Connection, request: Command) -> Command:
        """Requests 306, 316, 329: nothing is removed while a store is served; ``rmqtool clean`` does it."""
        return answer(request)

    def change_settings(self, connection: Connection, request: Command) -> Command:
        """Request 25: settings count from now on, until the store is served again."""
        values = parse_properties(request.body)
        core = self._core
        try:
            changed = core.settings.changed(values)
        except BadValue as err:
            raise Failed(ResponseCode.SYSTEM_ERROR, str(err)) from None
        permission, core.settings = core.settings.permission, changed
        for name, value in values.items():
            log.info("%s has set %s=%s", connection.peer, name, value)
        if changed.permission != permission:
            core.topics_changed()
        return answer(request)

    # -- offsets ------------------------------------------------------------------------------------------------------

    def reset(self, _connection: Connection, request: Command) -> Command:
        """Request 222."""
        header = header_of(h.ResetOffset, request)
        config = self._core.state.topic(header.topic)
        if config is None:
            words = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise Failed(self._core.release.no_topic_code, words)
        if self._core.release.is_5:
            return self._reset_here(request, header, config.read_queue_nums)
        return self._reset_by_clients(request, header, config.write_queue_nums)

    def _reset_here(self, request: Command, header: h.ResetOffset, queues: int) -> Command:
        """As 5.x does it: the broker sets the offsets, and the next pulls are told."""
        core, topic, group = self._core, header.topic, header.group
        if group not in core.state.groups:
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the group {group} does not exist")
        table: dict[MessageQueue, int] = {}
        one = header.queue_id if header.queue_id is not None and header.queue_id >= 0 else None
        for queue_id in range(queues) if one is None else [one]:
            low, high = core.reading.min_offset(topic, queue_id), core.reading.max_offset(topic, queue_id)
            if one is not None and header.offset is not None and header.offset >= 0:
                wanted = header.offset
                if not low <= wanted <= high + 1:
                    words = f"Target offset {wanted} not in consume queue range [{low}-{high}]"
                    raise Failed(ResponseCode.SYSTEM_ERROR, words)
            else:
                wanted = high if header.timestamp < 0 else self._positions.offset_at(topic, queue_id, header.timestamp)
            table[MessageQueue(topic, core.settings.name, queue_id)] = wanted
        for queue, offset in table.items():
            core.state.set_offset(topic, group, queue.queue_id, offset)
            core.resets[topic, group, queue.queue_id] = offset
            core.arrived(topic, queue.queue_id)
        return answer(request, body=b.ResetOffsets(table))

    def _reset_by_clients(self, request: Command, header: h.ResetOffset, queues: int) -> Command:
        """As 4.9 does it: the clients are told, and they commit."""
        core, topic, group = self._core, header.topic, header.group
        table: dict[MessageQueue, int] = {}
        for queue_id in range(queues):
            known = core.state.offset(topic, group, queue_id)
            if known is None:
                raise Failed(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            if header.timestamp == -1:
                wanted = core.reading.max_offset(topic, queue_id)
            else:
                wanted = max(self._positions.offset_at(topic, queue_id, header.timestamp), 0)
            if not header.is_force and wanted >= known:
                wanted = known
            table[MessageQueue(topic, core.settings.name, queue_id)] = wanted
        online = core.clients.consumers.get(group)
        if online is None:
            words = f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
            raise Failed(ResponseCode.CONSUMER_NOT_ONLINE, f"{words}Timestamp: {header.timestamp}")
        old = [client for client in online.clients.values() if client.version < _OLDEST_RESET]
        if old:
            words = f"the client does not support this feature. version={old[0].version}"
            raise Failed(ResponseCode.SYSTEM_ERROR, words)
        fields = to_fields(replace(header, queue_id=None, offset=None))
        body = _reset_body(table, request.language)
        for connection in list(online.clients):
            connection.tell(Command(C.RESET_CONSUMER_CLIENT_OFFSET, fields=fields, body=body))
        return answer(request, body=b.ResetOffsets(table))

    def clone(self, _connection: Connection, request: Command) -> Command:
        """Request 314."""
        header = header_of(a.CloneOffsets, request)
        state = self._core.state
        for (topic, group, queue_id), offset in list(state.offsets.items()):
            if group == header.src_group and header.topic in (None, "", topic):
                state.set_offset(topic, header.dest_group, queue_id, offset)
        return answer(request)

    # -- clients ------------------------------------------------------------------------------------------------------

    async def status(self, _connection: Connection, request: Command) -> Command:
        """Request 223: where each client is."""
        header = header_of(a.ConsumerStatus, request)
        group = self._core.clients.consumers.get(header.group)
        clients = list(group.clients.values()) if group is not None else []
        if header.client_addr:
            clients = [client for client in clients if client.client_id == header.client_addr]
        if not clients:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        table = {}
        fields = to_fields(replace(header, client_addr=None))
        for client in clients:
            found = await self._asked(client, Command(C.GET_CONSUMER_STATUS_FROM_CLIENT, fields=fields))
            if not found.code:
                table[client.client_id] = read_body(a.ClientOffsets, found.body).message_queue_table
        return answer(request, body=a.GroupStatus(consumer_table=table))

    def running_info(self, connection: Connection, request: Command) -> Answer:
        """Request 307."""
        header = header_of(a.RunningInfo, request)
        return self._passed_on(request, header.consumer_group, header.client_id, dict(request.fields or {}), b"")

    def consume_directly(self, _connection: Connection, request: Command) -> Answer:
        """Request 309: a client consumes one message now."""
        header = header_of(a.ConsumeDirectly, request)
        body = b""
        if header.msg_id:
            try:
                offset = parse_offset_id(header.msg_id).physical_offset
            except FormatError as err:
                raise Failed(ResponseCode.SYSTEM_ERROR, f"{header.msg_id}: {err}") from None
            body = bytes(self._core.reading.record(offset) or b"")
        fields = {**(request.fields or {}), "brokerName": self._core.settings.name}
        return self._passed_on(request, header.consumer_group, header.client_id or "", fields, body)

    async def _passed_on(
        self, request: Command, group: str, client_id: str, fields: dict[str, str], body: bytes
    ) -> Command:
        found = self._core.clients.consumers.get(group)
        client = found.client(client_id) if found is not None else None
        if client is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if client.version < _OLDEST_ASKED:
            words = f"The Consumer <{client_id}> Version <{client.version}> too low to finish, please upgrade it"
            raise Failed(ResponseCode.SYSTEM_ERROR, words)
        got = await self._asked(client, Command(request.code, fields=fields, body=body))
        return request.response(got.code, got.remark, fields=got.fields, body=got.body)

    async def _asked(self, client: Client, request: Command) -> Command:
        try:
            return await client.connection.call(request, _PATIENCE)
        except RemotingError as err:
            raise Failed(ResponseCode.CONSUME_MSG_TIMEOUT, str(err)) from None


def _reset_body(table: dict[MessageQueue, int], language: Language | None) -> bytes:
    """Clients in C++ get a list, since their JSON has no objects for keys."""
    if language is not Language.CPP:
        return body_of(b.ResetOffsets(table))
    return dumps({"offsetTable": [{**to_json(queue), "offset": offset} for queue, offset in table.items()]}, BODY)
