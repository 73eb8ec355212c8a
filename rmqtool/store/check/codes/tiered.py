"""Codes of tiered storage."""

from rmqtool.store.check.advice.steps import NOTHING, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, kind

BACK = by_hand(
    "put the segment back from a copy. Messages that the commit log still has are not lost: consumers read them there",
    "without a copy, messages that only the segment had are lost",
)

ALL = (
    kind(
        "tiered-missing",
        ERROR,
        "a segment of tiered storage is missing",
        "tieredStoreMetadata.json names a segment, and there is no such file.",
        "Deleted by hand, lost in a copy, or the directory (tieredStoreFilePath) is another one.",
        "The broker makes an empty file in its place. Consumers that need messages of it get none.",
        BACK,
    ),
    kind(
        "tiered-short",
        ERROR,
        "a segment of tiered storage is shorter than its metadata says",
        "tieredStoreMetadata.json has the length up to which a segment was written. The file is shorter.",
        "A copy that was cut short, or a full disk.",
        "If it is the last one, the broker takes the length of the file, and copies the messages after it again if the "
        "commit log still has them. In any other one, consumers get nothing from where it ends.",
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
        "a segment of tiered storage that the metadata do not name",
        "The file has the name of a segment, and tieredStoreMetadata.json does not know it.",
        "The broker removed the segment from its metadata and was stopped before it removed the file; or the metadata "
        "are from another time.",
        "The broker does not read it.",
        NOTHING,
    ),
    kind(
        "tiered-message",
        ERROR,
        "an entry of a queue in tiered storage that does not lead to its message",
        "Every entry has the position of a message in the tiered log of its queue. There is damage or another message.",
        "Damage, or segments of different times.",
        "Consumers that read this offset from tiered storage get nothing, or another message.",
        BACK,
    ),
)
