"""Codes of consume queues and their extension."""

from rmqtool.store.check.advice.steps import REBUILD_QUEUES, RECOVER, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

ALL = (
    kind(
        "cq-missing",
        ERROR,
        "messages that have no entry in their queue",
        "The log holds the messages, but no entry of their queue points to them.",
        "Queue files were lost or cut, or the broker stopped before it made the entries.",
        "Consumers never get these messages, unless the next start makes their entries. After a clean stop it makes "
        "those of messages after the last one that any queue has; after a crash, those of messages since the "
        "checkpoint.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-behind",
        INFO,
        "messages that are not in their queue yet",
        "After an unclean stop, queues may lag behind the log. The next start makes the missing entries.",
        "The broker was killed before it flushed the queue files.",
        "The broker's next start makes the entries.",
        RECOVER,
    ),
    kind(
        "cq-starts-late",
        WARNING,
        "a queue begins later than its messages in the log",
        "The first entries of the queue are placeholders, or its first files are gone, while the log still has their "
        "messages.",
        "Queue files were lost, and the start after a crash built only what came after the checkpoint.",
        "Consumers begin at the first entry that is not a placeholder. They do not get the messages before it.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-hole",
        ERROR,
        "an entry inside a queue is empty",
        "There are zero bytes or a placeholder where an entry should be, and valid entries follow.",
        "A page that never reached the disk, or a queue that was cut and then extended.",
        "If a start looks at this file (one of the last three), the queue ends here: all later entries are cut off, "
        "and new messages get their offsets. Otherwise consumers get nothing at this offset.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-stale",
        WARNING,
        "entries after the end of a queue",
        "After the end of the queue there are entries that are not the ones that come next.",
        "The queue was cut without filling the rest with zeros.",
        "When the queue has grown up to them, a start takes them for entries of the queue again.",
        RECOVER,
    ),
    kind(
        "cq-no-message",
        ERROR,
        "an entry that points to no message",
        "There is no record at the entry's physical offset: it is after the end of the log, between two files, or at "
        "damaged bytes.",
        "The log lost its end or a file, or is damaged; or the entry itself is damaged.",
        "The next start cuts off entries that point beyond the end of the log. Consumers that read other such entries "
        "get nothing, or wrong bytes.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-other-message",
        ERROR,
        "an entry that points to a message of another queue",
        "The record at the entry's physical offset has another topic or queue id.",
        "Old entries that came back after a cut, or queue files that were swapped or damaged.",
        "Consumers of this queue get a message of another queue.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-order",
        ERROR,
        "an entry is at another offset than its message states",
        "The place of the entry in the queue differs from the queue offset in the record.",
        "Entries were lost, and later ones were appended at the wrong place; or damage.",
        "Consumers get messages at other offsets than they were stored with, some twice, some not at all.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-size",
        ERROR,
        "an entry with another size than its message",
        "The size in the entry differs from the size of the record.",
        "The entry or the record is damaged.",
        "Consumers get a message that is cut short, or one with bytes of the next message after it.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-tags",
        ERROR,
        "an entry with another tag hash than its message",
        "The tags code is not the hash of the message's TAGS.",
        "The entry is damaged.",
        "Consumers that filter by tag miss the message, or get one that they did not ask for.",
        REBUILD_QUEUES,
    ),
    kind(
        "cq-deliver-time",
        WARNING,
        "the entry of a delayed message has another deliver time",
        "In SCHEDULE_TOPIC_XXXX the tags code is the store time plus the delay of the level.",
        "Damage, or messageDelayLevel was different when the message was stored (give --broker-conf).",
        "The broker delivers the message at the time in the entry.",
        "give --broker-conf first; otherwise nothing is needed once the message is delivered",
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
        "The last file of the queue was made, but nothing was written to it.",
        "The broker was killed just after it made the file.",
        "After a clean stop, a start takes the first zeros for an entry: the highest offset of the queue is one too "
        "high, and remains so.",
        REBUILD_QUEUES,
    ),
    kind(
        "ext-damage",
        ERROR,
        "a unit of the queue extension is damaged",
        "The size and the bit map of a unit do not fit together, or the unit is cut short.",
        "Damage, or a crash while the unit was written.",
        "The broker filters by the properties of the messages themselves instead.",
        (REBUILD_QUEUES, *by_hand("move consumequeue_ext away: no entry needs it any more")),
    ),
    kind(
        "ext-missing",
        ERROR,
        "an entry with an extension address that is wrong",
        "The entry holds the address of a unit in the queue extension, but there is no unit at that address.",
        "Files of consumequeue_ext were lost or cut.",
        "The broker cannot filter this message by tag, and delivers it to every group.",
        REBUILD_QUEUES,
    ),
)
