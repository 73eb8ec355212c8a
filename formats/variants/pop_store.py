"""Records of ``kvStore``, in which a 5.x broker can record each message handed out to POP consumers.

With ``popConsumerKVServiceEnable`` they replace checkpoints and acks: each message has a key and a JSON value in
RocksDB, which an ack removes.

Source: broker.pop.PopConsumerRecord, PopConsumerRocksdbStore, PopConsumerService (5.3.3); store-formats 7.12.
"""

from dataclasses import dataclass
from typing import NamedTuple

from formats.errors import BadLength, BadText
from formats.fastjson.declare import Bean, Int, Long, member
from formats.fastjson.dialects import BROWSER
from formats.fastjson.write import dumps
from formats.layouts.derived import POP_KEY_HEAD, POP_KEY_TAIL
from formats.versions import V5_3

PLACE = "kvStore"
FAMILY = "popState"  # column family
_MARK = b"@"


class PopStoreKey(NamedTuple):
    """The message a record belongs to, and when it becomes visible again (ms since the epoch)."""

    visible_time: int
    group: str
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PopStoreRecord(Bean):
    """One message in flight (``PopConsumerRecord``)."""

    pop_time: Long = 0  # ms since the epoch
    group: str = member("groupId", "")
    topic: str = member("topicId", "")  # topic that the message is stored in: a retry topic if it was revived before
    queue_id: Int = 0
    retry_flag: Int = 0  # 1, 2: from a retry topic with the old or the new naming
    invisible_time: Long = 0  # ms
    queue_offset: Long = member("offset", 0)
    attempts: Int = member("attemptTimes", 0)  # number of failed attempts to revive it
    attempt_id: str | None = None
    suspended: bool | None = member("suspend", None)  # newer versions: returned by the consumer

    @property
    def visible_time(self) -> int:
        """Time at which it becomes visible again, ms since the epoch."""
        return self.pop_time + self.invisible_time

    @property
    def key(self) -> PopStoreKey:
        """Fields of the record's key."""
        return PopStoreKey(self.visible_time, self.group, self.topic, self.queue_id, self.queue_offset)

    def value(self) -> bytes:
        """Return the stored value."""
        return dumps(self.write(V5_3), BROWSER)


def parse_key(key: bytes) -> PopStoreKey:
    """Parse a key.

    Raises:
        BadLength: the key is too short. BadText: separators are missing.
    """
    end = len(key) - POP_KEY_TAIL.size
    if end < POP_KEY_HEAD.size:
        raise BadLength(0, f"a key of {len(key)} bytes is too short")
    (visible,) = POP_KEY_HEAD.unpack_from(key, 0)
    mark, queue_id, mark_2, queue_offset = POP_KEY_TAIL.unpack_from(key, end)
    group, at, topic = key[POP_KEY_HEAD.size : end].partition(_MARK)
    if not at or mark != _MARK or mark_2 != _MARK:
        raise BadText(POP_KEY_HEAD.size, "no separators where the key of a POP record has them")
    group_name, topic_name = (name.decode("utf-8", "surrogateescape") for name in (group, topic))
    return PopStoreKey(visible, group_name, topic_name, queue_id, queue_offset)
