"""Requests that other clients answer, by way of a broker (client.producer.RequestResponseFuture, utils.MessageUtil).

A request is a message like any other; its consumer sends back the message that :func:`reply_to` makes of it,
and the broker hands that to the client which waits.
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
from rmqtool.client.producing.message import Message, SendResult
from rmqtool.client.producing.requests import MESSAGE_TYPE, REPLY
from rmqtool.remoting.connection import Connection

log = logging.getLogger(__name__)

CORRELATION, REPLY_TO, TTL = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"
_CLUSTER = "CLUSTER"


class NoReply(ClientError):
    """A request was stored, and nobody answered it in time.

    Attributes:
        sent: where it is.
    """

    def __init__(self, words: str, sent: SendResult) -> None:
        super().__init__(words)
        self.sent = sent


@dataclass(frozen=True)
class Replied:
    """An answer to a request.

    Attributes:
        body: as the one who answered sent it.
        properties: all of them, by RocketMQ's names.
        born_timestamp: when it was sent, ms.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str]
    flag: int
    born_timestamp: int


def reply_to(properties: Mapping[str, str], body: bytes) -> Message:
    """The message that answers a request, to be sent with any producer.

    Args:
        properties: of the request, as it was received.

    Raises:
        ValueError: it is no request.
    """
    if not all(properties.get(name) for name in (_CLUSTER, CORRELATION, REPLY_TO)):
        raise ValueError("the message is no request: it does not say who waits for an answer")
    named = {name: properties[name] for name in (CORRELATION, REPLY_TO, TTL) if name in properties}
    return Message(f"{properties[_CLUSTER]}{REPLY_SUFFIX}", body, properties={**named, MESSAGE_TYPE: REPLY})


class Replies:
    """Who waits for which answer, of all producers of a client."""

    def __init__(self, cluster: Cluster) -> None:
        self._client_id = cluster.client_id
        self._waiting: dict[str, asyncio.Future[Replied]] = {}
        cluster.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take_reply)

    def asking(self, message: Message, timeout: float) -> "tuple[Message, asyncio.Future[Replied]]":
        """A message as a request of this client, and what will hold the answer; the caller calls :meth:`done`."""
        correlation = str(uuid.uuid4())
        named = {CORRELATION: correlation, REPLY_TO: self._client_id, TTL: str(max(round(timeout * 1000), 1))}
        answer: asyncio.Future[Replied] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = answer
        return replace(message, properties={**message.properties, **named}), answer

    def forget(self, request: Message) -> None:
        """Nobody waits for an answer to this request any more."""
        self._waiting.pop(request.properties[CORRELATION], None)

    def _take_reply(self, connection: Connection, request: Command) -> Command:
        """A broker hands over an answer. One that nobody waits for any more is taken too, as in Java."""
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
