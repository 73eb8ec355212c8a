"""checkpoint, abort and lock (store.StoreCheckpoint, store.DefaultMessageStore; store-formats 6)."""

from construct import Bytes, Int64sb, Struct

CHECKPOINT_HEAD = Struct(
    "physic_msg_timestamp" / Int64sb,  # store timestamp of the last flushed message, ms
    "logics_msg_timestamp" / Int64sb,  # of the last message whose queue entry was flushed
    "index_msg_timestamp" / Int64sb,  # end time of the last FULL index file
    "master_flushed_offset" / Int64sb,  # 5.0.0 and later, else 0
    "confirm_phy_offset" / Int64sb,  # 5.1.1 and later, else 0
)
CHECKPOINT_SIZE = 4096
CHECKPOINT = Struct(*CHECKPOINT_HEAD.subcons, "rest" / Bytes(CHECKPOINT_SIZE - CHECKPOINT_HEAD.sizeof()))
