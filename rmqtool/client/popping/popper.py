"""Asking for messages that nobody else gets meanwhile, and saying what became of them.

Source: client.impl.consumer.PullAPIWrapper.popAsync, client.impl.MQClientAPIImpl.processPopResponse (5.3.3);
clients-and-live-admin 1.3, 1.4.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from formats.errors import FormatError
from formats.fastjson.declare import Declared
from formats.message.properties import parse
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.topics import LMQ_PREFIX
from formats.variants.pop_handle import POP_CK, Handle, origin_of, parse_parts, real_topic, retry_topic
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError
from rmqtool.client.cluster.namespaces import without_namespace
from rmqtool.client.pulling.pull import Received, records_in

_NOTHING = {ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND}
_PATIENCE = 10.0  # s that an answer may take beyond the time that the broker may wait


@dataclass(frozen=True)
class Popped(Received):
    """A message that is this client's for a while.

    Attributes:
        handle: by which it is acknowledged.
        until: when that while is over, in seconds of the event loop.
    """

    handle: str = ""
    until: float = 0.0


class Popper:
    """Pops messages of one topic in the name of a group.

    Args:
        tags, sql: which messages are wanted, as for a :class:`rmqtool.client.pulling.pull.Puller`.
    """

    def __init__(self, cluster: Cluster, group: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        self._cluster, self._group, self._tags = cluster, group, frozenset(tags)
        self._expression = sql if sql is not None else " || ".join(tags) or "*"
        self._kind = "TAG" if sql is None else "SQL92"

    def wants(self, message: Popped) -> bool:
        """Whether it has one of the tags: brokers know only their hashes."""
        return not self._tags or message.tags in self._tags

    async def pop(
        self, queue: MessageQueue, *, most: int, invisible: float, wait: float, from_first: bool
    ) -> list[Popped]:
        """Messages of a queue, or of any queue of its broker where its id is -1.

        Args:
            most: at most so many, up to 32.
            invisible: seconds for which others do not get them.
            wait: seconds that the broker may wait for the first.
            from_first: where a group begins that was never there: with the first message, or with the next one.

        Raises:
            NoRoute, RemotingError: the broker is not reached, or its answer is none.
            BrokerError: it refuses.
        """
        header = p.Pop(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=most,
            invisible_time=round(invisible * 1000),
            poll_time=round(wait * 1000),
            born_time=0,  # now, by the broker's clock: this client's may go wrong
            init_mode=0 if from_first else 1,
            exp_type=self._kind,
            exp=self._expression,
            order=False,
            bname=queue.broker_name,
        )
        address = await self._address(queue)
        response = await self._cluster.call(
            address, self._cluster.request(RequestCode.POP_MESSAGE, header), wait + _PATIENCE
        )
        until = asyncio.get_running_loop().time() + invisible
        if response.code in _NOTHING:
            return []
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response, address)
        with self._cluster.answers_of(address):
            try:
                return self._messages(queue, response, address, until)
            except FormatError as err:
                raise BadAnswer(f"{address}: messages without a handle: {err}") from None

    def _messages(self, queue: MessageQueue, response: Command, address: str, until: float) -> list[Popped]:
        told = header_from(p.Popped, response, address)
        parts = parse_parts(told.start_offset_info or "", told.msg_offset_info or "")
        starts = {(part.origin, part.queue_id): part.start_offset for part in parts}
        namespace = self._cluster.options.namespace
        sent_to = without_namespace(namespace, queue.topic) if namespace else None
        topic, group = queue.topic, self._group
        topics = {topic, retry_topic(topic, group), retry_topic(topic, group, newer=True)}
        light = topic.startswith(LMQ_PREFIX)  # whose messages are of other topics
        found = []
        for record in records_in(response.body, address):
            name = record.topic.decode("utf-8", "replace")
            if name not in topics and not light:
                raise BadAnswer(f"{address}: a message of {name[:100]} where those of {topic} were asked for")
            text = parse(record.properties).get(POP_CK)  # of a message that comes again the broker says it there
            if text is None or not _is_of(text, told.pop_time):
                origin = origin_of(name)
                text = Handle(
                    start_offset=starts.get((origin, record.queue_id), record.queue_offset),
                    pop_time=told.pop_time,
                    invisible_time=told.invisible_time,
                    revive_queue=told.revive_qid,
                    origin=origin,
                    broker_name=queue.broker_name,
                    queue_id=record.queue_id,
                    queue_offset=record.queue_offset,
                ).text
            where = MessageQueue(queue.topic, queue.broker_name, record.queue_id)
            found.append(Popped(where, record, sent_to, handle=text, until=until))
        return found

    async def ack(self, message: Popped) -> None:
        """It is consumed.

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not know that; it will come again.
        """
        handle = Handle.parse(message.handle)
        header = p.Ack(
            consumer_group=self._group,
            topic=real_topic(message.queue.topic, self._group, handle.origin),
            queue_id=handle.queue_id,
            extra_info=message.handle,
            offset=handle.queue_offset,
            bname=handle.broker_name,
        )
        await self._ask(message, RequestCode.ACK_MESSAGE, header)

    async def change(self, message: Popped, seconds: float) -> None:
        """It is to come again after so many seconds.

        Raises:
            NoRoute, RemotingError, BrokerError: it comes again when it would have done so anyway.
        """
        handle = Handle.parse(message.handle)
        header = p.ChangeInvisible(
            consumer_group=self._group,
            topic=real_topic(message.queue.topic, self._group, handle.origin),
            queue_id=handle.queue_id,
            extra_info=message.handle,
            offset=handle.queue_offset,
            invisible_time=round(seconds * 1000),
            bname=handle.broker_name,
        )
        await self._ask(message, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    async def _ask(self, message: Popped, code: RequestCode, header: Declared) -> None:
        await self._cluster.ask(await self._address(message.queue), self._cluster.request(code, header))

    async def _address(self, queue: MessageQueue) -> str:
        await self._cluster.route(queue.topic)
        return self._cluster.address(queue.broker_name)


def _is_of(handle: str, pop_time: int) -> bool:
    """Whether a handle is of this pop: a message that was copied may still have that of another one."""
    try:
        return Handle.parse(handle).pop_time == pop_time
    except FormatError:
        return False
