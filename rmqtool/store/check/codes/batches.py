"""Codes of batch consume queues."""

from rmqtool.store.check.advice.steps import MEND, NOTHING, REBUILD_QUEUES, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

REBUILD = (REBUILD_QUEUES,)
TWO_KINDS = by_hand(
    "compare the attribute queue.type of the topic in config/topics.json with that of another broker, and move the "
    "queues of the other kind out of the store"
)
AT_START = by_hand("nothing to do: a 5.x broker repairs it at its next start")

ALL = (
    kind(
        "bcq-queue-missing",
        ERROR,
        "a batch queue has no files, but its messages are in the log",
        "The log has messages of a topic with queue.type=BatchCQ, but batchconsumequeue has no files for this queue.",
        "The files were lost or deleted.",
        "Consumers get none of these messages, and new messages get their queue offsets.",
        REBUILD,
    ),
    kind(
        "bcq-missing",
        ERROR,
        "messages without a unit in their batch queue",
        "The log has the record, but no unit of its queue points to it. One record holds all messages of a batch.",
        "Queue files were lost or truncated.",
        "Consumers never get these messages. At startup the broker creates units only for records after the last unit "
        "of the queue.",
        REBUILD,
    ),
    kind(
        "bcq-behind",
        INFO,
        "batches that are not in their queue yet",
        "After an unclean stop, batch queues may lag behind the log.",
        "The broker was killed before it flushed the queue files.",
        "The broker creates the missing units at its next start.",
        AT_START,
    ),
    kind(
        "bcq-hole",
        ERROR,
        "an empty unit inside a batch queue",
        "There are zero bytes where a unit should be, and valid units follow.",
        "A page that never reached the disk.",
        "If the broker checks this file at startup (it checks the last three), the queue ends here: all later units "
        "are cut off, and new messages get their offsets.",
        REBUILD,
    ),
    kind(
        "bcq-torn",
        ERROR,
        "a unit of a batch queue is incomplete or damaged",
        "The unit is not empty, but a broker would not accept it: its offset is negative, or it has no size, base or "
        "count.",
        "The broker was killed or the queue was truncated while the unit was being written, or the file is damaged.",
        "If the broker checks this file at startup (it checks the last three), the queue ends here, and all later "
        "units are cut off.",
        REBUILD,
    ),
    kind(
        "bcq-stale",
        WARNING,
        "units after the end of a batch queue",
        "After the end of the queue there are units that do not continue it.",
        "The queue was truncated without filling the rest with zeros.",
        "Once the queue has grown up to them, the broker takes them for units of the queue at its next start.",
        AT_START,
    ),
    kind(
        "bcq-no-message",
        ERROR,
        "a unit of a batch queue that points to no message of its queue",
        "The unit points outside the log, to damaged bytes, or to a message of another topic or queue.",
        "The log was truncated or lost files while the queue was kept, or the unit is damaged.",
        "Consumers get nothing for this unit, or a message of another queue. At startup the broker cuts off units that "
        "point beyond the end of the log.",
        REBUILD,
    ),
    kind(
        "bcq-repeat",
        ERROR,
        "two units of a batch queue for one record",
        "Both point to the same place in the log.",
        "Damage, or files that were copied over others.",
        "Consumers get these messages twice.",
        REBUILD,
    ),
    kind(
        "bcq-base",
        ERROR,
        "a unit whose first queue offset differs from its batch's",
        "The base in the unit differs from the record's (INNER_BASE, or the queue offset of a single message).",
        "Damage.",
        "The broker searches the queue by these offsets. Consumers skip messages, get them twice, or find none at "
        "all. If it is the last unit, new messages are numbered from there.",
        REBUILD,
    ),
    kind(
        "bcq-count",
        ERROR,
        "a unit whose message count differs from its batch's",
        "The count in the unit differs from the record's (INNER_NUM, or 1 for a single message).",
        "Damage.",
        "Consumers get a wrong next offset. They skip messages, or get them twice. If it is the last unit, new "
        "messages are numbered from there.",
        REBUILD,
    ),
    kind(
        "bcq-size",
        ERROR,
        "a unit whose size differs from its record's",
        "The unit points to its record, but states a different size.",
        "Damage.",
        "Consumers get a truncated record, or one followed by bytes of the next record.",
        REBUILD,
    ),
    kind(
        "bcq-tags",
        WARNING,
        "a unit whose tags code differs from its record's",
        "The tags code should be the hash of the record's tag. A batch as a whole usually has none.",
        "Damage.",
        "Consumers that filter by tag miss these messages, or get ones that they did not ask for.",
        REBUILD,
    ),
    kind(
        "bcq-time",
        WARNING,
        "a unit whose store time differs from its record's",
        "A unit of a batch queue holds the store time of its record.",
        "Damage.",
        "Searches by time are wrong, and so are resets of offsets by time.",
        REBUILD,
    ),
    kind(
        "bcq-form",
        ERROR,
        "topics.json and the files disagree about the kind of a topic's queues",
        "A topic with queue.type=BatchCQ has its queues in batchconsumequeue. Every other topic has them in "
        "consumequeue.",
        "config/topics.json was lost, recreated or edited.",
        "The broker does not start.",
        MEND,
    ),
    kind(
        "cq-batch",
        INFO,
        "not checked: messages in batch consume queues",
        "Earlier versions of rmqtool reported this, because they did not read batch queues.",
        "The topic has batch queues.",
        "The broker is not affected. This finding is only about check itself.",
        NOTHING,
    ),
)
