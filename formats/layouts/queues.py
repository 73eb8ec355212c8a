"""Consume queue, its extension, and the batch consume queue.

Source: org.apache.rocketmq.store.ConsumeQueue, ConsumeQueueExt, queue.BatchConsumeQueue, queue.SparseConsumeQueue;
store-formats 4.
"""

from construct import Bytes, Int16sb, Int32sb, Int64sb, Struct

ENTRY = Struct(
    "physical_offset" / Int64sb,  # start of the record in the commit log
    "size" / Int32sb,  # its total size; 0 = not written; 2**31-1 = filler before the first entry
    "tags_code" / Int64sb,  # tag hash; deliver time (ms) of a delayed message; <= -2**31-1: extension address
)

EXT_HEAD = Struct(
    "unit_size" / Int16sb,  # 20 + bit_map_size; -1: rest of the file unused; 0: not written
    "tags_code" / Int64sb,  # the real one
    "store_timestamp" / Int64sb,
    "bit_map_size" / Int16sb,  # bytes
)
EXT_UNIT = Struct(*EXT_HEAD.subcons, "bit_map" / Bytes(lambda ctx: max(ctx.bit_map_size, 0)))

BATCH_ENTRY = Struct(
    "physical_offset" / Int64sb,  # of the inner-batch record; -1 in the end unit of a sparse queue
    "size" / Int32sb,
    "tags_code" / Int64sb,
    "store_timestamp" / Int64sb,
    "base_queue_offset" / Int64sb,  # property INNER_BASE
    "batch_size" / Int16sb,  # property INNER_NUM
    "compacted_offset" / Int32sb,  # written -1
    "reserved" / Int32sb,
)
