"""Recorded frames in ``golden/wire``."""

import base64
import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from formats.remoting import frame

RELEASES = ("4.9.8", "5.3.3")


class Frame(NamedTuple):
    """One recorded frame."""

    raw: bytes
    link: str  # broker or namesrv
    request_code: int  # its own, or that of the request it answers
    is_response: bool
    connection: str


@cache
def frames(release: str) -> tuple[Frame, ...]:
    """All frames of a run, in the order of arrival."""
    asked: dict[tuple[str, str, bool, int], int] = {}
    result = []
    with lzma.open(Path(__file__).parent / "golden" / "wire" / f"{release}.ndjson.xz") as lines:
        for line in lines:
            row = json.loads(line)
            response = bool(row["flag"] & 1)
            key = (row["link"], row["connection"], row["fromServer"] != response, row["opaque"])
            if not response:
                asked[key] = row["code"]
            header = row["header"].encode() if row["header"] else bytes.fromhex(row["headerHex"])
            body = base64.b64decode(row["body"] or "")
            length = (4 + len(header) + len(body)).to_bytes(4, "big")
            info = bytes([row["serializer"]]) + len(header).to_bytes(3, "big")
            result.append(Frame(length + info + header + body, row["link"], asked[key], response, row["connection"]))
    return tuple(result)


def requests(release: str, link: str) -> Iterator[tuple[Frame, Frame | None]]:
    """Requests to a server in the order of arrival, with the answers if recorded."""
    waiting: dict[tuple[str, int], int] = {}
    result: list[tuple[Frame, Frame | None]] = []
    for request in frames(release):
        if request.link != link:
            continue
        command, _ = frame.parse(request.raw) or (None, 0)
        assert command is not None
        if not request.is_response:
            waiting[request.connection, command.opaque] = len(result)
            result.append((request, None))
        else:
            at = waiting.pop((request.connection, command.opaque))
            result[at] = (result[at][0], request)
    return iter(result)


def all_frames() -> Iterator[Frame]:
    """The frames of all runs."""
    for release in RELEASES:
        yield from frames(release)


def parsed(raw: bytes) -> frame.Command:
    """Parse a complete frame."""
    result = frame.parse(raw)
    assert result is not None
    command, size = result
    assert size == len(raw)
    return command
