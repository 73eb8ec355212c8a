"""Addresses that need no signature, in the patterns of plain_acl.yml.

Source: acl.plain.RemoteAddressStrategyFactory (4.9.8).
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rmqtool.errors import BadValue

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Matches: TypeAlias = Callable[[Address], bool]

_ALL = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_GROUPS = 8  # of an IPv6 address


def address_of(peer: str) -> Address | None:
    """The address of a peer "HOST:PORT", or None. IPv4 mapped into IPv6 becomes IPv4."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def pattern(text: str | None) -> Matches:
    """A matcher for the addresses of a pattern; a blank pattern matches nothing.

    Patterns are an address, a list with commas between, a list of last parts in braces, a range with ``-`` or ``*``
    in one of the parts, or ``*``.

    Raises:
        BadValue: it is not a pattern.
    """
    text = (text or "").strip()
    if not text:
        return lambda _address: False
    if text in _ALL:
        return lambda _address: True
    if text.endswith("}"):
        head, brace, tail = text.partition("{")
        if not brace or head[-1:] not in (".", ":"):
            raise _bad(text)
        return _one_of([head + part for part in tail[:-1].split(",") if part], text)
    if "," in text:
        return _one_of([part for part in text.split(",") if part], text)
    if "*" in text or "-" in text:
        return _range(text)
    return _one_of([text], text)


def _bad(text: str) -> BadValue:
    return BadValue(f"Netaddress examine Exception netaddress is {text}")


def _one_of(texts: Sequence[str], whole: str) -> Matches:
    try:
        known = {ipaddress.ip_address(text) for text in texts}
    except ValueError:
        raise _bad(whole) from None
    return lambda address: address in known


def _range(text: str) -> Matches:
    """A range in one part: the parts before it must be equal, those after it are ignored."""
    wide = ":" in text
    parts = _expand(text) if wide else text.split(".")
    base, most = (16, 0xFFFF) if wide else (10, 255)
    if len(parts) != (_GROUPS if wide else 4):
        raise _bad(text)
    limits = [_limits(part, base, most, text) for part in parts]
    at = next((number for number, (low, high) in enumerate(limits) if low != high), None)
    if not at:  # the first part must not be a range
        raise _bad(text)
    head, (low, high) = [each[0] for each in limits[:at]], limits[at]

    def matches(address: Address) -> bool:
        if (address.version == 6) != wide:
            return False
        width = 2 if wide else 1
        packed = address.packed
        numbers = [int.from_bytes(packed[n : n + width]) for n in range(0, len(packed), width)]
        return numbers[:at] == head and low <= numbers[at] <= high

    return matches


def _expand(text: str) -> list[str]:
    """The groups of an IPv6 pattern, with ``::`` expanded."""
    head, double, tail = text.partition("::")
    if not double:
        return text.split(":")
    before, after = [part for part in head.split(":") if part], [part for part in tail.split(":") if part]
    return [*before, *["0"] * (_GROUPS - len(before) - len(after)), *after]


def _limits(part: str, base: int, most: int, whole: str) -> tuple[int, int]:
    part = part.strip()
    if part == "*":
        return 0, most
    low, _, high = part.partition("-")
    digits = "[0-9]{1,3}" if base == 10 else "[0-9a-fA-F]{1,4}"
    if not re.fullmatch(f"{digits}(-{digits})?", part):
        raise _bad(whole)
    limits = int(low, base), int(high or low, base)
    if not limits[0] <= limits[1] <= most:
        raise _bad(whole)
    return limits
