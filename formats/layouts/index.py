"""Index file: header, hash slots, entries (store.index.IndexFile, IndexHeader; store-formats 5)."""

from construct import Int32sb, Int64sb, Struct

HEADER = Struct(
    "begin_timestamp" / Int64sb * "store timestamp of the first entry, ms",
    "end_timestamp" / Int64sb * "store timestamp of the last entry, ms",
    "begin_physical_offset" / Int64sb * "of the first entry's message",
    "end_physical_offset" / Int64sb * "of the last entry's message",
    "hash_slot_count" / Int32sb * "slots in use",
    "index_count" / Int32sb * "number of the next entry; entry 0 is never used",
)
SLOT = Struct("newest_entry" / Int32sb * "number of the newest entry of this slot; 0: empty")
ENTRY = Struct(
    "key_hash" / Int32sb * "absolute value of Java's hash of topic#key",
    "physical_offset" / Int64sb * "of the message in the commit log",
    "seconds" / Int32sb * "store timestamp minus the file's begin_timestamp, in seconds",
    "previous_entry" / Int32sb * "number of the next older entry of this slot; 0: none",
)
