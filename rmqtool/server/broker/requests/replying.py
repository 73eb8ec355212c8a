"""Replies to messages that asked for one: handed to the client that waits, and stored.

Source: broker.processor.ReplyMessageProcessor (4.9.8, 5.3.3); remoting-protocol 9.2.
"""

import logging

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.replies import Reply
from rmqtool.remoting.errors import RemotingError
from rmqtool.server.access import rights
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.requests.sending import Sending
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.store.append.outgoing import NewMessage

log = logging.getLogger(__name__)

REPLY_TO = "REPLY_TO_CLIENT"
_PATIENCE = 3.0  # s that the client has to answer


class Replying:
    """Requests that send a reply."""

    def __init__(self, context: BrokerContext, sending: Sending) -> None:
        self._context, self._sending = context, sending

    @handles(C.SEND_REPLY_MESSAGE, C.SEND_REPLY_MESSAGE_V2, right=rights.send_reply)
    async def reply(self, call: Call[h.Send, bytes]) -> Command:
        """Requests 324 and 325."""
        message = self._sending.build(call)
        self._sending.make_way(message.topic)
        remark = await self._push(call, message)
        sent = h.Sent(msg_id="0", queue_id=0, queue_offset=0)
        if self._context.store.layout.conf.flag("storeReplyMessageEnable", True):
            stored = self._context.store.append(message)
            if stored.ok:
                sent = h.Sent(msg_id=stored.message_id, queue_id=message.queue_id, queue_offset=stored.queue_offset)
                self._context.arrivals.publish(stored.topic, stored.queue_id)
            else:
                log.warning("%s: a reply cannot be stored: %s", call.connection.peer, stored.reason)
        if remark is not None:
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        return call.answer(sent)

    async def _push(self, call: Call[h.Send, bytes], message: NewMessage) -> str | None:
        """Push a reply to the waiting client; returns an error message, or None."""
        properties = message.property_map()
        client_id = properties.get(REPLY_TO)
        if client_id is None:
            return f"{REPLY_TO} is null, can not reply message"
        waiting = self._context.clients.find_connection(client_id)
        if waiting is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        header = call.header
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
            born_host=call.connection.peer,
            store_host=self._context.settings.address,
            store_timestamp=self._context.clock(),
        )
        request = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields=to_fields(reply), body=message.body)
        try:
            answer = await waiting.call(request, _PATIENCE)
        except RemotingError as err:
            return f"push reply message to {client_id} fail: {err}"
        return None if answer.code == ResponseCode.SUCCESS else f"push reply message to {client_id} fail."
