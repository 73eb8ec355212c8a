"""Check the database ``kvStore``: each record of a popped message by itself, and against the end of its queue.

Source: broker.pop.PopConsumerService (revive) and PopConsumerRocksdbStore of 5.3.3.
"""

from formats.errors import FormatError
from formats.variants.pop_store import FAMILY, PLACE, PopStoreKey, PopStoreRecord, parse_key
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.queues.rocks import report_unreadable
from rmqtool.store.queues.pop_store import pop_database


def check_pops(ctx: Context, *, queues: bool) -> None:
    """Check all records.

    Args:
        queues: whether ``ctx.queues_seen.ends`` has all queues.
    """

    def check() -> None:
        database = pop_database(ctx.layout)
        for key, value in database.items(FAMILY) if database is not None else ():
            _check_record(ctx, key, value, queues=queues)

    report_unreadable(ctx, "pop-database", PLACE, "popped messages", check)


def _check_record(ctx: Context, key: bytes, value: bytes, *, queues: bool) -> None:
    try:
        record = PopStoreRecord.parse(value)
    except FormatError as err:
        ctx.found.add("pop-record", PLACE, actual=f"key {key.hex()}: {err}")
        return
    about = {"topic": record.topic, "queueId": record.queue_id, "queueOffset": record.queue_offset}
    parsed: PopStoreKey | str
    try:
        parsed = parse_key(key)
    except FormatError as err:
        parsed = str(err)
    if parsed != record.key:
        ctx.found.add("pop-record-key", PLACE, expected=_describe(record.key), actual=_describe(parsed), **about)
        return
    end = ctx.queues_seen.ends.get((record.topic, record.queue_id), 0)
    if queues and record.queue_offset >= end:
        ctx.found.add("pop-ahead", PLACE, expected=f"before {end}", actual=f"group {record.group}", **about)


def _describe(key: PopStoreKey | str) -> str:
    if isinstance(key, str):
        return key
    return f"group {key.group}, {key.topic} {key.queue_id}, queue offset {key.queue_offset}, due {key.visible_time}"
