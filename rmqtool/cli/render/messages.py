"""Messages as rows: contract fields, and the columns of their table."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rmqtool.cli.render.output import Column, Writer, writer
from rmqtool.cli.render.times import time_text
from rmqtool.contract import MESSAGE_FIELDS, QUEUE_ENTRY_FIELDS, BodyForm, message_row

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


def body_fields(names: Sequence[str], body: BodyForm) -> tuple[str, ...]:
    """The names of a row's fields, with those that a form of bodies adds."""
    return (*names, *getattr(body, "columns", ()))


def body_columns(columns: Sequence[Column], body: BodyForm) -> list[Column]:
    """The columns of a table; fields of bodies take the place of the body."""
    added = [Column(name, wide=True) for name in body_fields((), body)]
    return [*(column for column in columns if not added or column.title != "body"), *added]


def message_writer(form: str, body: BodyForm) -> Writer:
    """A writer for rows of :func:`message_row`."""
    return writer(form, body_fields(MESSAGE_FIELDS, body), body_columns(MESSAGE_COLUMNS, body))


def write_messages(form: str, messages: "Iterable[LogMessage]", body: BodyForm) -> int:
    """Write messages; returns their number."""
    to = message_writer(form, body)
    count = 0
    for message in messages:
        to.row(message_row(message.record, message.physical_offset, body))
        count += 1
    to.close()
    return count
