"""Keys and values in RocksDB: consume queues, POP records, the v2 configuration, and the database for index, timers and
half messages.

Source: org.apache.rocketmq.store.queue.RocksDBConsumeQueueTable and RocksDBConsumeQueueOffsetTable,
broker.pop.PopConsumerRecord, broker.config.v2.ConfigHelper; store-formats 4.6, 7.12. Since 5.4:
store.index.rocksdb.IndexRocksDBRecord, store.timer.rocksdb.TimerRocksDBRecord, store.transaction.TransRocksDBRecord;
releases-5.4-5.5 5.
"""

from construct import Bytes, Int8sb, Int16sb, Int32sb, Int64sb, Struct

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
POP_KEY_HEAD = Struct("visible_time" / Int64sb * "when the message may be handed out again, ms")
POP_KEY_TAIL = Struct(
    "separator" / Bytes(1) * "`@`",
    "queue_id" / Int32sb * "of the message's queue",
    "separator_2" / Bytes(1) * "`@`",
    "queue_offset" / Int64sb * "of the message",
)
CONFIG_HEAD = Struct(
    "prefix" / Int8sb * "1",
    "table" / Int16sb * "1 consumer offsets, 2 pull offsets, 3 topics, 4 groups",
    "record" / Int8sb * "1 data version, 2 entry",
)
CONFIG_NAME = Struct("length" / Int16sb * "bytes of the name, which follows")
CONFIG_QUEUE = Struct("separator" / Int8sb * "1", "queue_id" / Int32sb * "of the queue")
CONFIG_OFFSET = Struct("queue_offset" / Int64sb * "the next one to consume")
CONFIG_VERSION = Struct(
    "state_version" / Int64sb * "epoch of the master",
    "timestamp" / Int64sb * "of the last change, ms",
    "counter" / Int64sb * "changes so far",
)
TIMELINE_KEY_HEAD = Struct("deliver_time" / Int64sb * "when the message is to be delivered, ms; its unique key follows")
TIMELINE_VALUE = Struct(
    "size" / Int32sb * "total size of the record",
    "physical_offset" / Int64sb * "start of the record in `rmq_sys_wheel_timer`",
)
HALF_KEY_HEAD = Struct("physical_offset" / Int64sb * "start of the half message; `@topic@` and its unique key follow")
HALF_VALUE = Struct(
    "check_times" / Int32sb * "how often the producer was asked",
    "size" / Int32sb * "total size of the half message",
)
KEY_HOUR = Struct("hour" / Int64sb * "store time, cut to a whole hour (UTC), ms; `@topic@K@key@uniqKey@` follows")
KEY_TAIL = Struct("physical_offset" / Int64sb * "start of the record in the commit log")
POSITION = Struct("value" / Int64sb * "an offset or a time, ms: how far the database has come")
