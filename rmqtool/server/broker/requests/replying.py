"""Replies to messages that asked for one: handed to the client that waits, and stored.

Source: broker.processor.ReplyMessageProcessor (4.9.8, 5.3.3); remoting-protocol 9.2.
"""

import logging

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.replies import Reply
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.server.broker.known.answers import Failed, answer, send_header
from rmqtool.server.broker.known.core import Core
from rmqtool.server.broker.requests.sending import Sending
from rmqtool.store.append.outgoing import Message

log = logging.getLogger(__name__)

REPLY_TO = "REPLY_TO_CLIENT"
_PATIENCE = 3.0  # s that the client has


class Replying:
    """The job of a broker that passes replies on."""

    def __init__(self, core: Core, sending: Sending) -> None:
        self._core, self._sending = core, sending

    async def handle(self, connection: Connection, request: Command) -> Command:
        """Requests 324 and 325."""
        header = send_header(request, old=RequestCode.SEND_REPLY_MESSAGE)
        message = self._sending.message(connection, header, request.body)
        self._sending.make_way(message.topic)
        remark = await self._push(connection, header, message)
        sent = h.Sent(msg_id="0", queue_id=0, queue_offset=0)
        if self._core.store.layout.conf.flag("storeReplyMessageEnable", True):
            result = self._core.store.append(message)
            if result.ok:
                sent = h.Sent(msg_id=result.message_id, queue_id=message.queue_id, queue_offset=result.queue_offset)
                self._core.arrived(result.topic, result.queue_id)
            else:
                log.warning("%s: a reply cannot be stored: %s", connection.peer, result.reason)
        if remark is not None:
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        return answer(request, sent)

    async def _push(self, connection: Connection, header: h.Send, message: Message) -> str | None:
        """Hand it to whoever waits for it; why that cannot be done."""
        properties = message.property_map()
        client_id = properties.get(REPLY_TO)
        if client_id is None:
            return f"{REPLY_TO} is null, can not reply message"
        waiting = self._core.clients.by_id(client_id)
        if waiting is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        reply = Reply(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=header.properties,
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=connection.peer,
            store_host=self._core.settings.address,
            store_timestamp=self._core.clock(),
        )
        request = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields=to_fields(reply), body=message.body)
        try:
            got = await waiting.call(request, _PATIENCE)
        except RemotingError as err:
            return f"push reply message to {client_id} fail: {err}"
        return None if got.code == ResponseCode.SUCCESS else f"push reply message to {client_id} fail."
