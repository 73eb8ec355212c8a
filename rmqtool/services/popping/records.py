"""Checkpoints and acks on their way into a store: messages for the revive topic that the timer holds until they count.

Source: broker.processor.PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck (5.3.3);
clients-and-live-admin 1.6.
"""

from formats.message.properties import TAGS, UNIQ_KEY
from formats.topics import REVIVE_PREFIX
from formats.variants import pop, timer
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.outgoing import Message

_AHEAD = 1000  # ms by which a checkpoint comes to the revive topic before its acks


class Records:
    """Puts them into a store that is open for writing.

    Args:
        address: HOST:PORT of the broker, which is taken for their sender.
    """

    def __init__(self, store: Store, cluster: str, address: str) -> None:
        self._store, self.address = store, address
        self.topic = REVIVE_PREFIX + cluster

    def put(self, record: pop.CheckPoint | pop.Ack, revive_queue: int, visible_time: int) -> PutResult:
        """Store one, in the last room of a disk too: without it nobody can consume what fills that.

        Args:
            visible_time: when the messages of its checkpoint may be handed out again, ms since the epoch.
        """
        deliver = visible_time - _AHEAD if isinstance(record, pop.CheckPoint) else visible_time
        return self._store.append(
            Message(
                topic=self.topic,
                queue_id=revive_queue,
                body=record.body(),
                properties={UNIQ_KEY: record.unique_key, TAGS: record.tag, timer.DELIVER_MS: str(deliver)},
                born_host=self.address,
                store_host=self.address,
            ),
            spare=True,
        )
