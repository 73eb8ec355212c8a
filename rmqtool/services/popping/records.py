"""Store checkpoints and acks, as timer messages for the revive topic.

Source: broker.processor.PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck (5.3.3);
clients-and-live-admin 1.6.
"""

from formats.message.properties import TAGS, UNIQ_KEY
from formats.topics import REVIVE_PREFIX
from formats.variants import pop, timer
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.outgoing import NewMessage

_AHEAD = 1000  # ms by which a checkpoint reaches the revive topic before its acks


class Records:
    """Stores checkpoints and acks in a store that is open for writing.

    Args:
        address: HOST:PORT of the broker, their nominal sender.
    """

    def __init__(self, store: Store, cluster: str, address: str) -> None:
        self._store, self.address = store, address
        self.topic = REVIVE_PREFIX + cluster

    def put(self, record: pop.CheckPoint | pop.Ack, revive_queue: int, visible_time: int) -> PutResult:
        """Store a checkpoint or an ack, even on a nearly full disk: without it nobody can consume what fills the disk.

        Args:
            visible_time: when the messages of its checkpoint become visible again, ms since the epoch.
        """
        deliver = visible_time - _AHEAD if isinstance(record, pop.CheckPoint) else visible_time
        return self._store.append(
            NewMessage(
                topic=self.topic,
                queue_id=revive_queue,
                body=record.body(),
                properties={UNIQ_KEY: record.unique_key, TAGS: record.tag, timer.DELIVER_MS: str(deliver)},
                born_host=self.address,
                store_host=self.address,
            ),
            spare=True,
        )
