"""Index file: header, hash slots, entries (store.index.IndexFile, IndexHeader; store-formats 5)."""

from construct import Int32sb, Int64sb, Struct

HEADER = Struct(
    "begin_timestamp" / Int64sb,  # store timestamp of the first entry, ms
    "end_timestamp" / Int64sb,
    "begin_physical_offset" / Int64sb,
    "end_physical_offset" / Int64sb,
    "hash_slot_count" / Int32sb,  # slots in use
    "index_count" / Int32sb,  # number of the NEXT entry; entry 0 is never used
)
SLOT = Struct("newest_entry" / Int32sb)  # 0 = empty
ENTRY = Struct(
    "key_hash" / Int32sb,  # abs of Java's hash of topic#key
    "physical_offset" / Int64sb,
    "seconds" / Int32sb,  # store time minus the file's begin timestamp
    "previous_entry" / Int32sb,  # in the chain of this slot; 0 = end
)
