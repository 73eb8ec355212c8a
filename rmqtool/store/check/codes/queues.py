"""Codes of consume queues and their extension."""

from rmqtool.store.check.advice.steps import REBUILD_QUEUES, RECOVER, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

ALL = (
    kind(
        "cq-missing",
        ERROR,
        "messages without an entry in their queue",
        "The log has the messages, but no entry of their queue points to them.",
        "Queue files were lost or truncated, or the broker stopped before it created the entries.",
        "Consumers never get these messages, unless the broker creates the entries at its next start. After a clean "
        "stop it does so for messages after the last one that any queue has; after a crash, for messages since the "
        "checkpoint.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-behind",
        INFO,
        "messages that are not in their queue yet",
        "After an unclean stop, queues may lag behind the log.",
        "The broker was killed before it flushed the queue files.",
        "The broker creates the missing entries at its next start.",
        RECOVER,
    ),
    kind(
        "cq-starts-late",
        WARNING,
        "a queue begins later than its messages in the log",
        "The first entries of the queue are placeholders, or its first files are gone, while the log still has their "
        "messages.",
        "Queue files were lost, and after a crash the broker rebuilt only what came after the checkpoint.",
        "Consumers begin at the first entry that is not a placeholder. They do not get the messages before it.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-hole",
        ERROR,
        "an empty entry inside a queue",
        "There are zero bytes or a placeholder where an entry should be, and valid entries follow.",
        "A page that never reached the disk, or a queue that was truncated and then extended.",
        "If the broker checks this file at startup (it checks the last three), the queue ends here: all later entries "
        "are cut off, and new messages get their offsets. Otherwise consumers get nothing at this offset.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-stale",
        WARNING,
        "entries after the end of a queue",
        "After the end of the queue there are entries that do not continue it.",
        "The queue was truncated without filling the rest with zeros.",
        "Once the queue has grown up to them, the broker takes them for entries of the queue at its next start.",
        RECOVER,
    ),
    kind(
        "cq-no-message",
        ERROR,
        "an entry that points to no message",
        "There is no record at the entry's physical offset: it is after the end of the log, between two files, or in "
        "damaged bytes.",
        "The log lost its end or a file, or is damaged; or the entry itself is damaged.",
        "At its next start the broker cuts off entries that point beyond the end of the log. Consumers that read other "
        "such entries get nothing, or wrong bytes.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-other-message",
        ERROR,
        "an entry that points to a message of another queue",
        "The record at the entry's physical offset has a different topic or queue id.",
        "Old entries that came back after the queue was truncated, or queue files that were swapped or damaged.",
        "Consumers of this queue get a message of another queue.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-order",
        ERROR,
        "an entry at an offset other than its message's",
        "The place of the entry in the queue differs from the queue offset in the record.",
        "Entries were lost, and later ones were appended at the wrong place; or damage.",
        "Consumers get messages at offsets other than those they were stored with, some twice, some not at all.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-size",
        ERROR,
        "an entry whose size differs from its message's",
        "The size in the entry differs from the size of the record.",
        "The entry or the record is damaged.",
        "Consumers get a truncated message, or one followed by bytes of the next message.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-tags",
        ERROR,
        "an entry whose tag hash differs from its message's",
        "The tags code is not the hash of the message's TAGS.",
        "The entry is damaged.",
        "Consumers that filter by tag miss the message, or get one that they did not ask for.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-deliver-time",
        WARNING,
        "an entry of a delayed message with an unexpected deliver time",
        "In SCHEDULE_TOPIC_XXXX the tags code is the store time plus the delay of the level.",
        "Damage, or messageDelayLevel was different when the message was stored (give --broker-conf).",
        "The broker delivers the message at the time in the entry.",
        "give --broker-conf with the messageDelayLevel of that time; nothing is needed once the message is delivered",
    ),
    kind(
        "cq-delay-hash",
        INFO,
        "entries of delayed messages hold the tag hash",
        "The entries hold the hash of the tag where the deliver time should be.",
        "A 4.9 broker recovered after a crash. It builds these entries before it knows the delay levels.",
        "The broker delivers these messages at once.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-empty-file",
        WARNING,
        "a file of zeros at the end of a queue",
        "The last file of the queue was created, but nothing was written to it.",
        "The broker was killed just after it created the file.",
        "After a clean stop, the broker takes the first zeros for an entry at its next start: the highest offset of "
        "the queue is one too high, and remains so.",
        REBUILD_QUEUES,
    ),
    kind(
        "ext-damage",
        ERROR,
        "a unit of the queue extension is damaged",
        "The size and the bit map of a unit do not match, or the unit is truncated.",
        "Damage, or a crash while the unit was being written.",
        "The broker filters by the properties of the messages themselves instead.",
        (REBUILD_QUEUES, *by_hand("move consumequeue_ext away: no entry needs it any more")),
    ),
    kind(
        "ext-missing",
        ERROR,
        "an entry with a wrong extension address",
        "The entry holds the address of a unit in the queue extension, but there is no unit at that address.",
        "Files of consumequeue_ext were lost or truncated.",
        "The broker cannot filter this message by tag, and delivers it to every group.",
        REBUILD_QUEUES,
    ),
)
