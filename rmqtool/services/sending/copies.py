"""Copies of stored messages, with everything that services preserve when they move a message."""

from typing import Any

from formats.message.read import Record
from formats.primitives import host_text
from rmqtool.store.append.outgoing import Message


def copy_of(record: Record, topic: str, queue_id: int, properties: dict[str, str], **changes: Any) -> Message:
    """A message to store, with body, flags, born time and both hosts of a stored one, except for ``changes``."""
    fields: dict[str, Any] = {
        "body": record.body,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born_timestamp": record.born_timestamp,
        "born_host": host_text(record.born_address, record.born_port),
        "store_host": host_text(record.store_address, record.store_port),
        "reconsume_times": record.reconsume_times,
        "from_store": True,
    }
    return Message(topic=topic, queue_id=queue_id, properties=properties, **fields | changes)
