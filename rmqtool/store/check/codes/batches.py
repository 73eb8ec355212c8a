"""Codes of batch consume queues."""

from rmqtool.store.check.advice.steps import NOTHING, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

# what 5.3.3 does at a start after a crash without a checkpoint: the whole log is dispatched, and queues that are there
# take none of it twice
ANEW = by_hand(
    "work on a copy of the store: let a 5.x broker start on it and kill it (kill -9), move this queue's directory and "
    "checkpoint out of it, and start the broker again: it dispatches the whole log again, and so makes the queue anew"
)
NAMED = by_hand("put queue.type=BatchCQ of the topic back into config/topics.json, from its .bak or another broker's")
AT_START = by_hand("nothing is to be done: the next start of a 5.x broker mends it")

ALL = (
    kind(
        "bcq-queue-missing",
        ERROR,
        "a batch queue without files, whose messages are in the log",
        "The log holds messages of a topic with queue.type=BatchCQ; batchconsumequeue has no files of this queue.",
        "They were lost, or deleted.",
        "Consumers get none of these messages, and their queue offsets are given out again.",
        ANEW,
    ),
    kind(
        "bcq-missing",
        ERROR,
        "messages that their batch queue has no unit for",
        "The log holds the record; no unit of its queue points to it. It stands for all messages of the batch.",
        "Queue files were lost or cut.",
        "Consumers never get them: a start makes units only for what lies behind the queue's last one.",
        ANEW,
    ),
    kind(
        "bcq-behind",
        INFO,
        "batches that are not dispatched yet",
        "After an unclean stop batch queues may lag behind the log; the next start makes their units.",
        "Killed before queue files were flushed.",
        "Its next start dispatches them.",
        AT_START,
    ),
    kind(
        "bcq-hole",
        ERROR,
        "a unit inside a batch queue is empty",
        "Zero bytes stand where a unit should, and units that belong to messages follow.",
        "A page that never reached the disk.",
        "The queue ends at the hole where a start looks at that file (the last three): what is behind it is cut off, "
        "and its offsets are given out again.",
        ANEW,
    ),
    kind(
        "bcq-torn",
        ERROR,
        "a unit of a batch queue is half written or damaged",
        "The unit is neither empty nor one that a broker takes: a negative offset, or no size, base or count.",
        "Killed or cut while it was written, or damage.",
        "The queue ends here where a start looks at that file (the last three); what is behind it is cut off.",
        ANEW,
    ),
    kind(
        "bcq-stale",
        WARNING,
        "units behind the end of a batch queue",
        "Behind the queue's end lie units that no message asks for.",
        "The queue was cut without zeroing what was cut.",
        "When the queue grows up to them, a start takes them for units again.",
        AT_START,
    ),
    kind(
        "bcq-no-message",
        ERROR,
        "a unit of a batch queue that leads to no message of its queue",
        "It points outside of the log, at damage, or at a message of another topic or queue.",
        "The log was cut, or its files were lost, while the queue was not; or the unit is damaged.",
        "Consumers get nothing for it, or a message that is not theirs. Behind the log's end a start cuts it off.",
        ANEW,
    ),
    kind(
        "bcq-repeat",
        ERROR,
        "two units of a batch queue for one record",
        "Both point at the same place of the log.",
        "Damage, or files that were copied over others.",
        "Consumers get these messages twice.",
        ANEW,
    ),
    kind(
        "bcq-base",
        ERROR,
        "a unit with another first queue offset than its batch",
        "Its base differs from what the record says (INNER_BASE, or the queue offset of a single message).",
        "Damage.",
        "The queue is searched by these offsets: consumers skip messages, get them twice, or find none at all. Of the "
        "last unit, the offsets of new messages go on from there.",
        ANEW,
    ),
    kind(
        "bcq-count",
        ERROR,
        "a unit with another number of messages than its batch",
        "Its count differs from what the record says (INNER_NUM, or 1 for a single message).",
        "Damage.",
        "The next offset that consumers are told is wrong: they skip messages, or get them twice. Of the last unit, "
        "the offsets of new messages go on from there.",
        ANEW,
    ),
    kind(
        "bcq-size",
        ERROR,
        "a unit with another size than its record",
        "The unit points at its record, but does not say how long that is.",
        "Damage.",
        "Consumers get a cut record, or one with bytes of the next behind it.",
        ANEW,
    ),
    kind(
        "bcq-tags",
        WARNING,
        "a unit whose tags code is not its record's",
        "The tags code should be the hash of the record's tag; a batch as a whole most often has none.",
        "Damage.",
        "Filters by tag pass over the messages, or take them wrongly.",
        ANEW,
    ),
    kind(
        "bcq-time",
        WARNING,
        "a unit whose store time is not its record's",
        "Units of batch queues hold the store time themselves.",
        "Damage.",
        "Searches by time, and so resets of offsets by time, go wrong.",
        ANEW,
    ),
    kind(
        "bcq-form",
        ERROR,
        "topics.json and the files disagree on the form of a topic's queues",
        "A topic with queue.type=BatchCQ has its queues in batchconsumequeue, every other topic in consumequeue.",
        "config/topics.json was lost, made anew or edited.",
        "It does not start.",
        NAMED,
    ),
    kind(
        "cq-batch",
        INFO,
        "not checked: messages in batch consume queues",
        "Said by earlier versions, which did not look into batch queues.",
        "The topic was made so.",
        "Nothing: this is about check alone.",
        NOTHING,
    ),
)
