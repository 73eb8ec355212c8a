"""Find messages by text in the body, a key, a property or a host.

A text that every match must contain is searched for at memory speed first; only records with it are decoded.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from formats.errors import FormatError
from formats.layouts.derived import HEAD_V4_V4
from formats.message.bodies import decompress
from formats.message.properties import KEYS, UNIQ_KEY, parse, split_keys
from formats.message.read import HOSTS_V6, Record, read
from formats.primitives import COMPRESSED, host_text
from rmqtool.errors import BadValue
from rmqtool.kernels.scan import Rows
from rmqtool.kernels.search import SHORTEST, find
from rmqtool.kernels.texts import number_texts
from rmqtool.progress import stage
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.search.pattern import Pattern, TooSlow, excerpt
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.scan import FileRows, scan_file

PLACES = ("body", "key", "property", "host")
"""Places to search."""
_BORN, _STORE = HEAD_V4_V4.offsets["born_address"], HEAD_V4_V4.offsets["store_address"]
_HOST_SIZE = 8  # bytes of an IPv4 address and a port
_OF_HOSTS = frozenset(b"0123456789.:-")  # what texts of IPv4 hosts are made of


class Match(NamedTuple):
    """A matching message.

    Attributes:
        places: the `PLACES` that match; empty when searching for messages without the text.
        excerpt: the first match with its surroundings; None in the same case.
    """

    message: LocatedRecord
    places: tuple[str, ...] = ()
    excerpt: str | None = None


def grep(
    log: CommitLog,
    pattern: Pattern,
    selection: Selection,
    *,
    places: Sequence[str] = PLACES,
    invert: bool = False,
) -> Iterator[Match | Damage]:
    """Find messages with a text, in log order; also yields damaged ranges of the log.

    A compressed body is searched decompressed, or as stored if that fails. Keys are searched one by one, properties as
    ``NAME=VALUE``, hosts (producer's and broker's) as ``ADDRESS:PORT``.

    Args:
        selection: the messages to search.
        places: where to search.
        invert: find messages without the text.

    Raises:
        BadValue: the expression takes too long on a message.
    """
    with pattern.limited():
        yield from _matches(log, pattern, selection, places=places, invert=invert)


def _matches(
    log: CommitLog, pattern: Pattern, selection: Selection, *, places: Sequence[str], invert: bool
) -> Iterator[Match | Damage]:
    start, stop = selection.physical
    search = _Search(pattern, places)
    for item in _records(log, search, selection, everything=invert):
        if isinstance(item, Damage):
            if item.physical_offset + item.length > start and (stop is None or item.physical_offset < stop):
                yield item
            continue
        for message in item.messages():
            if not selection.has(message.record, message.physical_offset):
                continue
            try:
                matched = search.look(message.record)
            except TooSlow:
                raise BadValue(
                    f"PATTERN {pattern.text}: takes too long on the message at physical offset "
                    f"{message.physical_offset}: repetitions inside each other, as in (a+)+, can take forever"
                ) from None
            if invert:
                if not matched:
                    yield Match(message)
            elif matched:
                text, place = matched[0][1]
                yield Match(message, tuple(name for name, _where in matched), excerpt(text, place))


def _records(
    log: CommitLog, search: "_Search", selection: Selection, *, everything: bool
) -> Iterator[LocatedRecord | Damage]:
    """Records that may have the text, and damage."""
    start, stop = selection.physical
    if tier_sign(log.layout) is not None and (start, stop) == (0, None):
        from rmqtool.store.tier.only_tiered import OnlyTiered

        yield from OnlyTiered(log.layout).walk()
    files = [file for file in log.segments if file.end > start and (stop is None or file.base < stop)]
    with stage("reading the log", sum(file.size for file in files)) as reading:
        before = 0
        for file in files:
            for item in scan_file(file, last=file is log.segments.files[-1]):
                if isinstance(item, Damage):
                    yield item
                    continue
                rows = item.rows
                wanted = np.ones(rows.records, np.bool_) if everything else search.may_have(item)
                wanted &= _select_rows(rows, file.base, selection)
                positions = rows.at[wanted].tolist()  # the columns are overwritten by the next step
                following = int(rows.at[-1] + rows.total_size[-1])
                for at in positions:
                    record = read(item.view, at, file.size, crc=False)
                    if isinstance(record, Record):
                        yield LocatedRecord(file, at, record)
                reading.done = before + following
            before += file.size
            file.release()


def _select_rows(rows: Rows, base: int, selection: Selection) -> npt.NDArray[np.bool_]:
    """Which records are in the ranges of physical offsets and times; other conditions are tested per message."""
    start, stop = selection.physical
    physical, times = rows.at + base, rows.store_timestamp
    mask = (physical >= start) & (times >= selection.since) & (times < selection.until)
    return mask if stop is None else mask & (physical < stop)


class _Search:
    """Searches records for a text.

    Args:
        places: a subset of `PLACES`.
    """

    def __init__(self, pattern: Pattern, places: Sequence[str]) -> None:
        self._pattern, self._places = pattern, places
        # a property is searched as NAME=VALUE, and stored with another byte between them: what lies between two = is
        # there in any case
        longest = max(pattern.literal.split(b"="), key=len)
        self._literal = longest if len(longest) >= SHORTEST else b""
        self._may_be_host = "host" in places and _OF_HOSTS.issuperset(pattern.literal)
        self._hosts: dict[bytes, bool] = {}  # address and port → whether its text matches

    # -- which records to look at ------------------------------------------------------------------------------------

    def may_have(self, item: FileRows) -> npt.NDArray[np.bool_]:
        """Which of the records may have the text."""
        rows = item.rows
        if not self._literal:
            return np.ones(rows.records, np.bool_)
        mask: npt.NDArray[np.bool_] = rows.sys_flag & (COMPRESSED | HOSTS_V6) != 0
        for row in self._with_literal(item):
            mask[row] = True
        if self._may_be_host:
            mask |= self._with_host(item)
        return mask

    def _with_literal(self, item: FileRows) -> Iterator[int]:
        rows = item.rows
        at, end = int(rows.at[0]), int(rows.at[-1] + rows.total_size[-1])
        while at < end and (at := find(item.view, self._literal, at, end)) >= 0:
            row = int(np.searchsorted(rows.at, at, "right")) - 1
            yield row
            at = int(rows.at[row] + rows.total_size[row])

    def _with_host(self, item: FileRows) -> npt.NDArray[np.bool_]:
        rows = item.rows
        size = np.full(rows.records, _HOST_SIZE, np.int64)
        mask = np.zeros(rows.records, np.bool_)
        for offset in (_BORN, _STORE):
            places = rows.at + offset
            first, hosts = number_texts(item.view, places, size)
            matches = [self._is_host(bytes(item.view[at : at + _HOST_SIZE])) for at in places[first].tolist()]
            mask |= np.array(matches, np.bool_)[hosts]
        return mask

    def _is_host(self, host: bytes) -> bool:
        if (known := self._hosts.get(host)) is None:
            text = host_text(host[:4], int.from_bytes(host[4:], "big", signed=True))
            known = self._hosts[host] = self._pattern.find(text) is not None
        return known

    # -- where in a record -------------------------------------------------------------------------------------------

    def look(self, record: Record) -> list[tuple[str, tuple[str, tuple[int, int]]]]:
        """The matching places: (place, (complete text, range of the first match))."""
        matched = []
        for place in self._places:
            where = self._pattern.find_in(_body(record)) if place == "body" else self._first(_TEXTS[place](record))
            if where is not None:
                matched.append((place, where))
        return matched

    def _first(self, texts: Iterable[str]) -> tuple[str, tuple[int, int]] | None:
        for text in texts:
            if (place := self._pattern.find(text)) is not None:
                return text, place
        return None


def _body(record: Record) -> bytes:
    if not record.sys_flag & COMPRESSED:
        return bytes(record.body)
    try:
        return decompress(record.body, record.sys_flag)
    except FormatError:
        return bytes(record.body)


def _keys(record: Record) -> list[str]:
    properties = parse(record.properties)
    unique = properties.get(UNIQ_KEY)
    return [*split_keys(properties.get(KEYS, "")), *([] if unique is None else [unique])]


def _properties(record: Record) -> list[str]:
    return [f"{name}={value}" for name, value in parse(record.properties).items() if name not in (KEYS, UNIQ_KEY)]


def _hosts(record: Record) -> list[str]:
    return [host_text(record.born_address, record.born_port), host_text(record.store_address, record.store_port)]


_TEXTS = {"key": _keys, "property": _properties, "host": _hosts}
