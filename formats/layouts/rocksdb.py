"""Keys and values of consume queues in RocksDB.

Source: org.apache.rocketmq.store.queue.RocksDBConsumeQueueTable and RocksDBConsumeQueueOffsetTable; store-formats 4.6.
"""

from construct import Bytes, Int8sb, Int32sb, Int64sb, Struct

TOPIC_HEAD = Struct(
    "topic_length" / Int32sb * "bytes of the topic, which follows this head",
    "separator" / Int8sb * "1",
)
UNIT_KEY_TAIL = Struct(
    "separator" / Int8sb * "1",
    "queue_id" / Int32sb * "of the queue",
    "separator_2" / Int8sb * "1; 0 and 2 bound a queue that is deleted as a range",
    "queue_offset" / Int64sb * "of the message",
)
UNIT = Struct(
    "physical_offset" / Int64sb * "start of the record in the commit log",
    "size" / Int32sb * "its total size",
    "tags_code" / Int64sb * "hash of the tag, or deliver time (ms)",
    "store_timestamp" / Int64sb * "of the message, ms",
)
OFFSET_KEY_TAIL = Struct(
    "separator" / Int8sb * "1",
    "bound" / Bytes(3) * "the word `max` or `min`",
    "separator_2" / Int8sb * "1",
    "queue_id" / Int32sb * "of the queue",
)
OFFSET = Struct(
    "physical_offset" / Int64sb * "of the record of that message",
    "queue_offset" / Int64sb * "of the last message (`max`) or the first in the log (`min`)",
)
BUILT = Struct("physical_offset" / Int64sb * "end of the newest record that the queues have")
