"""A message and its history as lines of text."""

import json
from base64 import b64decode
from contextlib import suppress
from typing import Any

from rmqtool.cli.render.text import plain
from rmqtool.cli.render.times import time_text
from rmqtool.contract import message_row
from rmqtool.services.open_store.message import StoredMessage
from rmqtool.services.trace import Trace

_MOST_BODY = 64 << 10  # bytes or characters that are shown
_PER_LINE = 16  # bytes of a body that is no text
_FACTS = (
    "msgId", "topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "bornTimestamp", "storeTimestamp",
    "bornHost", "storeHost", "reconsumeTimes", "tags", "keys",
)  # fmt: skip


def message_lines(message: StoredMessage) -> tuple[list[str], dict[str, Any]]:
    """The lines of a message, and its row in machine output."""
    row = message_row(message.record, message.physical_offset)
    lines = []
    for name in _FACTS:
        value = row[name]
        if name.endswith("Timestamp"):
            value = time_text(value)
        elif isinstance(value, list):
            value = " ".join(value)
        if value not in (None, ""):
            lines.append(f"{name:<15} {plain(str(value))}")
    lines += ["", "Properties"]
    lines += [f"  {plain(name)} = {plain(value)}" for name, value in row["properties"].items()] or ["  none"]
    length = row["bodyLength"]
    lines += ["", f"Body, {length:,} bytes" + (f", {row['bodyError']}" if row.get("bodyError") else "")]
    return lines + _body(row["body"], row["bodyEncoding"]), row


def _body(body: Any, encoding: str | None) -> list[str]:
    """A body as text, as indented JSON, or as bytes in hexadecimal."""
    if encoding == "base64":
        data = b64decode(body)[:_MOST_BODY]
        return [
            f"  {at:08x}  {data[at : at + _PER_LINE].hex(' '):<{_PER_LINE * 3}} "
            + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data[at : at + _PER_LINE])
            for at in range(0, len(data), _PER_LINE)
        ]
    text = str(body or "")
    if text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):  # it only looks like JSON
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    lines = [f"  {plain(line)}" for line in text[:_MOST_BODY].split("\n")]
    return [*lines, "  …"] if len(text) > _MOST_BODY else lines


def trace_lines(found: Trace) -> list[str]:
    """The history of a message."""
    lines = [f"Trace: {found.state}"]
    for event in found.events:
        line = f"  {time_text(event.time)}  {event.event:<12} {event.topic}/{event.queueId} offset {event.queueOffset}"
        lines.append(plain(line + (f", {event.detail}" if event.detail else "")))
    if found.groups:
        lines += ["", "Groups"]
    for taken in found.groups:
        lines.append(plain(f"  {taken.group:<24} {taken.topic}/{taken.queueId}: {taken.why}"))
    return lines
