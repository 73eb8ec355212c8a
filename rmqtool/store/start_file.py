"""The commit-log file at which a 4.9 broker begins its check (CommitLog.recoverNormally, recoverAbnormally)."""

from formats.checkpoint import Checkpoint
from formats.layouts.codes import MAGIC_V1
from formats.message import HEADS
from rmqtool.store.broker_conf import BrokerConf
from rmqtool.store.segments import Segment

SCANNED_FILES = 3  # from the end, after a clean stop
_LARGEST_HEAD = max(head.size for head in HEADS.values())


def start_number(files: list[Segment], conf: BrokerConf, point: Checkpoint, *, aborted: bool) -> tuple[int, str]:
    """(number of the file, why that one)."""
    if not aborted:
        return max(0, len(files) - SCANNED_FILES), "clean stop: the last three files are checked"
    with_index = conf.flag("messageIndexEnable", True) and conf.flag("messageIndexSafe", False)
    limit = point.min_timestamp_index if with_index else point.min_timestamp
    for number in range(len(files) - 1, -1, -1):
        first = _first_store_timestamp(files[number])
        if first is not None and first <= limit:
            return number, f"unclean stop: newest file whose first message is not younger than {limit}"
    return 0, f"unclean stop: no file begins with a message as old as {limit}, so all are checked"


def _first_store_timestamp(file: Segment) -> int | None:
    """Store time of a file's first record by its raw bytes, as the broker peeks at it; None if it would not match."""
    view = file.view()
    try:
        if len(view) < _LARGEST_HEAD or int.from_bytes(view[4:8], "big", signed=True) != MAGIC_V1:
            return None
        at = HEADS[int.from_bytes(view[36:40], "big") & 0x30].offsets["store_timestamp"]
        return int.from_bytes(view[at : at + 8], "big", signed=True) or None
    finally:
        file.release()
