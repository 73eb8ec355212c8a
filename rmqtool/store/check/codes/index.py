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
        "an index file cannot be made sense of",
        "Its header is cut, or its numbers of slots and entries cannot be told.",
        "Damage, or sizes that only the broker's configuration knows (then give --broker-conf).",
        "It does not check: lookups by key find nothing or anything.",
        REBUILD_INDEX,
    ),
    kind(
        "index-absent",
        WARNING,
        "there is no index although messages have keys",
        "The directory index holds no file.",
        "Deleted, or messageIndexEnable=false (then give --broker-conf).",
        "Lookups by key or unique id find nothing. A clean start does not build it again.",
        REBUILD_INDEX,
    ),
    kind(
        "index-count",
        WARNING,
        "an index header counts other entries than there are",
        "The header's count is the number of the next entry.",
        "The header's page was not flushed before a crash; damage.",
        "Entries above the count are not found, and are overwritten.",
        REBUILD_INDEX,
    ),
    kind(
        "index-header",
        WARNING,
        "an index header says another beginning or end than its entries have",
        "The header holds store time and physical offset of the first and the last message in the file.",
        "The header's page was not flushed before a crash; damage.",
        "The times decide which files a lookup opens, and what an entry's seconds count from. Messages before the end "
        "offset are not indexed.",
        REBUILD_INDEX,
    ),
    kind(
        "index-slots",
        WARNING,
        "an index header counts other slots than are in use",
        "The header's slot count is the number of slots with entries.",
        "The header's page was not flushed before a crash; damage.",
        "It does not use the number.",
        NOTHING,
    ),
    kind(
        "index-chain",
        ERROR,
        "a chain of index entries is broken",
        "A slot or entry does not lead to the newest, or the next older, entry of its slot.",
        "Damage, or pages that were not flushed before a crash.",
        "Lookups miss older messages with keys of this slot.",
        REBUILD_INDEX,
    ),
    kind(
        "index-entry",
        ERROR,
        "an index entry belongs to no key of its message",
        "No key of the message at the entry's offset has the entry's hash.",
        "Damage in the entry; a log that was written anew below an old index.",
        "A lookup for the true key misses the message.",
        REBUILD_INDEX,
    ),
    kind(
        "index-ghost",
        WARNING,
        "index entries that point to no message",
        "They point behind the end of the log, or to a place that is no record.",
        "The log was cut after a clean stop, and the index was not.",
        "Lookups answer with nothing, and later with whatever is written there. New messages before that offset are "
        "not indexed.",
        REBUILD_INDEX,
    ),
    kind(
        "index-time",
        WARNING,
        "an index entry says another time than its message",
        "Header time plus the entry's seconds is not the message's store time.",
        "Damage.",
        "Lookups with a time range may miss the message.",
        REBUILD_INDEX,
    ),
    kind(
        "index-missing",
        WARNING,
        "messages that the index does not have",
        "The message has keys, and no index entry holds them.",
        "An index file was lost; or a crash recovery built only what came after the checkpoint.",
        "Lookups by key or unique id do not find it; reading by offset and consuming work.",
        (_SCAN, REBUILD_INDEX),
    ),
    kind(
        "index-behind",
        INFO,
        "messages that are not indexed yet",
        "After an unclean stop the next start builds the current index file anew.",
        "Killed before the index was flushed.",
        "Its next start indexes them.",
        RECOVER,
    ),
)
