"""Store checkpoint: how far messages, queue entries and index are flushed, as store timestamps.

Source: org.apache.rocketmq.store.StoreCheckpoint; store-formats 6.1.
"""

from typing import NamedTuple

from formats.layouts.derived import CHECKPOINT_HEAD

SIZE = 4096
NO_ENTRY = -1  # logics_physical_offset of a new store of 5.5; for a broker, a value below 1 is none
_REST = SIZE - CHECKPOINT_HEAD.size
_MARGIN = 3000  # ms margin by which recovery goes back before the flushed times


class Checkpoint(NamedTuple):
    """The fields, and the rest of the file."""

    physic_msg_timestamp: int = 0  # store timestamp of the last flushed message, ms
    logics_msg_timestamp: int = 0  # store timestamp of the last message whose queue entry was flushed
    index_msg_timestamp: int = 0  # end time of the last full index file
    master_flushed_offset: int = 0  # 5.0.0 and later
    confirm_phy_offset: int = 0  # 5.1.1 and later
    logics_physical_offset: int = (
        0  # 5.4.0 and later: physical offset of the last message whose queue entry was flushed
    )
    rest: bytes = bytes(_REST)  # not read by any version; preserved

    @property
    def min_timestamp(self) -> int:
        """Messages stored up to this time are certainly in the queues on disk, ms."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _MARGIN, 0)

    @property
    def min_timestamp_index(self) -> int:
        """Messages stored up to this time are certainly in the queues and the index on disk, ms."""
        return min(self.min_timestamp, self.index_msg_timestamp)


def parse(data: bytes | memoryview) -> Checkpoint:
    """Parse a file of any length as a broker does, which maps 4096 bytes of it.

    A shorter file is padded with zeros; pass ``b""`` for a missing one. Bytes after 4096 are outside the mapping: no
    version reads or removes them, so ``rest`` keeps them, too.
    """
    padded = bytes(data).ljust(SIZE, b"\0")
    return Checkpoint._make((*CHECKPOINT_HEAD.unpack_from(padded), padded[CHECKPOINT_HEAD.size :]))


def build(checkpoint: Checkpoint) -> bytes:
    """Stored form: 4096 bytes, or more if ``rest`` is longer; a shorter ``rest`` is padded with zeros."""
    return CHECKPOINT_HEAD.pack(*checkpoint[:-1]) + checkpoint.rest.ljust(_REST, b"\0")
