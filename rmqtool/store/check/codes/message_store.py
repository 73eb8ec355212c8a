"""Codes of the database for index, timers and half messages (since 5.4)."""

from rmqtool.store.check.advice.steps import by_hand
from rmqtool.store.check.codes.code import ERROR, WARNING, kind

_NEW = by_hand(
    "stop the broker, copy the store, and move rocksdbstore out of it: the broker creates an empty one, and fills it "
    "from the ten newest files of the log",
    "timer messages that were delivered and are still in the log are delivered once more",
)

ALL = (
    kind(
        "store-database",
        ERROR,
        "the database for index, timers and half messages cannot be read",
        "RocksDB cannot read rocksdbstore or a part of it: a file is missing, or its checksum is wrong.",
        "Files of the database were lost, cut or damaged, or copied while a broker wrote them.",
        "The broker starts all the same. With indexRocksDBEnable, timerRocksDBEnable or transRocksDBEnable it does not "
        "find what it keeps there: messages by key, waiting timer messages, open transactions.",
        _NEW,
    ),
    kind(
        "store-database-entry",
        WARNING,
        "an entry of rocksdbstore that no broker understands",
        "A key or value of the timeline or of the half messages does not have the form that brokers write.",
        "Damage, or a newer version.",
        "The broker skips the entry, or stops at it.",
        _NEW,
    ),
    kind(
        "timeline-no-message",
        ERROR,
        "an entry of the timeline that leads to no timer message",
        "An entry in rocksdbstore names a physical offset and a size. No message of rmq_sys_wheel_timer with that size "
        "is there.",
        "The log was truncated or lost files while the database was kept, or the database belongs to another store.",
        "Nothing is delivered for the entry.",
        by_hand("nothing to do: what the log has lost cannot be delivered"),
    ),
    kind(
        "half-no-message",
        WARNING,
        "an open transaction in rocksdbstore without its half message",
        "An entry names the physical offset and the unique key of a half message. That message is not there.",
        "The log was truncated or lost files while the database was kept, or the database belongs to another store.",
        "The producer is not asked about the transaction.",
        by_hand("nothing to do: what the log has lost cannot be committed"),
    ),
    kind(
        "store-index-no-message",
        WARNING,
        "entries of the index in RocksDB that lead to no message",
        "The index in rocksdbstore names physical offsets at which there is no message.",
        "The log was truncated or lost files while the database was kept, or the database belongs to another store.",
        "Lookups by these keys find nothing.",
        by_hand("nothing to do: what the log has lost cannot be found"),
    ),
)
