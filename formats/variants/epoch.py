"""``epochFileCheckpoint``: start of each master epoch of a replicated store; ``brokerIdentity``: owner of the store.

Source: org.apache.rocketmq.store.ha.autoswitch.EpochFileCache, BrokerMetadata, common.utils.CheckpointFile;
store-formats 8.5, 8.6.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from formats.errors import BadChecksum, BadLength, BadText
from formats.primitives import crc31


class Epoch(NamedTuple):
    """One line of the file."""

    epoch: int
    start_offset: int  # physical offset of the epoch's first message


def parse(data: bytes) -> list[Epoch]:
    """Return the epochs of a file in file order.

    Both line endings are accepted, because the CRC covers those of the writer's platform; a stored CRC of 0 is not
    checked. As in the broker, lines that are not two parts around one ``-`` are skipped but included in the CRC.

    Raises:
        BadText: the file has another form, or a number is invalid. BadLength: the number of lines differs from the
            first line. BadChecksum: the CRC differs. Byte offsets count a line ending as one byte.
    """
    try:
        lines = data.decode("ascii").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except UnicodeDecodeError as err:
        raise BadText(err.start, "epoch file is not text") from None
    if lines and not lines[-1]:
        lines.pop()
    if len(lines) < 2:
        raise BadText(0, "epoch file has no entry count and CRC")
    count, at = _number(lines[0], 0, 32), len(lines[0]) + 1
    stored, at = _number(lines[1], at, 32), at + len(lines[1]) + 1
    epochs = []
    for line in lines[2:]:
        parts = line.rstrip("-").split("-")  # Java's split drops empty parts at the end
        if len(parts) == 2:
            epochs.append(Epoch(_number(parts[0], at, 32), _number(parts[1], at, 64)))
        at += len(line) + 1
    if len(epochs) != count:
        raise BadLength(0, f"epoch file says {count} entries, it has {len(epochs)}")
    sums = [crc31("".join(line + end for line in lines[2:]).encode()) for end in ("\n", "\r\n")]
    if stored and stored not in sums:
        raise BadChecksum(len(lines[0]) + 1, f"CRC of the epochs is {sums[0]}, the file says {stored}")
    return epochs


def build(epochs: Sequence[Epoch], line_end: str = "\n") -> bytes:
    """Return the stored form. The broker does not write an empty list."""
    body = "".join(f"{epoch}-{start}{line_end}" for epoch, start in epochs)
    return f"{len(epochs)}{line_end}{crc31(body.encode())}{line_end}{body}".encode()


class Identity(NamedTuple):
    """Owner of a store as known to the controller."""

    cluster: str
    broker: str
    broker_id: int


def parse_identity(data: bytes) -> Identity:
    """Parse ``brokerIdentity``; anything after the three parts is ignored.

    Raises:
        BadText: the file has another form, or the id is not a number.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as err:
        raise BadText(err.start, "broker identity is not UTF-8") from None
    parts = text.split("#" if "#" in text else ";")  # depends on the version
    if len(parts) < 3 or not all(parts[:2]):
        raise BadText(0, "broker identity is not a cluster, a broker and an id")
    return Identity(parts[0], parts[1], _number(parts[2], 0, 64))


def is_increasing(epochs: Sequence[Epoch]) -> bool:
    """Return whether both columns increase, as in a file written by a broker."""
    return all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(epochs))


def _number(text: str, at: int, bits: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if len(digits) > 20 or not digits.isdigit() or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise BadText(at, f"{text[:40]!r} is not a number of {bits} bits")
    return int(text)
