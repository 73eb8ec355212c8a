"""Consume queue, its extension, and the batch consume queue.

Source: org.apache.rocketmq.store.ConsumeQueue, ConsumeQueueExt, queue.BatchConsumeQueue, queue.SparseConsumeQueue;
store-formats 4.
"""

from construct import Bytes, Int16sb, Int32sb, Int64sb, Struct

ENTRY = Struct(
    "physical_offset" / Int64sb * "start of the record in the commit log",
    "size" / Int32sb * "its total size; 0: not written; 2^31-1: filler",
    "tags_code" / Int64sb * "hash of the tag, deliver time (ms), or address, see above",
)

EXT_HEAD = Struct(
    "unit_size" / Int16sb * "20 + bit_map_size; -1: rest of the file not used; 0: not written",
    "tags_code" / Int64sb * "the real one, which the queue entry has no room for",
    "store_timestamp" / Int64sb * "of the message, ms",
    "bit_map_size" / Int16sb * "bytes of the bit map; less than 1: none",
)
EXT_UNIT = Struct(
    *EXT_HEAD.subcons,
    "bit_map" / Bytes(lambda ctx: max(ctx.bit_map_size, 0)) * "bits of the groups whose filter passes it",
)

BATCH_ENTRY = Struct(
    "physical_offset" / Int64sb * "of the inner-batch record; -1: end of a sparse queue's file",
    "size" / Int32sb * "total size of that record",
    "tags_code" / Int64sb * "hash of the tag",
    "store_timestamp" / Int64sb * "of the batch, ms",
    "base_queue_offset" / Int64sb * "of the first message (property INNER_BASE)",
    "batch_size" / Int16sb * "messages in the batch (property INNER_NUM)",
    "compacted_offset" / Int32sb * "written as -1",
    "reserved" / Int32sb * "0",
)
