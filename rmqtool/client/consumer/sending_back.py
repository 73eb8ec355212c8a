"""Send back messages that were not consumed: to their broker, or to the retry topic (DefaultMQPushConsumerImpl)."""

import logging
import random
import time
from dataclasses import dataclass

from formats.errors import FormatError
from formats.message.properties import DELAY, build, parse
from formats.primitives import COMPRESSED, COMPRESSION_MASK
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.topics import AUTO_CREATE, RETRY_PREFIX
from rmqtool.client.cluster.answers import SEND_STATUSES
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BrokerError, ClientError, NoRoute
from rmqtool.client.cluster.namespaces import with_namespace
from rmqtool.client.consumer.received import Received
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_TIMEOUT = 5.0  # s
_GROUP = "CLIENT_INNER_PRODUCER"
_ATTEMPTS = 3
_FIRST_LEVEL = 3  # delay level of the first redelivery
_ORIGIN, _RETRY_TOPIC, _TIMES, _MOST = "ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"


@dataclass(frozen=True)
class SendBack:
    """Sends messages of a group back.

    Attributes:
        most: how often a message is redelivered before it becomes a dead letter.
    """

    cluster: Cluster
    group: str
    most: int

    async def back(self, message: Received, level: int) -> None:
        """Send a message back with a delay level, or to the dead letters: through its broker, else as a new message.

        A message of a static topic is always sent as a new one, as another broker may hold it.

        Raises:
            ClientError, RemotingError: both failed.
        """
        if (await self.cluster.route(self._topic(message))).shared_as is not None:
            more = 1 if level >= 0 else self.most + self.cluster.options.release.extra_retries
            return await self._resend(message, message.reconsume_times + more)
        header = h.ConsumerSendBack(
            offset=message.record.physical_offset,
            group=self.group,
            delay_level=level,
            origin_msg_id=message.message_id,
            origin_topic=self._topic(message),
            unit_mode=False,
            max_reconsume_times=self.most,
            bname=message.queue.broker_name,
        )
        try:
            address = self.cluster.address(message.queue.broker_name)
            request = self.cluster.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
            await self.cluster.ask(address, request, _TIMEOUT)
        except (ClientError, RemotingError) as err:
            log.warning(
                "%s: sent to the retry topic, for its broker does not take it back: %s", message.message_id, err
            )
            await self._resend(message, message.reconsume_times + 1)

    async def dead(self, message: Received) -> None:
        """Turn a message of an orderly group into a dead letter: brokers decide that by its number of redeliveries.

        4.9 does so at the maximum number, 5.3 above it.

        Raises:
            ClientError, RemotingError: no broker accepted it.
        """
        more = self.cluster.options.release.extra_retries
        await self._resend(message, message.reconsume_times + more)

    def _topic(self, message: Received) -> str:
        """The topic with namespace."""
        return with_namespace(self.cluster.options.namespace, message.topic)

    async def _resend(self, message: Received, times: int) -> None:
        properties = parse(message.record.properties)
        properties.pop("TRAN_MSG", None)
        properties.setdefault(_ORIGIN, message.message_id)
        properties |= {
            _RETRY_TOPIC: self._topic(message),
            _TIMES: str(times),
            _MOST: str(self.most),
            DELAY: str(_FIRST_LEVEL + message.reconsume_times),
        }
        try:
            text = build(properties, trailing_separator=self.cluster.options.release.trailing_separator).decode()
        except FormatError as err:
            raise ClientError(f"{message.message_id}: its properties cannot be sent again: {err}") from None
        topic = RETRY_PREFIX + self.group
        route = await self.cluster.publish_route(topic)
        last: ClientError | RemotingError = NoRoute(f"{topic}: no queue")
        for queue in random.sample(route.writable, min(len(route.writable), _ATTEMPTS)):
            header = h.Send(
                producer_group=_GROUP,
                topic=topic,
                default_topic=AUTO_CREATE,
                default_topic_queue_nums=4,
                queue_id=queue.queue_id,
                sys_flag=message.record.sys_flag & (COMPRESSED | COMPRESSION_MASK),
                born_timestamp=time.time_ns() // 1_000_000,
                flag=message.record.flag,
                properties=text,
                reconsume_times=times,
                unit_mode=False,
                max_reconsume_times=self.most,
                batch=False,
                bname=queue.broker_name,
            )
            request = self.cluster.request(RequestCode.SEND_MESSAGE_V2, header, message.record.body)
            try:
                address = self.cluster.address(queue.broker_name)
                response = await self.cluster.call(address, request, _TIMEOUT)
            except (ClientError, RemotingError) as err:
                last = err
                continue
            if response.code in SEND_STATUSES:
                return
            last = BrokerError(response, address)
        raise last
