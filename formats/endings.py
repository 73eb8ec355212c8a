"""What a reader can find where it hoped for another unit. Five answers, not one -1."""

from enum import Enum


class Ending(Enum):
    """Why a run of units stops."""

    CLEAN = "clean"  # exactly at the end of the buffer
    FILLER = "filler"  # the writer's own end-of-file mark: go on in the next file
    UNWRITTEN = "unwritten"  # zero bytes: nothing was ever written here
    CUT = "cut"  # a unit begins and the buffer ends inside it
    DAMAGED = "damaged"  # bytes that are neither
