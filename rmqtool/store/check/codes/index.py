"""Codes of the index."""

from rmqtool.store.check.advice.steps import NOTHING, REBUILD_INDEX, RECOVER, Step
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

_SCAN = Step(
    command=("rmqtool", "query-key", "STORE", "TOPIC", "KEY", "--scan"), does="finds a message without the index"
)

ALL = (
    kind(
        "index-unreadable",
        ERROR,
        "an index file cannot be read",
        "The header is truncated, or the numbers of slots and entries cannot be determined.",
        "Damage, or sizes that are only in the broker's configuration (then give --broker-conf).",
        "The broker does not check this. Lookups by key find nothing, or wrong messages.",
        REBUILD_INDEX,
    ),
    kind(
        "index-absent",
        WARNING,
        "there is no index, although messages have keys",
        "The directory index has no files.",
        "The files were deleted, or the broker has messageIndexEnable=false or indexFileWriteEnable=false (then give "
        "--broker-conf).",
        "Lookups by key or unique id find nothing. After a clean stop, the broker does not rebuild the index.",
        REBUILD_INDEX,
    ),
    kind(
        "index-count",
        WARNING,
        "the entry count of an index file is wrong",
        "The count in the header should be the number of the next entry.",
        "The header was not flushed before a crash, or it is damaged.",
        "Entries after the count are not found, and are overwritten.",
        REBUILD_INDEX,
    ),
    kind(
        "index-header",
        WARNING,
        "the header of an index file does not match its entries",
        "The header holds the store time and the physical offset of the first and the last message in the file.",
        "The header was not flushed before a crash, or it is damaged.",
        "The times in the header decide which files a lookup opens, and the times of the entries are relative to them. "
        "Messages before the last offset in the header are not indexed.",
        REBUILD_INDEX,
    ),
    kind(
        "index-slots",
        WARNING,
        "the slot count of an index file is wrong",
        "The count in the header should be the number of slots that have entries.",
        "The header was not flushed before a crash, or it is damaged.",
        "The broker does not use this number.",
        NOTHING,
    ),
    kind(
        "index-chain",
        ERROR,
        "a chain of index entries is broken",
        "Each slot leads to its newest entry, and each entry to the next older one. Here a link is wrong.",
        "Damage, or pages that were not flushed before a crash.",
        "Lookups miss older messages whose keys are in this slot.",
        REBUILD_INDEX,
    ),
    kind(
        "index-entry",
        ERROR,
        "an index entry that matches no key of its message",
        "No key of the message at the entry's offset has the entry's hash.",
        "The entry is damaged, or a new log was written under an old index.",
        "A lookup by the true key misses the message.",
        REBUILD_INDEX,
    ),
    kind(
        "index-ghost",
        WARNING,
        "index entries that point to no message",
        "They point beyond the end of the log, or to a place where there is no record.",
        "The log was truncated after a clean stop while the index was kept, or the log is damaged there.",
        "Lookups find nothing there, and later whatever is written there. New messages before that offset are not "
        "indexed.",
        REBUILD_INDEX,
    ),
    kind(
        "index-time",
        WARNING,
        "an index entry whose time differs from its message's",
        "The time in the header plus the seconds in the entry differs from the store time of the message.",
        "The entry or the header is damaged.",
        "Lookups with a time range may miss the message.",
        REBUILD_INDEX,
    ),
    kind(
        "index-missing",
        WARNING,
        "messages that are not in the index",
        "The messages have keys, but the index has no entries for them.",
        "An index file was lost, or after a crash the broker rebuilt only what came after the checkpoint.",
        "Lookups by key or unique id do not find these messages. Reading by offset and consuming still work.",
        (_SCAN, REBUILD_INDEX),
    ),
    kind(
        "index-behind",
        INFO,
        "messages that are not in the index yet",
        "After an unclean stop, the newest index file may lag behind the log.",
        "The broker was killed before it flushed the index.",
        "The broker rebuilds the newest index file at its next start.",
        RECOVER,
    ),
)
