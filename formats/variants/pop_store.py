"""Records of ``kvStore``: what a broker of 5.x may note for each message that it handed out to POP consumers.

With ``popConsumerKVServiceEnable`` they stand in place of checkpoints and acks: a key and a JSON value in RocksDB for
each message; an ack removes them.

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
    """Which message a record is of, and when it may be handed out again (ms since the epoch)."""

    visible_time: int
    group: str
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PopStoreRecord(Bean):
    """One message that is in flight (``PopConsumerRecord``)."""

    pop_time: Long = 0  # ms since the epoch
    group: str = member("groupId", "")
    topic: str = member("topicId", "")  # where the message lies: a retry topic for one that was revived before
    queue_id: Int = 0
    retry_flag: Int = 0  # 1, 2: of a retry topic with the older or the newer name
    invisible_time: Long = 0  # ms
    queue_offset: Long = member("offset", 0)
    attempts: Int = member("attemptTimes", 0)  # how often reviving it failed
    attempt_id: str | None = None
    suspended: bool | None = member("suspend", None)  # newer versions: the consumer gave it back

    @property
    def visible_time(self) -> int:
        """When it may be handed out again, ms since the epoch."""
        return self.pop_time + self.invisible_time

    @property
    def key(self) -> PopStoreKey:
        """What its key says."""
        return PopStoreKey(self.visible_time, self.group, self.topic, self.queue_id, self.queue_offset)

    def value(self) -> bytes:
        """As it is stored."""
        return dumps(self.write(V5_3), BROWSER)


def parse_key(key: bytes) -> PopStoreKey:
    """What a key says.

    Raises:
        BadLength: too short. BadText: no separators where they must be.
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
