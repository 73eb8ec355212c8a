"""Timer wheel, timer log and timer checkpoint of 5.x (store.timer.*; store-formats 8.1 to 8.3)."""

from construct import Int32sb, Int64sb, Struct

SLOT = Struct(
    "time" / Int64sb,  # t // precision_ms, not milliseconds
    "first_position" / Int64sb,  # in the timer log
    "last_position" / Int64sb,  # head of the backward chain
    "count" / Int32sb,
    "magic" / Int32sb,
)
LOG_UNIT = Struct(
    "size" / Int32sb,  # 52
    "previous_position" / Int64sb,  # of the same slot; -1 = none
    "magic" / Int32sb,  # 1 default | 2 roll | 4 delete
    "write_time" / Int64sb,  # ms
    "delay" / Int32sb,  # ms after write_time, may be negative
    "physical_offset" / Int64sb,
    "message_size" / Int32sb,
    "topic_hash" / Int32sb,  # of the real topic
    "reserved" / Int64sb,
)
# Note the magic at offset 12, where units have theirs, unlike the commit log's blank.
LOG_BLANK = Struct("total_size" / Int32sb, "zero" / Int64sb, "magic" / Int32sb)
CHECKPOINT = Struct(
    "last_read_time" / Int64sb,
    "last_timer_log_flush_position" / Int64sb,
    "last_timer_queue_offset" / Int64sb,
    "master_timer_queue_offset" / Int64sb,
    "state_version" / Int64sb,
    "version_timestamp" / Int64sb,
    "version_counter" / Int64sb,
)
