"""Fixed-size layouts ready to scan. Written by ``python -m formats.layouts.derive``; do not edit."""

from formats.layouts.flat import Flat

HEAD_V4_V4 = Flat(
    "record head, both hosts IPv4",
    "total_size:i magic:i body_crc:i queue_id:i flag:i queue_offset:q physical_offset:q sys_flag:i born_timestamp:q "
    "born_address:4s born_port:i store_timestamp:q store_address:4s store_port:i reconsume_times:i "
    "prepared_transaction_offset:q body_length:i",
)
HEAD_V6_V4 = Flat(
    "record head, born host IPv6",
    "total_size:i magic:i body_crc:i queue_id:i flag:i queue_offset:q physical_offset:q sys_flag:i born_timestamp:q "
    "born_address:16s born_port:i store_timestamp:q store_address:4s store_port:i reconsume_times:i "
    "prepared_transaction_offset:q body_length:i",
)
HEAD_V4_V6 = Flat(
    "record head, store host IPv6",
    "total_size:i magic:i body_crc:i queue_id:i flag:i queue_offset:q physical_offset:q sys_flag:i born_timestamp:q "
    "born_address:4s born_port:i store_timestamp:q store_address:16s store_port:i reconsume_times:i "
    "prepared_transaction_offset:q body_length:i",
)
HEAD_V6_V6 = Flat(
    "record head, both hosts IPv6",
    "total_size:i magic:i body_crc:i queue_id:i flag:i queue_offset:q physical_offset:q sys_flag:i born_timestamp:q "
    "born_address:16s born_port:i store_timestamp:q store_address:16s store_port:i reconsume_times:i "
    "prepared_transaction_offset:q body_length:i",
)
BLANK = Flat("end-of-file blank", "total_size:i magic:i")
BATCH_ITEM_HEAD = Flat("batch item head", "total_size:i magic:i body_crc:i flag:i body_length:i")
CQ_ENTRY = Flat("consume-queue entry", "physical_offset:q size:i tags_code:q")
CQ_EXT_HEAD = Flat("consume-queue extension unit head", "unit_size:h tags_code:q store_timestamp:q bit_map_size:h")
BATCH_CQ_ENTRY = Flat(
    "batch-consume-queue entry",
    "physical_offset:q size:i tags_code:q store_timestamp:q base_queue_offset:q batch_size:h compacted_offset:i "
    "reserved:i",
)
ROCKS_TOPIC_HEAD = Flat("head of a key in RocksDB", "topic_length:i separator:b")
ROCKS_UNIT_KEY_TAIL = Flat(
    "key of a queue unit in RocksDB, after the topic",
    "separator:b queue_id:i separator_2:b queue_offset:q",
)
ROCKS_UNIT = Flat("queue unit in RocksDB", "physical_offset:q size:i tags_code:q store_timestamp:q")
ROCKS_OFFSET_KEY_TAIL = Flat(
    "key of a queue's end in RocksDB, after the topic",
    "separator:b bound:3s separator_2:b queue_id:i",
)
ROCKS_OFFSET = Flat("queue's end in RocksDB", "physical_offset:q queue_offset:q")
ROCKS_BUILT = Flat("how far queues in RocksDB were built", "physical_offset:q")
POP_KEY_HEAD = Flat("head of a POP record's key in RocksDB", "visible_time:q")
POP_KEY_TAIL = Flat(
    "key of a POP record in RocksDB, behind group and topic",
    "separator:1s queue_id:i separator_2:1s queue_offset:q",
)
TIMELINE_KEY_HEAD = Flat("head of a timer message's key in RocksDB", "deliver_time:q")
TIMELINE_VALUE = Flat("timer message in RocksDB", "size:i physical_offset:q")
HALF_KEY_HEAD = Flat("head of a half message's key in RocksDB", "physical_offset:q")
HALF_VALUE = Flat("half message in RocksDB", "check_times:i size:i")
KEY_HOUR = Flat("head of an index key in RocksDB", "hour:q")
KEY_TAIL = Flat("tail of an index key in RocksDB", "physical_offset:q")
POSITION = Flat("how far a database has come", "value:q")
CONFIG_HEAD = Flat("head of a configuration key in RocksDB", "prefix:b table:h record:b")
CONFIG_NAME = Flat("length of a name in a configuration key", "length:h")
CONFIG_QUEUE = Flat("queue at the end of a configuration key", "separator:b queue_id:i")
CONFIG_OFFSET = Flat("consumer offset in RocksDB", "queue_offset:q")
CONFIG_VERSION = Flat("data version in RocksDB", "state_version:q timestamp:q counter:q")
INDEX_HEADER = Flat(
    "index header",
    "begin_timestamp:q end_timestamp:q begin_physical_offset:q end_physical_offset:q hash_slot_count:i index_count:i",
)
INDEX_SLOT = Flat("index hash slot", "newest_entry:i")
INDEX_ENTRY = Flat("index entry", "key_hash:i physical_offset:q seconds:i previous_entry:i")
CHECKPOINT_HEAD = Flat(
    "checkpoint",
    "physic_msg_timestamp:q logics_msg_timestamp:q index_msg_timestamp:q master_flushed_offset:q confirm_phy_offset:q "
    "logics_physical_offset:q",
)
TIMER_SLOT = Flat("timer-wheel slot", "time:q first_position:q last_position:q count:i magic:i")
TIMER_LOG_UNIT = Flat(
    "timer-log unit",
    "size:i previous_position:q magic:i write_time:q delay:i physical_offset:q message_size:i topic_hash:i reserved:q",
)
TIMER_LOG_BLANK = Flat("timer-log blank", "total_size:i zero:q magic:i")
TIMER_CHECKPOINT = Flat(
    "timer checkpoint",
    "last_read_time:q last_timer_log_flush_position:q last_timer_queue_offset:q master_timer_queue_offset:q "
    "state_version:q version_timestamp:q version_counter:q",
)
DLEDGER_ENTRY_HEAD = Flat(
    "DLedger entry header",
    "magic:i size:i index:q term:q position:q channel:i chain_crc:i body_crc:i body_size:i",
)
DLEDGER_BLANK = Flat("DLedger end-of-file blank", "magic:i bytes_left:i")
DLEDGER_INDEX_UNIT = Flat("DLedger index unit", "magic:i position:q size:i index:q term:q")
TIERED_INDEX_HEAD = Flat(
    "header of an uploaded index segment",
    "magic:i begin_timestamp:q end_timestamp:q used_slots:i items:i",
)
TIERED_INDEX_SLOT = Flat("hash slot of an uploaded index segment", "position:i bytes:i")
TIERED_INDEX_ITEM = Flat(
    "item of an uploaded index segment",
    "hash_code:i topic_id:i queue_id:i position:q size:i time_difference:i",
)
TIERED_LOCAL_INDEX_ITEM = Flat(
    "item of a local index file of the tier",
    "hash_code:i topic_id:i queue_id:i position:q size:i time_difference:i previous_item:i",
)
FRAME_HEAD = Flat("remoting frame head", "length:i header_info:i")
REMOTING_HEAD = Flat("binary remoting header", "code:h language:b version:h opaque:i flag:i")
