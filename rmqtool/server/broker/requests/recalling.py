"""Recall of delayed messages (5.x).

The sender of a delayed message gets a handle. Recalling it stores a mark in the same slot of the timer, which removes
the message.

Source: broker.processor.RecallMessageProcessor, SendMessageProcessor.attachRecallHandle (5.3.3).
"""

import logging

from formats.errors import BadText
from formats.message.properties import REAL_TOPIC, TAGS, UNIQ_KEY, build, parse
from formats.message.read import java_int
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import RETRY_PREFIX, Perm
from formats.variants import timer
from formats.variants.recall_handle import RecallHandle
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V5_3
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.delayed import TimerRules
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.queues.timer.messages import build_recall_key, recalls_by_topic

log = logging.getLogger(__name__)

_TAG, _BODY = "_RECALL_TAG_", b"0"
_NOT_NOW = "recall failed, broker service not available"


def handle_of(context: BrokerContext, result: PutResult) -> str | None:
    """The handle of a stored message; None unless it waits in the timer for its first delivery."""
    if result.topic != timer.TOPIC or not result.ok:
        return None
    message = context.reading.message(result.physical_offset)
    named = {} if message is None else parse(message.record.properties)
    topic, out = named.get(REAL_TOPIC, ""), java_int(named.get(timer.OUT_MS, ""), 64)
    if out is None or not topic or topic.startswith(RETRY_PREFIX):
        return None
    handle = RecallHandle(
        topic=topic, broker_name=context.settings.name, deliver_ms=out + 1, message_id=named.get(UNIQ_KEY, "")
    )
    return handle.text


class Recalling:
    """Requests that recall delayed messages."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(C.RECALL_MESSAGE, right=rights.write_topic, since=V5_3)
    def recall(self, call: Call[h.Recall, None]) -> Command:
        """Request 370."""
        header = call.header
        region = self._context.settings.region
        try:
            handle = self._read_handle(header)
            self._put(call.connection, header, handle)
        except Failed as err:
            return call.answer(h.Recalled(msg_region=region), code=err.code, remark=str(err))
        return call.answer(h.Recalled(msg_id=handle.message_id, msg_region=region))

    def _read_handle(self, header: h.Recall) -> RecallHandle:
        """The message to recall.

        Raises:
            Failed: it cannot be recalled, or it is too late.
        """
        context, settings = self._context, self._context.settings
        conf = context.store.layout.conf
        if not conf.flag("recallMessageEnable", False):
            raise Failed(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        allowed = settings.permission & Perm.WRITE or conf.flag("allowRecallWhenBrokerNotWriteable", True)
        if settings.read_only or not allowed:
            raise Failed(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_NOW)
        if context.state.topic(header.topic) is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = RecallHandle.parse(header.recall_handle)
        except BadText as err:
            raise Failed(ResponseCode.ILLEGAL_OPERATION, err.reason) from None
        if handle.topic != header.topic:
            raise Failed(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != settings.name:
            raise Failed(ResponseCode.ILLEGAL_OPERATION, _NOT_NOW)
        left = handle.deliver_ms - context.clock()
        if not 0 < left < TimerRules.of(conf, context.clock).longest:
            raise Failed(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _put(self, connection: Connection, header: h.Recall, handle: RecallHandle) -> None:
        context = self._context
        by_topic = recalls_by_topic(context.store.layout)
        properties = {
            TAGS: _TAG,
            timer.DELETE_KEY: build_recall_key(handle.topic, handle.message_id, by_topic=by_topic),
            UNIQ_KEY: handle.message_id,
            timer.DELIVER_MS: str(handle.deliver_ms),
            "BORN_TIMESTAMP": str(context.clock()),
            "TRACE_CONTEXT": "",
        }
        if header.producer_group is not None:
            properties["PGROUP"] = header.producer_group
        mark = NewMessage(
            topic=handle.topic,
            body=_BODY,
            properties=build(properties, trailing_separator=True),  # with an empty one, as in a broker
            born_host=connection.peer,
            store_host=context.settings.address,
        )
        try:
            stored = context.store.append(mark)
        except (OSError, RmqError) as err:
            context.log.error(f"a recall cannot be stored: {err}")
            raise Failed(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        if not stored.ok:
            log.warning("%s: a recall cannot be stored: %s", connection.peer, stored.reason)
            raise Failed(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        context.counts.add(counts.TOPIC_PUT, stored.topic, 1)
        context.counts.add(counts.TOPIC_PUT_SIZE, stored.topic, stored.size)
        context.counts.add(counts.BROKER_PUT, context.settings.cluster, 1)
        context.counts.add(counts.BROKER_PUT_SIZE, context.settings.cluster, stored.size)
