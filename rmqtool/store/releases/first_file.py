"""Find the commit-log file at which a broker starts its check (CommitLog.recoverNormally, recoverAbnormally).

After a clean stop 4.9 takes the last three files, 5.3 the newest file that begins before the end of the queues. After a
crash both compare store times with the checkpoint.
"""

from collections.abc import Callable, Sequence

from formats.checkpoint import Checkpoint
from formats.layouts.codes import MAGIC_V1, MAGIC_V2
from formats.message.properties import BATCH_NUMBERS, INNER_BASE, parse_raw
from formats.message.read import HEADS, HOSTS_V6, Record, is_java_int, read
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.broker_conf import BrokerConf

SCANNED_FILES = 3  # number of last files checked after a clean stop (4.9)
_MAGIC, _SYS_FLAG = (
    HEADS[0].field("magic"),
    HEADS[0].field("sys_flag"),
)  # these fields have the same offsets in every head
_PHYSICAL_OFFSET = HEADS[0].field("physical_offset")
_BATCH_MARK = INNER_BASE.encode() + b"\x01"
_LARGEST_HEAD = max(head.size for head in HEADS.values())


def first_checked(files: list[Segment], conf: BrokerConf, point: Checkpoint, *, aborted: bool) -> tuple[int, str]:
    """(number of the file, reason), by the rules of 4.9."""
    if aborted:
        return _after_crash(files, conf, point, MAGIC_V1)
    return max(0, len(files) - SCANNED_FILES), "clean stop: the last three files are checked"


def first_checked_v5(
    files: list[Segment], conf: BrokerConf, point: Checkpoint, known: int, *, aborted: bool
) -> tuple[int, str]:
    """(number of the file, reason), by the rules of 5.3.

    Args:
        known: end of the last message in any queue.
    """
    if aborted:
        return _after_crash(files, conf, point, MAGIC_V1, MAGIC_V2)
    number = known_number(files, known)
    if number:
        return number, f"clean stop: the newest file that begins before the end of what queues know, {known}"
    return 0, f"clean stop: queues know the log only up to {known}, so all files are checked"


def known_number(files: list[Segment], known: int) -> int:
    """The newest file that begins at or before an offset; the first file if none does."""
    return next((number for number in range(len(files) - 1, 0, -1) if files[number].base <= known), 0)


def _after_crash(files: list[Segment], conf: BrokerConf, point: Checkpoint, *magics: int) -> tuple[int, str]:
    with_index = conf.flag("messageIndexEnable", True) and conf.flag("messageIndexSafe", False)
    limit = point.min_timestamp_index if with_index else point.min_timestamp
    for number in range(len(files) - 1, -1, -1):
        first = _first_store_timestamp(files[number], magics)
        if first is not None and first <= limit:
            return number, f"unclean stop: the newest file whose first message is not later than {limit}"
    return 0, f"unclean stop: no file begins with a message that is not later than {limit}, so all are checked"


def first_checked_v5_4(
    files: list[Segment],
    conf: BrokerConf,
    point: Checkpoint,
    known: int,
    *,
    aborted: bool,
    marked: bool,
    second: int | None = None,
    others: Sequence[int] = (),
) -> tuple[int, str]:
    """(number of the file, reason), by the rules of 5.4 and 5.5, for queues in files.

    This is the newest file whose first record is intact and is in the queues; the search ends after
    ``commitLogRecoverMaxNum`` files (CommitLog.isMappedFileMatchedRecover, ConsumeQueueStore of 5.4.0 and 5.5.0).

    Args:
        known: end of the last message in any queue.
        marked: whether the release keeps in the checkpoint up to where queues were flushed (5.5); if False, store times
            decide after an unclean stop, as in older releases.
        second: how far a database that has the queues, too, has the log; None if there is none.
        others: the same of the databases of the index and of half messages, if enabled.
    """
    # CombineConsumeQueueStore.isMappedFileMatchedRecover: a database that is behind is given some more files, or all
    patience = conf.number("combineCQMaxExtraSearchCommitLogFiles", 3)
    all_of_them = marked and conf.flag("combineCQUseRocksdbForLmq", False)

    def both_have(record: Record) -> bool:
        nonlocal patience
        if not has(record) or any(record.physical_offset > end for end in others):
            return False
        if second is None or (marked and second <= 0) or record.physical_offset <= second:
            return True
        if all_of_them:
            return False
        patience -= 1
        return patience < 0

    def has(record: Record) -> bool:
        if aborted and not marked:
            return record.store_timestamp <= point.min_timestamp
        if aborted and point.logics_physical_offset <= 0:
            return record.store_timestamp <= point.logics_msg_timestamp
        return record.physical_offset <= (point.logics_physical_offset if aborted else known)

    return _newest_that_fits(files, conf, point, both_have, aborted=aborted)


def first_checked_rocks_v5_5(
    files: list[Segment], conf: BrokerConf, point: Checkpoint, ends: Sequence[int], *, aborted: bool
) -> tuple[int, str]:
    """(number of the file, reason), by the rules of 5.5 for queues in RocksDB.

    Args:
        ends: how far each database has the log: that of the queues, and if enabled those of the index and of half
            messages.
    """
    lowest = min((end for end in ends if end > 0), default=0)
    return _newest_that_fits(
        files, conf, point, lambda record: record.physical_offset <= min(lowest, *ends), aborted=aborted
    )


def _newest_that_fits(
    files: list[Segment], conf: BrokerConf, point: Checkpoint, has: Callable[[Record], bool], *, aborted: bool
) -> tuple[int, str]:
    """(number of the newest file whose first record is intact and is in queues and index, reason).

    Args:
        has: whether the queues have a record.
    """
    most = conf.number("commitLogRecoverMaxNum", 10)
    most = most if most > 0 else 10
    safe = conf.flag("messageIndexEnable", True) and conf.flag("messageIndexSafe", False)
    crc = conf.flag("checkCRCOnRecover", True)

    def fits(file: Segment) -> bool:
        try:
            record = read(file.view(), 0, file.size, crc=crc)
        finally:
            file.release()
        if not isinstance(record, Record) or not record.store_timestamp or has_bad_batch_numbers(record):
            return False
        # in this order: a broker gives up on a database of queues after some files, whatever the index has
        return has(record) and not (safe and record.store_timestamp > point.index_msg_timestamp)

    stop = "unclean stop" if aborted else "clean stop"
    number = len(files) - 1
    while number > 0 or (aborted and number == 0):
        most -= 1
        if fits(files[number]):
            return number, f"{stop}: the newest file whose first message the queues have"
        if most <= 0:
            return number, f"{stop}: a broker looks at no more files than commitLogRecoverMaxNum"
        number -= 1
    return 0, f"{stop}: no file begins with a message that the queues have, so all are checked"


def has_bad_batch_numbers(record: Record) -> bool:
    """Whether a record has both batch numbers, whatever its flags, and ``parseLong`` or ``parseShort`` rejects one."""
    if _BATCH_MARK not in record.properties:
        return False
    properties = parse_raw(record.properties)
    return all(name in properties for name, _ in BATCH_NUMBERS) and not all(
        is_java_int(properties[name], bits) for name, bits in BATCH_NUMBERS
    )


def first_checked_rocks(files: list[Segment], known: int, *, aborted: bool) -> tuple[int, str]:
    """(number of the file, reason), by the rules of 5.3 for queues in RocksDB.

    Args:
        known: how far the database has the log.
    """
    if not aborted:
        number = known_number(files, known)
    else:
        number = next((n for n in range(len(files) - 1, -1, -1) if _begins_by(files[n], known)), 0)
    stop = "unclean stop" if aborted else "clean stop"
    if number or (aborted and _begins_by(files[0], known)):
        return number, f"{stop}: newest file that begins where the database has the log, which is up to {known}"
    return 0, f"{stop}: the database has the log up to {known}, so all files are checked"


def _begins_by(file: Segment, known: int) -> bool:
    """Whether a file's first record states a physical offset up to ``known``, by its raw bytes."""
    view = file.view()
    try:
        if len(view) < _LARGEST_HEAD or _MAGIC.unpack_from(view)[0] not in (MAGIC_V1, MAGIC_V2):
            return False
        return bool(_PHYSICAL_OFFSET.unpack_from(view)[0] <= known)
    finally:
        file.release()


def _first_store_timestamp(file: Segment, magics: tuple[int, ...]) -> int | None:
    """Store time in the raw bytes of a file's first record, as the broker reads it; None if it cannot match."""
    view = file.view()
    try:
        if len(view) < _LARGEST_HEAD or _MAGIC.unpack_from(view)[0] not in magics:
            return None
        head = HEADS[_SYS_FLAG.unpack_from(view)[0] & HOSTS_V6]
        (timestamp,) = head.field("store_timestamp").unpack_from(view)
        return int(timestamp) or None
    finally:
        file.release()
