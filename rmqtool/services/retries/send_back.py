"""Messages that consumers send back: to the retry topic through a delay level, finally to the dead letters.

Source: broker.processor.SendMessageProcessor.asyncConsumerSendMsgBack and handleRetryAndDLQ (4.9.8, 5.3.3);
message-services 12.2, 12.4.
"""

from dataclasses import replace
from random import Random

from formats.message.ids import offset_id
from formats.message.properties import DELAY, WAIT, parse
from formats.model.groups import SubscriptionGroup
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, Perm
from rmqtool.rules.sending import NO_PERMISSION, SYSTEM_ERROR, Rejected
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.copies import copy_of
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

GROUP_NOT_EXIST = 26
_FIRST_LEVEL = 3


class SendBackStore:
    """Stores messages that consumers send back, in a store that is open for writing.

    Args:
        state: has groups and topics; its owner persists them.
        random: selects the queue of a retry topic.
    """

    def __init__(self, store: Store, state: BrokerState, random: Random | None = None) -> None:
        self.store, self.state = store, state
        self._random = random or Random()
        self._log = CommitLog(store.layout)

    def _read(self, physical_offset: int) -> LocatedRecord | None:
        message = self._log.read(physical_offset)
        if message is None:
            self._log = CommitLog(self.store.layout)  # the log may have grown a file
            message = self._log.read(physical_offset)
        return message

    def send_back(
        self, group: str, physical_offset: int, *, delay_level: int = 0, max_reconsume_times: int | None = None
    ) -> PutResult | None:
        """Send back the message at a physical offset, which a consumer of the group failed to consume.

        Args:
            delay_level: 0 leaves it to the broker: number of retries so far + 3. Negative: straight to the dead
                letters.
            max_reconsume_times: the consumer's own limit; None for the group's.

        Returns:
            The position of the copy; None if the group does not retry: the message is dropped.

        Raises:
            Rejected: with the response code.
        """
        config = self._group(group)
        if config.retry_queue_nums <= 0:
            return None
        topic, queue_id = RETRY_PREFIX + group, self._random.randrange(config.retry_queue_nums)
        self._writable(topic, config.retry_queue_nums)
        message = self._read(physical_offset)
        if message is None:
            raise Rejected(SYSTEM_ERROR, f"look message by offset failed, {physical_offset}")
        record = message.record
        properties = parse(record.properties)
        properties.setdefault(RETRY_TOPIC, record.topic.decode("utf-8", "replace"))
        properties[WAIT] = "false"
        most = config.retry_max_times if max_reconsume_times is None else max_reconsume_times
        if record.reconsume_times >= most or delay_level < 0:
            topic, queue_id, delay_level = DLQ_PREFIX + group, 0, 0
            self._writable(topic, 1)
        elif delay_level == 0:
            delay_level = _FIRST_LEVEL + record.reconsume_times
        properties[DELAY] = str(delay_level)
        if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
            properties[ORIGIN_MESSAGE_ID] = offset_id(record.store_address, record.store_port, physical_offset)
        return self._put(copy_of(record, topic, queue_id, properties, reconsume_times=record.reconsume_times + 1))

    def send_to_retry(
        self, message: NewMessage, max_reconsume_times: int | None = None, *, locked: bool = False
    ) -> PutResult:
        """Store a message that a client itself sends to the retry topic of its group.

        Consumers do so if sending back failed; orderly ones do so when a message exceeds their limit, and it then
        becomes a dead letter. In 4.9 a delay level still applies: the dead letter first waits for it.

        Args:
            message: with the number of its retries in ``reconsume_times``.
            max_reconsume_times: the consumer's own limit; None for the group's.
            locked: orderly consumers of the group hold queue locks; in 5.3 the message is then dead at once.

        Raises:
            Rejected: with the response code.
        """
        group = message.topic.removeprefix(RETRY_PREFIX)
        config = self._group(group)
        self.state.ensure_topic(message.topic, config.retry_queue_nums)
        most = config.retry_max_times if max_reconsume_times is None else max_reconsume_times
        release = self.store.live.release
        over = message.reconsume_times >= most + release.extra_retries or (locked and release.is_5)
        if over:
            topic, properties = DLQ_PREFIX + group, message.property_map()
            self.state.ensure_topic(topic)
            message = replace(
                message, topic=topic, queue_id=0, tags=None, keys=None,
                properties=properties | {DELAY: "-1"} if release.is_5 else properties,
            )  # fmt: skip
        return self._put(message)

    def _group(self, name: str) -> SubscriptionGroup:
        config = self.state.ensure_group(name)
        if config is None:
            raise Rejected(GROUP_NOT_EXIST, f"subscription group not exist, {name}")
        return config

    def _put(self, message: NewMessage) -> PutResult:
        stored = self.store.append(message)
        if not stored.ok:
            raise Rejected(SYSTEM_ERROR, f"{stored.status}: {stored.reason}")
        return stored

    def _writable(self, topic: str, queues: int) -> None:
        if not self.state.ensure_topic(topic, queues).perm & Perm.WRITE:
            raise Rejected(NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
