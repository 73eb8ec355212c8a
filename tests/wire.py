"""The real frames of ``golden/wire``."""

import base64
import json
import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple

RELEASES = ("4.9.8", "5.3.3")


class Frame(NamedTuple):
    """One frame as it was sent."""

    raw: bytes
    link: str  # broker or namesrv
    request_code: int  # its own, or that of the request that it answers
    is_response: bool


@cache
def frames(release: str) -> tuple[Frame, ...]:
    """All frames of a run, in the order of arrival."""
    asked: dict[tuple[str, str, bool, int], int] = {}
    found = []
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
            found.append(Frame(length + info + header + body, row["link"], asked[key], response))
    return tuple(found)
