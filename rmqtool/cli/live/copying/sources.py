"""Sources of a replay: messages of a store in log order, or rows in the order they are read."""

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.properties import KEYS, TAGS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record
from rmqtool.cli.read.run_files import say_damage
from rmqtool.cli.render.text import note
from rmqtool.client.copying.steps import CopyStep, InputPlace, OriginQueue
from rmqtool.client.producing.message import Message
from rmqtool.contract import message_fields
from rmqtool.errors import Refused
from rmqtool.rules.resending import own_properties, why_not
from rmqtool.rules.sending import check_message
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.lookup.where import RowFields
from rmqtool.store.log.commit_log import CommitLog, Damage

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # separators of properties


class Passed(NamedTuple):
    """A message that is not sent.

    Attributes:
        refused: it should be sent, but cannot be.
    """

    place: InputPlace
    origin: OriginQueue
    reason: str
    refused: bool = False


class MessageSource(Protocol):
    """Messages in order.

    Attributes:
        chosen: the selection.
        damaged: something could not be read.
    """

    chosen: Selection
    damaged: bool

    def size(self) -> int | None:
        """Bytes to go through; None if unknown."""

    def amount_at(self, place: InputPlace) -> int:
        """Bytes up to a place, where the size is known."""

    def steps(self, last: InputPlace | None, digest: int) -> Iterator[CopyStep | Passed]:
        """The steps after a place.

        Raises:
            Refused: another message is at that place now.
        """


@dataclass
class StoreSource:
    """Messages of a store."""

    log: CommitLog
    chosen: Selection
    to: str | None
    damaged: bool = False

    def size(self) -> int | None:
        """Bytes of the log to go through."""
        end = self.log.written_end
        return max(min(end, self.chosen.physical[1] or end) - self._low, 0)

    def amount_at(self, place: InputPlace) -> int:
        """Bytes up to a place."""
        return place.at - self._low

    @property
    def _low(self) -> int:
        return max(self.chosen.physical[0], self.log.min_offset)

    def steps(self, last: InputPlace | None, digest: int) -> Iterator[CopyStep | Passed]:
        """The steps after a place; damage is reported on stderr."""
        low, stop = self.chosen.physical
        if last is not None:
            self._check(last, digest)
            low = max(low, last.at)
        for item in self.log.walk(low or None, stop):
            if isinstance(item, Damage):
                self.damaged = True
                say_damage(item)
                continue
            if stop is not None and item.physical_offset >= stop:
                continue
            for inner, message in enumerate(item.messages()):
                place = InputPlace(item.physical_offset, inner)
                if (last is None or place > last) and self.chosen.has(message.record, message.physical_offset):
                    yield self._step(place, message.record)

    def _check(self, last: InputPlace, digest: int) -> None:
        message = self.log.read(last.at)
        if message is None:
            if self.log.min_offset > last.at:
                self.damaged = True
                note(
                    f"{self.log.layout.root}: its log begins at {self.log.min_offset}, and the last run ended at "
                    f"{last}: messages between them have expired, and are not sent"
                )
                return
            raise Refused(
                f"{self.log.layout.root}: no message at {last.at}, where the last run ended: is this another store?"
            )
        records = [item.record for item in message.messages()]
        if last.inner >= len(records) or _digest(records[last.inner].topic, records[last.inner].body) != digest:
            raise Refused(
                f"{self.log.layout.root}: another message at {last.at} than the last run sent: is this another store?"
            )

    def _step(self, place: InputPlace, record: Record) -> CopyStep | Passed:
        topic = record.topic.decode("utf-8", "replace")
        origin = OriginQueue(topic, record.queue_id)
        if reason := why_not(topic, record.sys_flag, to=self.to):
            return Passed(place, origin, reason)
        try:
            message = Message(
                self.to or topic,
                decompress(record.body, record.sys_flag),
                properties=own_properties(parse(record.properties)),
                flag=record.flag,
            )
            check_message(message.topic, message.body)
        except (FormatError, ValueError) as err:
            return Passed(place, origin, str(err), refused=True)
        return CopyStep(place, origin, message, _digest(record.topic, record.body))


@dataclass
class RowSource:
    """Rows of machine output or Parquet files; their places are their numbers."""

    rows: Iterator[Mapping[str, Any] | ValueError]
    chosen: Selection
    to: str | None
    damaged: bool = False

    def size(self) -> int | None:
        """Unknown."""
        return None

    def amount_at(self, place: InputPlace) -> int:
        """The number of rows so far."""
        return place.at

    def steps(self, last: InputPlace | None, digest: int) -> Iterator[CopyStep | Passed]:
        """The steps after a place."""
        number = 0
        for number, row in enumerate(self.rows, 1):
            place = InputPlace(number)
            if last is not None and place <= last:
                if place == last and _row_digest(row) != digest:
                    raise Refused(f"row {number} is not the one that the last run sent: is this another input?")
                continue
            if isinstance(row, ValueError):
                yield Passed(place, OriginQueue("", 0), str(row), refused=True)
            elif self._has(row):
                yield self._step(place, row)
        if last is not None and number < last.at:
            raise Refused(f"the last run was at row {last}, but there are only {number}: is this another input?")

    def _has(self, row: Mapping[str, Any]) -> bool:
        """As :meth:`Selection.has`; a row without a field does not match a condition on it."""
        chosen = self.chosen
        properties = row.get("properties")
        named = properties if isinstance(properties, Mapping) else {}
        if chosen.topics and not chosen.has_topic(str(row.get("topic"))):
            return False
        if chosen.queue_ids and row.get("queueId") not in chosen.queue_ids:
            return False
        if chosen.tags and row.get("tags", named.get(TAGS)) not in chosen.tags:
            return False
        if chosen.keys:
            listed = row.get("keys") or named.get(KEYS, "")
            keys = split_keys(listed) if isinstance(listed, str) else listed
            if not {row.get("msgId"), named.get(UNIQ_KEY), *keys} & set(chosen.keys):
                return False
        if any(named.get(name) != value for name, value in chosen.properties):
            return False
        if chosen.where is not None and not chosen.where.has(RowFields(row, chosen.where.read_body)):
            return False
        return all(
            bounds == Selection()[at] or _within(row.get(name), *bounds)
            for at, name, bounds in (
                (4, "physicalOffset", chosen.physical),
                (5, "queueOffset", chosen.queue_offsets),
            )
        ) and (
            (chosen.since, chosen.until) == Selection()[6:8]
            or _within(row.get("storeTimestamp"), chosen.since, chosen.until)
        )

    def _step(self, place: InputPlace, row: Mapping[str, Any]) -> CopyStep | Passed:
        try:
            fields = message_fields({**row, "topic": row.get("topic") or self.to})
            origin = OriginQueue(fields["topic"], fields.get("queue_id", 0))
            if reason := why_not(origin.topic, fields.get("sys_flag", 0), to=self.to):
                return Passed(place, origin, reason)
            if "bodyError" in row:
                raise ValueError(f"body: {row['bodyError']}")
            message = Message(
                self.to or origin.topic,
                fields["body"],
                properties=own_properties(fields["properties"]),
                flag=fields.get("flag", 0),
            )
            check_message(message.topic, message.body)
        except ValueError as err:
            topic, queue_id = row.get("topic"), row.get("queueId")
            origin = OriginQueue(topic if isinstance(topic, str) else "", queue_id if isinstance(queue_id, int) else 0)
            return Passed(place, origin, str(err), refused=True)
        return CopyStep(place, origin, message, _row_digest(row))


def _within(value: object, low: int, high: int | None) -> bool:
    return isinstance(value, int) and low <= value and (high is None or value < high)


def _digest(topic: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(topic))


def _row_digest(row: Mapping[str, Any] | ValueError) -> int:
    if isinstance(row, ValueError):
        return 0
    return zlib.crc32(repr([row.get(name) for name in ("topic", "queueId", "queueOffset", "body")]).encode())


def name_of(path: str) -> str:
    """The name of an input in the marks of its messages: the last part of its path, as fits a property."""
    name = os.fsencode(os.path.basename(os.path.realpath(path))).decode("utf-8", "replace")
    return _CONTROL.sub("\ufffd", name) or "store"
