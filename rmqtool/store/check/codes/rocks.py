"""Codes of consume queues in RocksDB."""

from rmqtool.store.check.advice.steps import NOTHING, SALVAGE, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

AT_START = by_hand("nothing is to be done: the next start of the broker mends it")
# The database is made of the log alone, and one that is not there is begun anew. After a clean stop 5.3.3 leaves out
# the first message of the log then, so the start has to be one after a crash.
ANEW = (
    SALVAGE,
    *by_hand(
        "or, with a copy of the store at hand and the broker stopped, move the directory consumequeue out of the store "
        "and put an empty file abort into it: a 5.x broker with storeType=defaultRocksDB dispatches the whole log into "
        "a new database at its next start (without abort it leaves out the first message)"
    ),
)

ALL = (
    kind(
        "rcq-unreadable",
        ERROR,
        "the database of queues cannot be read",
        "RocksDB refuses consumequeue, or a part of it: a file is missing, or its checksum is wrong.",
        "Files of it were lost, cut or damaged, or copied while a broker wrote them.",
        "It does not start, or pulls from the queues that lie in the damaged part fail.",
        ANEW,
    ),
    kind(
        "rcq-missing",
        ERROR,
        "messages that their queue in RocksDB has no unit for",
        "The log holds the message, and the database says that it has the log up to behind it; there is no unit at the "
        "message's queue offset.",
        "Units were deleted, or the files of the database were put back from another time.",
        "Consumers never get them: a start dispatches only what lies behind the end that the database notes.",
        ANEW,
    ),
    kind(
        "rcq-behind",
        INFO,
        "messages that are not in the database of queues yet",
        "The log goes on behind the end that the database notes. The broker writes units without RocksDB's own log: "
        "what was in memory when it was killed is not there.",
        "Killed before the database was flushed, or the broker is running.",
        "Its next start dispatches them.",
        AT_START,
    ),
    kind(
        "rcq-other",
        ERROR,
        "a unit in RocksDB that leads elsewhere than to the message of its queue offset",
        "The message says its topic, queue and queue offset; the unit with that key has another physical offset.",
        "The log was cut or replaced, and the database was not.",
        "Consumers get another message, or none.",
        ANEW,
    ),
    kind(
        "rcq-size",
        ERROR,
        "the size in a unit is not that of the message",
        "The unit leads to the message, but says another size.",
        "Damage, or a database of another store.",
        "It reads too little or too much: consumers get no message, or one with bytes behind it.",
        ANEW,
    ),
    kind(
        "rcq-tags",
        ERROR,
        "the tags code in a unit is not that of the message",
        "The unit leads to the message, but says another hash of its tag.",
        "Damage, or a database of another store.",
        "Consumers that filter by tag miss the message, or get it though they did not ask for it.",
        ANEW,
    ),
    kind(
        "rcq-time",
        WARNING,
        "the store time in a unit is not that of the message",
        "The unit leads to the message, but says another time.",
        "Damage, or a database of another store.",
        "Queries and resets by time go by the unit, and find another message.",
        ANEW,
    ),
    kind(
        "rcq-no-message",
        ERROR,
        "a unit in RocksDB that leads to no message of its queue",
        "Between the ends of its queue lies a unit that points outside of the log, at damage, or at another message.",
        "The log was cut, or its files were lost, while the database was not.",
        "Consumers get nothing for it, or a message that is not theirs.",
        ANEW,
    ),
    kind(
        "rcq-end",
        ERROR,
        "the noted end of a queue in RocksDB is not behind its last message",
        "The entry `max` of the queue is missing, lies before units that belong to messages, or names a unit that is "
        "not there.",
        "Damage, or files of the database from different times.",
        "Consumers do not get messages behind it, and their queue offsets are given out again; or they wait at offsets "
        "that do not exist.",
        ANEW,
    ),
    kind(
        "rcq-begin",
        WARNING,
        "the noted beginning of a queue in RocksDB is not its first message",
        "The entry `min` of the queue has a physical offset that is still in the log, so that a broker takes it as it "
        "is; its queue offset is not that of the first message.",
        "Damage, or files of the database from different times.",
        "Messages before a beginning that is too high are not given out; below one that is too low nothing is found.",
        ANEW,
    ),
    kind(
        "rcq-ahead",
        WARNING,
        "the database of queues has more of the log than there is",
        "The end that the database notes lies behind the end of the log.",
        "The end of the log was lost, or cut, while the database was not.",
        "Its next start sets the ends of queues of known topics back to the log's end.",
        AT_START,
    ),
    kind(
        "config-database",
        ERROR,
        "a table of topics, groups or consumer progress in RocksDB that cannot be read",
        "RocksDB refuses the database, or a value in it is not JSON of the shape that brokers write.",
        "Files of it were lost, cut or damaged, or copied while a broker wrote them.",
        "It does not start, or starts without the entry.",
        by_hand(
            "put the directory back from a backup or another broker; with rmqtool salvage the messages go into a new "
            "store whose other tables are files, and this one is begun anew there"
        ),
    ),
    kind(
        "rcq-note",
        WARNING,
        "entries in the database of queues that no broker understands",
        "A key or value in the column family `offset` has not the form of an end of a queue.",
        "Damage, or a newer version.",
        "They are passed over.",
        NOTHING,
    ),
)
