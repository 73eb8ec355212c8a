"""Timer wheel, timer log and timer checkpoint of 5.x (store.timer.*; store-formats 8.1 to 8.3)."""

from construct import Int32sb, Int64sb, Struct

SLOT = Struct(
    "time" / Int64sb * "time divided by timerPrecisionMs, not milliseconds",
    "first_position" / Int64sb * "in the timer log, of the oldest unit",
    "last_position" / Int64sb * "of the newest unit, where the backward chain begins",
    "count" / Int32sb * "messages; may be out of date after a recovery",
    "magic" / Int32sb * "not used",
)
LOG_UNIT = Struct(
    "size" / Int32sb * "52",
    "previous_position" / Int64sb * "of the unit before it in the same slot; -1: none",
    "magic" / Int32sb * "1 default, 2 roll, 4 delete; bits may be combined",
    "write_time" / Int64sb * "ms",
    "delay" / Int32sb * "ms after write_time until delivery; may be negative",
    "physical_offset" / Int64sb * "of the waiting message in the commit log",
    "message_size" / Int32sb * "total size of that record",
    "topic_hash" / Int32sb * "Java's hash of the real topic",
    "reserved" / Int64sb * "0",
)
# The magic is at offset 12, like that of a unit and unlike that of a commit-log blank.
LOG_BLANK = Struct(
    "total_size" / Int32sb * "bytes left to the end of the file, counted from here",
    "zero" / Int64sb * "0",
    "magic" / Int32sb * "0xCBD43194",
)
CHECKPOINT = Struct(
    "last_read_time" / Int64sb * "time up to which the wheel was read, ms",
    "last_timer_log_flush_position" / Int64sb * "position up to which the timer log is flushed",
    "last_timer_queue_offset" / Int64sb * "next queue offset of rmq_sys_wheel_timer to take",
    "master_timer_queue_offset" / Int64sb * "the same of the master",
    "state_version" / Int64sb * "stateVersion of the DataVersion",
    "version_timestamp" / Int64sb * "timestamp of the DataVersion, ms",
    "version_counter" / Int64sb * "counter of the DataVersion",
)
