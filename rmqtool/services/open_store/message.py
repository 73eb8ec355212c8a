"""A stored message for programs: the topic as text, properties as a dict, and the body as the application sent it."""

from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.decoded import Decoded
from formats.message.ids import offset_id
from formats.message.properties import UNIQ_KEY
from formats.message.read import Record
from formats.primitives import host_text
from rmqtool.contract import message_row
from rmqtool.errors import CorruptFile
from rmqtool.store.log.commit_log import LocatedRecord


class StoredMessage(Decoded):
    """One message of a store (common.message.MessageExt).

    Properties and body are decoded on first use, so counting messages is cheap.

    Attributes:
        physical_offset: start of its record in the commit log. Messages of one inner batch share it.
        record: the record as stored, its fields as bytes and numbers.
    """

    def __init__(self, located: LocatedRecord) -> None:
        self.record: Record = located.record
        self.physical_offset: int = located.physical_offset
        self._path, self._at = located.file.path, located.at

    def __repr__(self) -> str:
        place = f"{self.topic!r}, queue {self.queue_id} offset {self.queue_offset}"
        return f"<StoredMessage {self.message_id} of {place}, physical offset {self.physical_offset}>"

    @cached_property
    def topic(self) -> str:
        """The topic. Bytes that are not UTF-8 become U+FFFD, as in Java."""
        return self.record.topic.decode("utf-8", "replace")

    @property
    def queue_id(self) -> int:
        """The id of its queue."""
        return self.record.queue_id

    @property
    def message_id(self) -> str:
        """The ``msgId`` of clients: the producer's unique id, or the offset id if there is none."""
        return self.properties.get(UNIQ_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """The broker's id of this copy: store host and physical offset, in hex."""
        return offset_id(self.record.store_address, self.record.store_port, self.physical_offset)

    @cached_property
    def body(self) -> bytes:
        """The body as the application sent it, decompressed if necessary.

        Raises:
            CorruptFile: it cannot be decompressed. ``record.body`` has the stored bytes.
        """
        try:
            return decompress(self.record.body, self.record.sys_flag)
        except FormatError as err:
            raise CorruptFile(self._path, self._at, f"body of the message: {err}") from err

    @property
    def text(self) -> str:
        """The body as UTF-8 text; malformed bytes become U+FFFD."""
        return self.body.decode("utf-8", "replace")

    @property
    def store_timestamp(self) -> int:
        """When the broker stored it, ms since the epoch."""
        return self.record.store_timestamp

    @property
    def born_timestamp(self) -> int:
        """When the producer created it, by its own clock, ms since the epoch."""
        return self.record.born_timestamp

    @property
    def stored_at(self) -> datetime:
        """``store_timestamp`` in UTC.

        Raises:
            OverflowError, ValueError: a damaged record has a time outside the years 1 to 9999.
        """
        return datetime.fromtimestamp(self.record.store_timestamp / 1000, UTC)

    @property
    def born_host(self) -> str:
        """Address and port of the producer."""
        return host_text(self.record.born_address, self.record.born_port)

    @property
    def store_host(self) -> str:
        """Address and port of the broker."""
        return host_text(self.record.store_address, self.record.store_port)

    @property
    def reconsume_times(self) -> int:
        """How often a consumer has sent it back."""
        return self.record.reconsume_times

    def to_dict(self, body: str = "auto") -> dict[str, Any]:
        """The row of machine output: the fields of ``query-key --output json``.

        Args:
            body: ``auto``, ``utf8``, ``json``, ``hex``, ``base64`` or ``none``.
        """
        return message_row(self.record, self.physical_offset, body)
