"""Index of tiered storage, local and uploaded (tieredstore.index.IndexStoreFile, IndexItem; 5.3.3)."""

from construct import Int32sb, Int64sb, Struct

INDEX_HEAD = Struct(
    "magic" / Int32sb * "0xBCC50285 in an uploaded segment, 0xBCC50289 in a local file",
    "begin_timestamp" / Int64sb * "when the file was made, ms",
    "end_timestamp" / Int64sb * "store time of the last item, ms; can be before the begin",
    "used_slots" / Int32sb * "hash slots in use; all of them follow, 8 bytes each",
    "items" / Int32sb * "items, at the end of the segment",
)
INDEX_SLOT = Struct(
    "position" / Int32sb * "of the slot's items in the segment",
    "bytes" / Int32sb * "of the slot's items; 0 without any",
)
INDEX_ITEM = Struct(
    "hash_code" / Int32sb * "of topic#key",
    "topic_id" / Int32sb * "of the topic in tieredStoreMetadata.json",
    "queue_id" / Int32sb * "of the message",
    "position" / Int64sb * "of the message in its queue's own log",
    "size" / Int32sb * "of the message",
    "time_difference" / Int32sb * "store time - begin_timestamp, s; often negative",
)
LOCAL_INDEX_ITEM = Struct(
    *INDEX_ITEM.subcons,
    "previous_item" / Int32sb * "next older item of the same slot; 0 = end of the chain",
)
