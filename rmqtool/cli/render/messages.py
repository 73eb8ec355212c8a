"""Messages as rows: contract fields, and the columns of their table."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqtool.cli.render.output import Column, Writer, writer
from rmqtool.cli.render.times import time_text
from rmqtool.contract import MESSAGE_FIELDS, QUEUE_ENTRY_FIELDS, message_row

if TYPE_CHECKING:
    from rmqtool.services.lookup.stored import LogMessage

MESSAGE_COLUMNS = (
    Column("topic"),
    Column("queueId", right=True),
    Column("queueOffset", right=True),
    Column("physicalOffset", right=True),
    Column("storeSize", right=True, rank=1),
    Column("storeTime", lambda row: time_text(row["storeTimestamp"])),
    Column("msgId"),
    Column("tags"),
    Column("keys", wide=True),
    Column("body", wide=True),
)
QUEUE_ENTRY_COLUMNS = tuple(
    Column(name, right=name != "topic", rank=int(name == "batchNum")) for name in QUEUE_ENTRY_FIELDS
)


def message_writer(form: str) -> Writer:
    """A writer for rows of :func:`message_row`."""
    return writer(form, MESSAGE_FIELDS, MESSAGE_COLUMNS)


def write_messages(form: str, messages: "Iterable[LogMessage]", body: str) -> int:
    """Write messages; returns their number."""
    to = message_writer(form)
    count = 0
    for message in messages:
        to.row(message_row(message.record, message.physical_offset, body))
        count += 1
    to.close()
    return count
