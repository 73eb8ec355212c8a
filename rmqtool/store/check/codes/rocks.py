"""Codes of consume queues in RocksDB."""

from rmqtool.store.check.advice.steps import NOTHING, SALVAGE, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind
from rmqtool.words import command_line

AT_START = by_hand("nothing to do: the broker repairs it at its next start")
# The database is derived from the log, and a missing one is recreated. After a clean stop, 5.3.3 then skips the first
# message of the log, so the start must be one after a crash.
REBUILD_BY_BROKER = (
    SALVAGE,
    *by_hand(
        "or stop the broker, copy the store, move the directory consumequeue out of the store, and create an empty "
        "file named abort in the store: at its next start a 5.x broker with storeType=defaultRocksDB builds a new "
        "database from the whole log (without abort it omits the first message)"
    ),
)

ALL = (
    kind(
        "rcq-unreadable",
        ERROR,
        "the database of queues cannot be read",
        "RocksDB cannot read consumequeue or a part of it: a file is missing, or its checksum is wrong.",
        "Files of the database were lost, cut or damaged, or copied while a broker wrote them.",
        "The broker does not start, or pulls from queues in the damaged part fail.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-missing",
        ERROR,
        "messages without a unit in their queue in RocksDB",
        "The log has the message, and the end that the database records is after it, but there is no unit at the "
        "message's queue offset.",
        "Units were deleted, or older files of the database were restored.",
        "Consumers never get them: at startup the broker dispatches only what comes after the end that the database "
        "records.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-behind",
        INFO,
        "messages that are not in the database of queues yet",
        "The log continues after the end that the database records. The broker writes units without RocksDB's own log, "
        "so units that were only in memory when it was killed are missing.",
        "The broker was killed before it flushed the database; or it is running.",
        "The broker dispatches them at its next start.",
        AT_START,
    ),
    kind(
        "rcq-other",
        ERROR,
        "a unit in RocksDB that points to a message other than that of its queue offset",
        "The message states its topic, queue and queue offset. The unit with that key has a different physical offset.",
        "The log was truncated or replaced while the database was kept.",
        "Consumers get a wrong message, or none.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-size",
        ERROR,
        "a unit in RocksDB whose size differs from its message's",
        "The unit points to the message, but states a different size.",
        "Damage, or a database of another store.",
        "Consumers get no message, or one followed by bytes of the next message.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-tags",
        ERROR,
        "a unit in RocksDB whose tags code differs from its message's",
        "The unit points to the message, but states a different hash of its tag.",
        "Damage, or a database of another store.",
        "Consumers that filter by tag miss the message, or get one that they did not ask for.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-time",
        WARNING,
        "a unit in RocksDB whose store time differs from its message's",
        "The unit points to the message, but states a different time.",
        "Damage, or a database of another store.",
        "Searches and resets by time use the unit, and find a wrong message.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-no-message",
        ERROR,
        "a unit in RocksDB that points to no message of its queue",
        "A unit inside the queue points outside the log, to damaged bytes, or to a message of another queue.",
        "The log was truncated or lost files while the database was kept.",
        "Consumers get nothing for it, or a message of another queue.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-end",
        ERROR,
        "the end that RocksDB records for a queue is not that of its last message",
        "The entry `max` of the queue is missing, is lower than units that belong to messages, or names a unit that "
        "does not exist.",
        "Damage, or files of the database from different times.",
        "Consumers do not get the messages after it, and new messages get their queue offsets; or consumers wait at "
        "offsets that do not exist.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-begin",
        WARNING,
        "the beginning that RocksDB records for a queue is not that of its first message",
        "The physical offset in the entry `min` of the queue is still in the log, so a broker believes the entry. But "
        "its queue offset is not that of the first message.",
        "Damage, or files of the database from different times.",
        "If it is too high, consumers do not get the messages before it. If it is too low, nothing is found there.",
        REBUILD_BY_BROKER,
    ),
    kind(
        "rcq-ahead",
        WARNING,
        "the database of queues is ahead of the log",
        "The end that the database records is after the end of the log.",
        "The end of the log was lost or truncated while the database was kept.",
        "At its next start the broker sets the ends of the queues of known topics back to the end of the log.",
        AT_START,
    ),
    kind(
        "config-database",
        ERROR,
        "a table of topics, groups, consumer progress or accounts in RocksDB cannot be read",
        "RocksDB cannot read the database, or a value in it is not JSON as brokers write it.",
        "Files of the database were lost, cut or damaged, or copied while a broker wrote them.",
        "The broker does not start, or starts without the entry.",
        by_hand(
            f"restore the directory from a backup or another broker. Otherwise {command_line('salvage')} copies the "
            "messages into a new store, where the other tables are files and this one is empty"
        ),
    ),
    kind(
        "rcq-note",
        WARNING,
        "entries in the database of queues that no broker understands",
        "A key or value in the column family `offset` does not have the form of an end of a queue.",
        "Damage, or a newer version.",
        "The broker skips them.",
        NOTHING,
    ),
)
