"""checkpoint, abort and lock (store.StoreCheckpoint, store.DefaultMessageStore; store-formats 6)."""

from construct import Bytes, Int64sb, Struct

from formats.layouts.docs import since

CHECKPOINT_HEAD = Struct(
    "physic_msg_timestamp" / Int64sb * "store timestamp of the last flushed message, ms",
    "logics_msg_timestamp" / Int64sb * "the same of the last flushed queue entry",
    "index_msg_timestamp" / Int64sb * "end_timestamp of the last full index file",
    "master_flushed_offset" / Int64sb * since("5.0.0", "physical offset up to which the master has flushed"),
    "confirm_phy_offset" / Int64sb * since("5.1.1", "physical offset up to which messages are confirmed"),
    "logics_physical_offset" / Int64sb * since("5.4.0", "physical offset of the last flushed queue entry's message"),
)
CHECKPOINT_SIZE = 4096
CHECKPOINT = Struct(
    *CHECKPOINT_HEAD.subcons,
    "rest" / Bytes(CHECKPOINT_SIZE - CHECKPOINT_HEAD.sizeof()) * "zeros; not read by any version",
)
