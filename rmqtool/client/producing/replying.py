"""Requests and replies between clients, through a broker (client.producer.RequestResponseFuture, utils.MessageUtil).

A request is an ordinary message. Its consumer sends the message built by :func:`reply_to`, and the broker forwards it
to the waiting client.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.properties import parse
from formats.remoting.codes import Language, RequestCode, ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from formats.remoting.replies import Reply
from formats.topics import REPLY_SUFFIX
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.producing.message import MESSAGE_TYPE, REPLY, Message, SendResult
from rmqtool.remoting.connection import Connection

log = logging.getLogger(__name__)

CORRELATION, REPLY_TO, TTL = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"
_CLUSTER = "CLUSTER"


class NoReply(ClientError):
    """A request was stored, but nobody replied in time.

    Attributes:
        sent: the send result of the request.
    """

    def __init__(self, text: str, sent: SendResult) -> None:
        super().__init__(text)
        self.sent = sent


@dataclass(frozen=True)
class Replied:
    """A reply to a request.

    Attributes:
        body: the body as the replying client sent it.
        properties: all properties, by RocketMQ's names.
        born_timestamp: when the reply was sent, ms.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str]
    flag: int
    born_timestamp: int


def reply_to(properties: Mapping[str, str], body: bytes) -> Message:
    """Build the reply to a request, to be sent with any producer.

    Args:
        properties: properties of the received request.

    Raises:
        ValueError: the message is not a request.
    """
    if not all(properties.get(name) for name in (_CLUSTER, CORRELATION, REPLY_TO)):
        raise ValueError("the message is no request: it does not say who waits for an answer")
    named = {name: properties[name] for name in (CORRELATION, REPLY_TO, TTL) if name in properties}
    return Message(f"{properties[_CLUSTER]}{REPLY_SUFFIX}", body, properties={**named, MESSAGE_TYPE: REPLY})


class Replies:
    """Pending requests of all producers of a client."""

    def __init__(self, cluster: Cluster) -> None:
        self._client_id = cluster.client_id
        self._waiting: dict[str, asyncio.Future[Replied]] = {}
        cluster.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take_reply)

    def make_request(self, message: Message, timeout: float) -> "tuple[Message, asyncio.Future[Replied]]":
        """Turn a message into a request; returns it with the future of its reply. The caller must call
        :meth:`forget`.
        """
        correlation = str(uuid.uuid4())
        named = {CORRELATION: correlation, REPLY_TO: self._client_id, TTL: str(max(round(timeout * 1000), 1))}
        answer: asyncio.Future[Replied] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = answer
        return replace(message, properties={**message.properties, **named}), answer

    def forget(self, request: Message) -> None:
        """Stop waiting for the reply to a request."""
        self._waiting.pop(request.properties[CORRELATION], None)

    def _take_reply(self, connection: Connection, request: Command) -> Command:
        """Handle a reply forwarded by a broker. A reply that nobody waits for is accepted too, as in Java."""
        try:
            header = from_fields(Reply, request.fields)
            named = parse((header.properties or "").encode())
            body = decompress(request.body, header.sys_flag)
        except FormatError as err:
            log.warning("%s: not an answer to a request: %s", connection.peer, err)
            return request.response(ResponseCode.SYSTEM_ERROR, "not an answer to a request", language=Language.PYTHON)
        answer = self._waiting.get(named.get(CORRELATION, ""))
        if answer is not None and not answer.done():
            answer.set_result(Replied(header.topic, body, named, header.flag, header.born_timestamp))
        else:
            log.info("%s: an answer for which nobody waits", connection.peer)
        return request.response(language=Language.PYTHON)
