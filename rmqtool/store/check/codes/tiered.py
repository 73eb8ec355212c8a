"""Codes of tiered storage."""

from rmqtool.store.check.advice.steps import KEEPS, NOTHING, RECOVER, Step, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, kind

BACK = by_hand(
    "restore the segment from a copy. Messages that are still in the commit log are not lost: consumers read them "
    "there",
    "without a copy, messages that only the segment had are lost",
)

DO_NOT_START = by_hand(
    "do not start a broker on this store: copy its directory and that of the tier first, then put back from a copy "
    "what is missing (queue files, config/tieredStoreMetadata.json or its .bak)"
)

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
        "Commit-log files were removed, or cut, before their messages were uploaded; or the tier is an older copy.",
        "The broker deletes all segments of this queue and starts a new tier for it.",
        DO_NOT_START,
    ),
    kind(
        "tiered-stopped",
        ERROR,
        "do not start a broker: a queue ends before its tier does",
        "The tier of a queue has queue offsets after the end of the local queue.",
        "Queue files were removed or cut, or are from an older copy than the tier.",
        "The broker gives new messages queue offsets that others already have in the tier, and uploads nothing more of "
        "this queue.",
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
        "A copy that was cut short, or a full disk.",
        "If it is the last segment, the broker goes by the length of the file, and uploads the messages after it again "
        "if they are still in the commit log. In any other segment, consumers get nothing past its end.",
        BACK,
    ),
    kind(
        "tiered-gap",
        ERROR,
        "segments of tiered storage do not follow each other",
        "Each segment of a queue begins where the one before it ends. Here one does not.",
        "A segment was deleted, or the metadata are from another time.",
        "Consumers get nothing from the gap, or the same messages twice.",
        BACK,
    ),
    kind(
        "tiered-unknown",
        INFO,
        "a segment of tiered storage that is not in the metadata",
        "The file has the name of a segment that is not in tieredStoreMetadata.json.",
        "The broker removed the segment from its metadata and was stopped before it removed the file; or the metadata "
        "are from another time.",
        "The broker does not read it.",
        NOTHING,
    ),
    kind(
        "tiered-message",
        ERROR,
        "an entry of a queue in tiered storage that does not lead to its message",
        "Every entry has the position of a message in the tiered log of its queue. This one leads to damage or "
        "another message.",
        "Damage, or segments of different times.",
        "Consumers that read this offset from tiered storage get nothing, or another message.",
        BACK,
    ),
)
