"""Copy the database ``kvStore`` to a salvaged store, so that the messages held by POP groups come back."""

from collections.abc import Mapping

from formats.variants.pop_store import PLACE
from rmqtool.errors import MissingRuntime, RmqError
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import rocksdb_forms
from rmqtool.store.queues.pop_store import stored_records
from rmqtool.words import counted


def keep_popped(
    source: StoreLayout, target: str, limits: Mapping[tuple[str, int], int], left_out: list[str]
) -> list[str]:
    """Copy the database unchanged; returns warnings for the user.

    Args:
        target: the new store.
        limits: by queue, the queue offset from which on its messages were renumbered.
        left_out: receives the database if it cannot be read.
    """
    if PLACE not in rocksdb_forms(source):
        return []
    warnings: list[str] = []
    moved = count = 0
    try:
        for record in stored_records(source, warnings.append):
            count += 1
            limit = limits.get((record.topic, record.queue_id))
            moved += limit is not None and record.queue_offset >= limit
    except MissingRuntime as err:
        warnings.append(f"{err}: {PLACE} is copied unread")
    except RmqError as err:
        left_out.append(PLACE)
        return [f"{err}: left out: messages that POP groups hold by it do not come back to them in the new store"]
    try:
        for entry in source.entries(PLACE):
            if entry.is_file():
                make_folders(f"{target}/{PLACE}")
                with make_file(f"{target}/{PLACE}/{entry.name}") as copy:
                    copy.copy_from(entry.path)
                    copy.sync()
    except OSError as err:
        left_out.append(PLACE)
        warnings.append(f"{PLACE}: {err.strerror or err}: not copied as a whole: a broker may not open it")
    if count:
        warnings.append(
            f"{PLACE}: {counted(count, 'message')} that POP groups hold: only a broker that has "
            "popConsumerKVServiceEnable=true gives them back"
        )
    if moved:
        warnings.append(f"{PLACE}: {moved} of them have another queue offset now: another message comes back instead")
    return warnings
