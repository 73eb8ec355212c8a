"""Codes of the records of messages held by POP consumers in RocksDB."""

from rmqtool.store.check.advice.steps import by_hand
from rmqtool.store.check.codes.code import ERROR, WARNING, kind
from rmqtool.words import command_line

ALL = (
    kind(
        "pop-database",
        ERROR,
        "the database of popped messages cannot be read",
        "RocksDB cannot read kvStore or a part of it: a file is missing, or its checksum is wrong.",
        "Files of the database were lost, cut or damaged, or copied while a broker wrote them.",
        "With popConsumerKVServiceEnable=true the broker does not start. Without it the broker does not read kvStore.",
        by_hand(
            "restore the directory from a backup. Otherwise stop the broker and move kvStore out of the store: the "
            "broker creates an empty one",
            f"messages that POP groups had not acked do not come back to them; {command_line('group', 'reset')} to an "
            "earlier time gives them out again, with those that were acked",
        ),
    ),
    kind(
        "pop-record",
        ERROR,
        "a record of a popped message that no broker can read",
        "A value in kvStore is not the JSON object that a broker stores for a popped message.",
        "Damage, or a program other than a broker wrote to the database.",
        "The broker stops at this record each time, and redelivers none of the messages that are due after it.",
        by_hand(
            "stop the broker and move kvStore out of the store: the broker creates an empty one",
            "messages that POP groups have not acknowledged are not redelivered to them",
        ),
    ),
    kind(
        "pop-record-key",
        ERROR,
        "a record of a popped message under a wrong key",
        "The key of a record in kvStore consists of its time, group, topic, queue and offset. Here it does not match "
        "the value.",
        "Damage, or a program other than a broker wrote to the database.",
        "The broker removes records by the key that their value gives, so it never removes this one: the message is "
        "redelivered to its group again and again.",
        by_hand(
            "stop the broker and move kvStore out of the store: the broker creates an empty one",
            "messages that POP groups have not acknowledged are not redelivered to them",
        ),
    ),
    kind(
        "pop-ahead",
        WARNING,
        "a popped message that its queue does not have yet",
        "A record in kvStore names a queue offset at or after the end of the queue.",
        "The end of the log was lost or truncated while the database was kept.",
        "If the record is due before a new message has that offset, nothing is redelivered; otherwise the group gets "
        "the new message once more.",
        by_hand("nothing to do: the group may get some messages twice"),
    ),
)
