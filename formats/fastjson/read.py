"""Reader for fastjson's JSON: tolerant, linear in the length of the text, reporting the byte offset of an error.

`formats.fastjson.dialects` defines what is accepted in files and in bodies.
"""

import json
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from formats.errors import BadText
from formats.fastjson.dialects import BODY, FILE, Dialect
from formats.fastjson.values import MAX_NUMBER, Inline, Key, Numbers, ObjectKey, Real, Value

_BOM = b"\xef\xbb\xbf"
# Possessive quantifiers throughout: a match never backtracks, so reading is linear in the input whatever it holds.
_STRING = {quote: re.compile(rf"{quote}((?:[^{quote}\\]++|\\.)*+){quote}", re.DOTALL) for quote in "\"'"}
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|[ux](?:(?<=u)([0-9A-Fa-f]{4})|(?<=x)([0-9A-Fa-f]{2}))|(.))",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_INTEGER = re.compile(r"-?[0-9]++")
_LONG = "-?[0-9]{1,19}+"
_NUMBERS = rf"\{{((?:{_LONG}:{_LONG}(?:,|(?=[ \t\r\n}}])))++)[ \t\r\n]*+\}}"
_FITTING = (
    "((?:-?[0-9]{1,9}+:-?[0-9]{1,18}+(?:,(?=[-0-9])|(?=[ \t\r\n}])))++)"  # of 32 and 64 bits, whatever the digits are
)
_KEPT_ENTRY = re.compile(rf'"([^"\\]*+)":\{{{_FITTING}[ \t\r\n]*+\}},[ \t\r\n]*+(?=")')
_ENTRY = re.compile(rf'"([^"\\]*+)":(?:({_LONG})|{_NUMBERS}),[ \t\r\n]*+(?=")')
_FLAT = r'\{"[A-Za-z]\w*+":(?:"[^"\\{}]*+"|-?[0-9]{1,18}+)(?:,"[A-Za-z]\w*+":(?:"[^"\\{}]*+"|-?[0-9]{1,18}+))*+\}'
_FLAT_TABLE = re.compile(rf"\{{((?:{_FLAT}:{_FLAT}(?:,(?=\{{)|(?=\}})))++)\}}", re.ASCII)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_UNENDED_VALUE = re.compile(rb":[ \t\r\n]*-?[0-9.eE+-]+\Z")
_UNENDED_ITEM = re.compile(rb"[,\[][ \t\r\n]*-?[0-9.eE+-]+\Z")
_PATH = re.compile(r"\$(?:\.(?:\\.|[^.\[\]\\])*+|\[-?[0-9]{1,20}\])*+", re.DOTALL)
_STEP = re.compile(r"\.((?:\\.|[^.\[\]\\])*+)|\[(-?[0-9]{1,20})\]", re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

_Container = list[Value] | dict[Key, Value]
_MOST_REPEATED = 1 << 20  # values and characters that references may expand to, however short the file

# (id of a container, key or index) → character offset of that value, and the container, kept alive so its id is unique
_Marks = dict[tuple[int, Key], tuple[int, _Container]]


def loads(data: bytes, dialect: Dialect = FILE, *, cycles: bool = True, keep: str | None = None) -> Value:
    """Parse a complete text.

    Unquoted integer keys become ``int``, an object used as a key becomes an `ObjectKey`, and any other key ``str``. Of
    duplicate keys the last wins. A reference (``$ref``) becomes the object it names, which must begin before the
    reference, as in every file written by fastjson. ``@``, ``..`` and ``$`` name objects that contain the reference,
    so the value is then cyclic.

    Args:
        data: the file or body.
        dialect: `FILE` or `BODY`.
        cycles: if False, reject cyclic values, which no configuration class produces, and references that would expand
            to far more than the length of the file, since expanding them would need that much memory.
        keep: a member of the top object; objects in it that have only integers may become `Numbers`.

    Raises:
        BadText: the text is invalid. ``at`` is the byte at which parsing failed: for an unclosed string its opening
            quote, for trailing bytes the first of them, for a truncated text its length.
    """
    reader = _Reader.of(data, dialect, cycles=cycles)
    reader.keep = keep if b"$ref" not in data else None
    value, end = reader.read()
    tail = reader.skip(dialect.tail, end)
    if tail < len(reader.text):
        raise reader.error(tail, "bytes follow the end of the JSON value")
    return value


def loads_plain(data: bytes) -> Value:
    """Parse a body or header, using the standard library's parser when the text is standard JSON without fractions.

    Raises:
        BadText: as `loads`.
    """
    if _HALF.search(data) or not _is_flat(data, BODY.depth):
        return loads(data, BODY)
    try:
        text = data.decode("utf-8")
        value, end = _PLAIN.raw_decode(text)
    except (ValueError, RecursionError):  # the latter if brackets in strings hide the depth
        return loads(data, BODY)
    return value if end == len(text) else loads(data, BODY)


def _is_flat(data: bytes, depth: int) -> bool:
    """Whether brackets, also those in strings, are nested at most this deep."""
    if data.count(b"{") + data.count(b"[") <= depth:
        return True
    brackets = data.translate(None, _NO_BRACKETS)
    return not any(map(depth.__lt__, accumulate(map(_STEPS.__getitem__, brackets))))


def _refuse(name: str) -> Value:
    raise ValueError(name)


_NO_BRACKETS = bytes({*range(256)} - {*b"{}[]"})
_STEPS = [1 if byte in b"{[" else -1 for byte in range(256)]
_PLAIN = json.JSONDecoder(parse_float=Real, parse_constant=_refuse)
_PAIRS = json.JSONDecoder(strict=False, object_pairs_hook=tuple)


def loads_prefix(data: bytes, *, cycles: bool = True) -> tuple[Value, int]:
    """Parse the value at the start of a file and return it with the offset of its end; trailing bytes are ignored.

    For files with a stale end: a broker that rewrites a file in place can leave the tail of the longer previous
    version behind (apache/rocketmq#9328).

    Raises:
        BadText: as `loads`, except for trailing bytes.
    """
    reader = _Reader.of(data, cycles=cycles)
    value, end = reader.read()
    return value, reader.byte(end)


class Torn(NamedTuple):
    """The part of a damaged file before the damage."""

    value: Value  # None if not even its first byte is valid
    open: list[Key]  # path from the top value to the innermost object or list that was still open
    at: int  # byte offset at which parsing stopped
    reason: str


def loads_torn(data: bytes) -> Torn | None:
    """Parse as much as possible of a file that `loads` rejects; return None if the file is valid.

    A number at the very end is dropped, because its last digits may be missing.
    """
    reader = _Reader.of(data, cycles=False)
    try:
        value, end = reader.read()
    except BadText as err:
        if not reader.top:
            return Torn(None, [], err.at, err.reason)
        path = [key for _, key in reader.outer][1:]
        inside = reader.top[0]
        for key in path:
            inside = inside[key]  # type: ignore[index]  # it is open, so it is a container
        before = data[max(err.at - MAX_NUMBER - 100, 0) : err.at]
        if isinstance(inside, dict) and inside and _UNENDED_VALUE.search(before):
            inside.popitem()
        elif isinstance(inside, list) and inside and _UNENDED_ITEM.search(before):
            inside.pop()
        return Torn(reader.top[0], path, err.at, err.reason)
    tail = reader.skip(FILE.tail, end)
    if tail < len(reader.text):
        return Torn(value, [], reader.byte(tail), "bytes follow the end of the JSON value")
    return None


def locate(data: bytes, path: Sequence[Key]) -> int:
    """Return the byte offset of the value at a path of keys and list indices, or 0 if there is none.

    Parses the file again, so use it only for error messages.

    Raises:
        BadText: as `loads`, except for trailing bytes.
    """
    marks: _Marks = {}
    reader = _Reader.of(data, marks=marks)
    value, _ = reader.read()
    at, _ = marks[id(reader.top), 0]
    for key in path:
        if (id(value), key) not in marks:
            return 0
        at, _ = marks[id(value), key]
        value = value[key]  # type: ignore[index]  # marked, so it is a container that has the key
    return reader.byte(at)


class _Reader:
    def __init__(
        self, text: str, dialect: Dialect, cycles: bool, marks: _Marks | None = None, base: int = 0, outside: int = 0
    ) -> None:
        self.text = text
        self.dialect = dialect
        self.cycles = cycles
        self.marks = marks
        self.base = base  # bytes in front of the text
        self.most = dialect.depth - outside  # maximum nesting depth
        self.top: list[Value] = []  # its only item is the top value
        self.outer: list[
            tuple[_Container, Key]
        ] = []  # open containers around the innermost one, each with its current key
        self.keep: str | None = None  # see `loads`
        self._repeated = 0  # values and characters that references have expanded to so far
        self._weights: dict[int, int] = {}  # id of a referenced container, or of one inside it → its weight

    @classmethod
    def of(cls, data: bytes, dialect: Dialect = FILE, *, cycles: bool = True, marks: _Marks | None = None) -> "_Reader":
        """Create a reader for a complete text."""
        base = len(_BOM) if dialect.bytes and data.startswith(_BOM) else 0
        try:
            text = str(memoryview(data)[base:], "utf-8", "surrogateescape" if dialect.bytes else "strict")
        except UnicodeDecodeError as err:
            raise BadText(err.start, "bytes that are not UTF-8") from None
        return cls(text, dialect, cycles, marks, base)

    def byte(self, at: int) -> int:
        return self.base + len(self.text[:at].encode("utf-8", "surrogateescape"))

    def error(self, at: int, reason: str) -> BadText:
        return BadText(self.byte(at), reason)

    def skip(self, blanks: re.Pattern[str], at: int) -> int:
        match = blanks.match(self.text, at)
        assert match  # the pattern also matches the empty string
        return match.end()

    def read(self, at: int = 0) -> tuple[Value, int]:
        """Return the value at a character offset and its end. Iterative, so that the depth can be limited."""
        text, blank = self.text, self.dialect.blank
        inside: _Container = self.top
        key: Key = 0
        outer, references = self.outer, self.dialect.references
        at = self.skip(blank, at)
        while True:
            first = text[at : at + 1]
            if self.marks is not None:
                self.marks[id(inside), key] = at, inside
            if first == "{" and (flat := self._flat_table(at)) is not None:
                table, at = flat
                self._put(inside, key, table)
                more = False
            elif first in ("{", "["):
                if len(outer) == self.most:
                    raise self.error(at, f"nested deeper than {self.dialect.depth} levels")
                start, at = at + 1, self.skip(blank, at + 1)
                opened: _Container
                if first == "{":
                    opened = {}
                elif "\n" in text[start:at] or text.startswith("]", at):
                    opened = []
                else:
                    opened = Inline()
                self._put(inside, key, opened)
                outer.append((inside, key))
                inside = opened
                more = not text.startswith(_closing(inside), at)
            else:
                item, at = self._scalar(at, first)
                self._put(inside, key, item)
                more = False
            while not more:  # a value ended: close containers until one expects another item
                if inside is self.top:
                    return self.top[0], at
                at = self.skip(blank, at)
                closing = _closing(inside)
                if text.startswith(",", at):
                    at = self.skip(blank, at + 1)
                    more = not text.startswith(closing, at)  # a trailing comma is allowed
                elif not text.startswith(closing, at):
                    raise self._error_at(at, f"',' or '{closing}'")
                if not more:
                    at += 1
                    closed = inside
                    inside, key = outer.pop()
                    if references:
                        self._resolve(closed, inside, key, outer, at)
            if isinstance(inside, dict):
                if self.marks is None and len(outer) < self.most:
                    at = self._entries(inside, at)
                key, at = self._key(at)
                at = self.skip(blank, at)
            else:
                key = len(inside)

    def _put(self, inside: _Container, key: Key, item: Value) -> None:
        if isinstance(inside, dict):
            if (
                self.dialect.references
            ):  # a duplicate key takes its new position, since it may refer to values in between
                inside.pop(key, None)
            inside[key] = item
        else:
            inside.append(item)

    def _entries(self, inside: dict[Key, Value], at: int) -> int:
        """Read entries whose value is an integer or an object of integers; return the offset of the first other entry.

        Offset tables hold hundreds of thousands of such entries, so each is read with one match. The last entry of a
        table has no trailing comma and is left to the caller.
        """
        if self.keep is not None and len(self.outer) == 2 and self.outer[1][1] == self.keep:
            return self._keep_entries(inside, at)
        text, match = self.text, _ENTRY.match
        while (token := match(text, at)) is not None:
            key, number, pairs = token.groups()
            if number is not None:
                self._put(inside, key, int(number))
            else:
                numbers = pairs.rstrip(",").replace(":", ",").split(",")
                each = map(int, numbers)
                table: dict[Key, Value] = dict(zip(each, each, strict=True))
                if 2 * len(table) < len(numbers):
                    break  # duplicate keys
                self._put(inside, key, table)
            at = token.end()
        return at

    def _keep_entries(self, inside: dict[Key, Value], at: int) -> int:
        """As :meth:`_entries`, for objects of integers that stay text."""
        text, match = self.text, _KEPT_ENTRY.match
        while (token := match(text, at)) is not None:
            key, members = token.groups()
            self._put(inside, key, Numbers(members))  # type: ignore[arg-type]  # only where it was asked for
            at = token.end()
        return at

    def _flat_table(self, at: int) -> tuple[dict[Key, Value], int] | None:
        """Read a table whose keys and values are objects of plain members, and its end; None if it is something else.

        Offsets of queues by queue come by the ten thousand, so each table is read with one match.
        """
        text = self.text
        if not self.dialect.object_keys or not text.startswith("{{", at) or self.marks is not None:
            return None
        match = _FLAT_TABLE.match(text, at)
        if match is None or len(self.outer) + 2 > self.most:
            return None
        try:
            pairs = _PAIRS.decode(f"[{match[1].replace('}:{', '},{')}]")  # strings with braces do not match
        except ValueError:
            return None
        table: dict[Key, Value] = {}
        for key, members in zip(pairs[::2], pairs[1::2], strict=True):
            value = dict(members)
            if len(value) < len(members) or len(dict(key)) < len(key):
                return None  # duplicate keys
            table[ObjectKey(key)] = value
        return (table, match.end()) if 2 * len(table) == len(pairs) else None

    def _key(self, at: int) -> tuple[Key, int]:
        key: Key
        first = self.text[at : at + 1]
        if first and first in "\"'":
            key, end = self._string(at, first)
        elif number := _INTEGER.match(self.text, at):
            key, end = self._number(number), number.end()
        elif name := self.dialect.name.match(self.text, at):
            key, end = name.group(), name.end()
        elif first == "{" and self.dialect.object_keys:
            key, end = self._object_key(at)
        else:
            raise self._error_at(at, "a key")
        end = self.skip(self.dialect.blank, end)
        if not self.text.startswith(":", end):
            raise self._error_at(end, "':'")
        return key, end + 1

    def _object_key(self, at: int) -> tuple[ObjectKey, int]:
        outside = self.dialect.depth - self.most + len(self.outer)
        value, end = _Reader(self.text, self.dialect, self.cycles, base=self.base, outside=outside).read(at)
        assert isinstance(value, dict)  # it begins with a brace
        if not all(isinstance(name, str) and not isinstance(item, list | dict) for name, item in value.items()):
            raise self.error(at, "the object that is a key holds more than plain values")
        return ObjectKey((str(name), item) for name, item in value.items()), end

    def _scalar(self, at: int, first: str) -> tuple[Value, int]:
        if first and first in "\"'":
            return self._string(at, first)
        if number := _NUMBER.match(self.text, at):
            return (self._number(number) if _INTEGER.fullmatch(number.group()) else self._real(number)), number.end()
        name = self.dialect.name.match(self.text, at)
        if name is None or name.group() not in _WORDS:
            raise self._error_at(at, "a value")
        return _WORDS[name.group()], name.end()

    def _number(self, match: re.Match[str]) -> int:
        self._check_number(match)
        return int(match.group())

    def _real(self, match: re.Match[str]) -> Real:
        self._check_number(match)
        return Real(match.group())

    def _check_number(self, match: re.Match[str]) -> None:
        if (length := match.end() - match.start()) > MAX_NUMBER:
            raise self.error(match.start(), f"a number of {length} characters")

    def _string(self, at: int, quote: str) -> tuple[str, int]:
        match = _STRING[quote].match(self.text, at)
        if match is None:
            raise self.error(at, "a string without its closing quote")
        raw = match.group(1)
        if "\\" not in raw:
            return raw, match.end()
        escapes, (first, last) = self.dialect.escapes, self.dialect.unpaired

        def plain(escape: re.Match[str]) -> str:
            high, low, unit, byte, single = escape.groups()
            if high:
                return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
            if unit or byte:
                char = chr(int(unit or byte, 16))
                return "\ufffd" if first <= char <= last else char
            if single not in escapes:
                raise self.error(at + 1 + escape.start(), "an escape that the dialect does not have")
            return escapes[single]

        return _ESCAPE.sub(plain, raw), match.end()

    def _resolve(
        self, closed: _Container, inside: _Container, key: Key, outer: list[tuple[_Container, Key]], at: int
    ) -> None:
        """Replace the reference that has just ended by the object it names."""
        if not isinstance(closed, dict) or len(closed) != 1 or not isinstance(path := closed.get("$ref"), str):
            return
        target: Value
        if path == "@":
            target = inside
        elif path == "..":
            target = outer[-1][0] if outer else None
        elif _PATH.fullmatch(path):
            target = _follow(self.top[0], path)
        else:
            return  # an ordinary object, for fastjson too
        if not isinstance(target, dict) or target is closed:
            raise self.error(at - 1, "a reference to something that is no object before it")
        if not self.cycles and (target is inside or any(target is container for container, _ in outer)):
            raise self.error(at - 1, "a reference to an object that contains it")
        self._repeated += 0 if self.cycles else self._weight(target)
        # a few nested references can expand beyond any memory; in brokers' own files they at most double the length
        if self._repeated > _MOST_REPEATED + 4 * len(self.text):
            raise self.error(at - 1, f"references that stand for more than {self._repeated} values and characters")
        inside[key] = target  # type: ignore[index]  # the key, or the index of the last item

    def _weight(self, target: _Container) -> int:
        """Return the number of values and characters in an object with all references expanded.

        A closed container never changes, so each is counted once.
        """
        weights, pending = self._weights, [target]
        while pending:
            container = pending[-1]
            if id(container) in weights:
                pending.pop()
                continue
            items = list(container.values()) if isinstance(container, dict) else container
            inner = [item for item in items if isinstance(item, dict | list)]
            missing = [item for item in inner if id(item) not in weights]
            if missing:
                pending += missing
                continue
            plain = sum(1 + len(item) if isinstance(item, str) else 1 for item in items)
            keys = sum(len(name) for name in container if isinstance(name, str)) if isinstance(container, dict) else 0
            weights[id(container)] = plain + keys + sum(weights[id(item)] for item in inner)
        return weights[id(target)]

    def _error_at(self, at: int, wanted: str) -> BadText:
        if at >= len(self.text):
            return self.error(at, f"the text ends where {wanted} must come")
        return self.error(at, f"{self.text[at]!a} where {wanted} must come")


def _closing(container: _Container) -> str:
    return "}" if isinstance(container, dict) else "]"


def _follow(value: Value, path: str) -> Value:
    for step, index in _STEP.findall(path):
        key: Key = int(index) if index else re.sub(r"\\(.)", r"\1", step, flags=re.DOTALL)
        if isinstance(value, dict):
            # An integer step matches an unquoted key as a number and a quoted one as text.
            value = value.get(key, value.get(str(key)) if index else None)
        elif isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            return None
    return value
