"""Codes of tiered storage."""

from rmqtool.store.check.advice.steps import KEEPS, NOTHING, RECOVER, Step, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

BACK = by_hand(
    "restore the segment from a copy. Messages that are still in the commit log are not lost: consumers read them "
    "there",
    "without a copy, messages that only the segment had are lost",
)

DO_NOT_START = by_hand(
    "do not start a broker on this store: copy its directory and that of the tier first, then restore what is missing "
    "from a copy (queue files, config/tieredStoreMetadata.json or its .bak)"
)

HARMS_TIER = {"tiered-ignored", "tiered-deleted", "tiered-stopped"}

END_AS_THE_TIER = Step(
    command=RECOVER.command,
    does="ends a queue where its tier does if the log has no messages of it; otherwise it refuses",
    costs=KEEPS,
)

METADATA_AGAIN = Step(
    command=("rmqtool", "rebuild", "STORE", "tiered-metadata"),
    does="writes the file from the segments of the tier, so that a broker finds them again",
    costs=KEEPS,
)

ALL = (
    kind(
        "tiered-ignored",
        ERROR,
        "do not start a broker: it would not find the tier",
        "A broker finds the segments of tiered storage only through config/tieredStoreMetadata.json or its .bak. "
        "Neither can be read, although the segments are there.",
        "The files were deleted or damaged, or left out of a copy.",
        "The broker serves no message that is only in the tier, and starts a new tier in the same directory.",
        (METADATA_AGAIN, *DO_NOT_START),
    ),
    kind(
        "tiered-deleted",
        ERROR,
        "do not start a broker: it would delete the tier of a queue",
        "The tier of a queue ends before the queue's first message that is in the local log.",
        "Commit-log files were removed or truncated before their messages were uploaded, or the tier is an older copy.",
        "The broker deletes all segments of this queue and starts a new tier for it.",
        DO_NOT_START,
    ),
    kind(
        "tiered-stopped",
        ERROR,
        "do not start a broker: a queue ends before its tier does",
        "The tier of a queue has queue offsets after the end of the local queue.",
        "Queue files were removed or truncated, or are from an older copy than the tier.",
        "The broker gives new messages queue offsets that messages in the tier already have, and uploads nothing more "
        "of this queue.",
        (END_AS_THE_TIER, *DO_NOT_START),
    ),
    kind(
        "tiered-missing",
        ERROR,
        "a segment of tiered storage is missing",
        "tieredStoreMetadata.json names a segment whose file does not exist.",
        "It was deleted by hand or lost in a copy, or tieredStoreFilePath is another directory.",
        "The broker creates an empty file in its place. Consumers get none of its messages.",
        BACK,
    ),
    kind(
        "tiered-short",
        ERROR,
        "a segment of tiered storage is shorter than its metadata says",
        "tieredStoreMetadata.json has the length up to which a segment was written. The file is shorter.",
        "An incomplete copy, or a full disk.",
        "If it is the last segment, the broker goes by the length of the file, and uploads the messages after it again "
        "if they are still in the commit log. In any other segment, consumers get nothing past its end.",
        BACK,
    ),
    kind(
        "tiered-gap",
        ERROR,
        "segments of tiered storage do not follow each other",
        "Each segment of a queue begins where the one before it ends. Here one does not.",
        "A segment was deleted, or the metadata is from a different time.",
        "Consumers get nothing from the gap, or the same messages twice.",
        BACK,
    ),
    kind(
        "tiered-unknown",
        INFO,
        "a segment of tiered storage that is not in the metadata",
        "The file has the name of a segment that is not in tieredStoreMetadata.json.",
        "The broker removed the segment from its metadata and was stopped before it removed the file, or the metadata "
        "is from a different time.",
        "The broker does not read it.",
        NOTHING,
    ),
    kind(
        "tiered-message",
        ERROR,
        "an entry of a queue in tiered storage that does not lead to its message",
        "Every entry has the position of a message in the tiered log of its queue. This one leads to damage or to "
        "another message.",
        "Damage, or segments of different times.",
        "Consumers that read this offset from tiered storage get nothing, or another message.",
        BACK,
    ),
    kind(
        "tiered-long",
        WARNING,
        "a segment of tiered storage is longer than its metadata says",
        "tieredStoreMetadata.json has the length up to which a segment was written. The file has more.",
        "A kill between writing a segment and its metadata, or metadata of another time.",
        "If it is the last segment, the broker goes by the length of the file. In any other segment, what follows the "
        "known length is not read.",
        (METADATA_AGAIN,),
    ),
    kind(
        "tiered-differs",
        ERROR,
        "a message in tiered storage that is not the one in the commit log",
        "Tier and commit log have different messages at one queue offset. Only the physical offset may differ.",
        "The tier, the log or the queues are from another store or another time, or one of them is damaged.",
        "Consumers get one or the other, depending on where they read.",
        by_hand(
            "copy both; find out which of the messages is right (query-offset), and put the other part back from a copy"
        ),
    ),
    kind(
        "tiered-unlisted",
        INFO,
        "messages in tiered storage that no queue entry leads to",
        "The tiered log of a queue has records that its queue does not list.",
        "A kill between writing the log and the queue; the broker then uploads them again.",
        "Consumers read these offsets from the commit log, or from the second upload.",
        NOTHING,
    ),
    kind(
        "tiered-index",
        WARNING,
        "the index of tiered storage is damaged",
        "A header, hash slot or item of an index segment, or of a local index file, does not lead to a message.",
        "Damage, or segments of different times.",
        "Searches by key do not find some of the messages that are only in tiered storage. Consumers are not affected.",
        by_hand("restore the file from a copy; without one, read those messages by queue offset (query-offset)"),
    ),
    kind(
        "tiered-undelivered",
        WARNING,
        "delayed messages that are neither in the commit log nor in tiered storage",
        "Entries of a delay level that was not delivered yet are of messages that expired from the log. Brokers never "
        "upload delayed messages.",
        "Commit-log files expired, or were removed, before the messages were delivered.",
        "The broker never delivers them.",
        by_hand("put the commit-log files back from a copy; without one, the messages are lost"),
    ),
    kind(
        "tiered-lost",
        INFO,
        "messages that are neither in the commit log nor in tiered storage",
        "Entries of a local queue are of messages that expired from the log, and the tier does not have them. Brokers "
        "never upload delayed, timer and half messages, nor other system topics.",
        "Commit-log files expired, or were removed.",
        "Nothing, if the messages were delivered or consumed. Timers that waited and open transactions are gone.",
        NOTHING,
    ),
)
