"""Codes of compacted topics: their logs, queues and positions."""

from rmqtool.store.check.advice.steps import NOTHING, REBUILD_COMPACTION, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind
from rmqtool.words import command_line

WITHOUT_LOG = by_hand(
    "the commit log is gone, and without it no command can restore the end of the topic's queue. Save what the "
    f"compaction log has ({command_line('topic', 'latest')}); then delete the topic on a broker, recreate it, and send "
    "those messages again"
)

ALL = (
    kind(
        "compaction-foreign",
        ERROR,
        "a file that does not belong in a folder of a compacted topic",
        "Every file there is named with a number of 20 digits. A name that ends in .delete belongs to a file that a "
        "compaction has replaced.",
        "The broker was killed at the end of a compaction, before it removed the files that it had replaced.",
        "The broker does not start.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-unpaired",
        ERROR,
        "a file of a compaction log without the file of the queue, or the other way round",
        "For each file in compactionLog there is one of the same name in compactionCq.",
        "The broker was killed while it replaced files, or a file was lost in a copy.",
        "The broker does not start.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-half",
        ERROR,
        "a compacted queue that has only its log, or only its queue",
        "compactionLog and compactionCq have a folder for each queue of a compacted topic. Here one of the two is "
        "missing.",
        "The folder was lost in a copy, or deleted.",
        "The broker starts, but consumers get none of the messages of this queue, not even those sent from now on.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-size",
        ERROR,
        "a file of a compacted topic has a wrong length",
        "All files of a compaction log have the same length, and so do all files of its queue "
        "(compactionMappedFileSize, compactionCqMappedFileSize).",
        "An incomplete copy, a full disk, or a changed setting (give --broker-conf).",
        "The broker starts, but consumers get none of the messages of this queue, not even those sent from now on.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-hole",
        ERROR,
        "a unit inside the queue of a compacted topic is empty",
        "There are zero bytes where a unit should be, and valid units follow in the same file.",
        "A page that never reached the disk.",
        "Consumers skip all later messages of this file. In the last file, the broker cuts them off at its next start.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-torn",
        ERROR,
        "a unit of the queue of a compacted topic is incomplete or damaged",
        "The unit is not empty, but a broker would not accept it: a negative position, no size or no count.",
        "The broker was killed while it wrote the unit, or the file is damaged.",
        "Consumers skip this and all later messages of the file. In the last file, the broker cuts them off at its "
        "next start.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-no-record",
        ERROR,
        "a unit of a compacted topic that points to no intact record",
        "At its position the compaction log has no record, or one that is damaged.",
        "The log lost its end or a page; or the unit is damaged.",
        "Consumers get bytes that they cannot decode. The next compaction of this queue ends there: records after it "
        "in the same file are dropped.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-other-record",
        ERROR,
        "a unit of a compacted topic that points to a record other than it states",
        "The record has a different topic, queue, queue offset, size or position.",
        "Files of another queue or an older copy were put here, or a file is damaged.",
        "Consumers get a wrong message, or skip messages.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-order",
        ERROR,
        "queue offsets of a compacted topic that do not increase",
        "Messages of a compacted queue have gaps between their queue offsets, but each is greater than the one before.",
        "The broker was killed while it replaced files: old files remain beside the new ones.",
        "The broker searches the queue by these offsets. Consumers skip messages, or get older versions once more.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-no-key",
        WARNING,
        "a record in a compaction log without a key",
        "Each message of a compacted topic has KEYS.",
        "Damage: no checksum covers properties.",
        "Every compaction of this queue fails at this record. Consumers get all versions of every key, and the files "
        "grow.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-unqueued",
        WARNING,
        "records at the end of a compaction log that no unit leads to",
        "Intact records of the topic lie after the one that the last unit leads to.",
        "The broker was killed, or the power failed, before the queue was written.",
        "The broker cuts them off at its next start. After an unclean stop it takes them again from the commit log, if "
        "they are still there.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-queue-missing",
        ERROR,
        "a compacted topic has messages in the commit log, and no compaction log",
        "topics.json has cleanup.policy=COMPACTION, and the queue has messages with keys, but there is no directory "
        "for it.",
        "The folder was lost in a copy or deleted, or the policy was set when the topic already had messages.",
        "Consumers get none of these messages: they read compacted topics from the compaction log alone, and after a "
        "clean stop the broker adds only new messages to it.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-missing",
        ERROR,
        "messages of a compacted topic that are not in its compaction log",
        "The commit log has the newest message of a key, or one that no compaction has looked at, and the compaction "
        "log does not.",
        "The compaction log lost its end or a file, or the policy was set when the topic already had messages.",
        "Consumers never get these messages; they get an older version of the key, or none.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-behind",
        INFO,
        "messages that are not in the compaction log yet",
        "After an unclean stop, a compaction log may lag behind the commit log.",
        "The broker was killed before it flushed the files.",
        "The broker takes these messages from the commit log at its next start.",
        by_hand("nothing to do: a 5.x broker repairs it at its next start"),
    ),
    kind(
        "compaction-ahead",
        ERROR,
        "a compaction log has messages that its topic does not have any more",
        "Its last queue offset is at or after the end of the topic's queue.",
        "The commit log was truncated or lost its end, and the compaction log did not.",
        "Messages that are sent next get queue offsets that the compaction log already has. The broker takes them for "
        "duplicates, and consumers never get them.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-checkpoint",
        WARNING,
        "compaction/position-checkpoint cannot be read",
        "The file states up to which queue offset each queue has been compacted.",
        "The broker was killed while it wrote the file.",
        "The broker reads position-checkpoint.bak, or starts without one. The next compaction rereads all messages, "
        "and nothing is lost.",
        NOTHING,
    ),
    kind(
        "compaction-checkpoint-ahead",
        WARNING,
        "compaction/position-checkpoint is ahead of its queue",
        "A queue has been compacted up to a queue offset that it does not have.",
        "The compaction log lost its end, or the file is from another copy of the store.",
        "Messages up to that queue offset never replace older ones: consumers get several versions of a key.",
        REBUILD_COMPACTION,
    ),
    kind(
        "compaction-unfinished",
        INFO,
        "files of a compaction that was not finished",
        "The folder compacting or replicating has files. Consumers do not see them.",
        "The broker was stopped in the middle of a compaction.",
        "The next compaction overwrites them.",
        NOTHING,
    ),
    kind(
        "compaction-unused",
        INFO,
        "a compaction log of a topic that is not compacted",
        "In topics.json this topic does not have cleanup.policy=COMPACTION, or is missing.",
        "The policy was changed, or the topic was deleted and recreated.",
        "Consumers read the topic from the commit log. They do not get messages that only the compaction log has.",
        NOTHING,
    ),
)
