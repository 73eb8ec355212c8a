"""Reading fastjson's JSON: tolerantly, in time that grows with the text, and with the byte at which it stops.

`formats.fastjson.dialects` says what is accepted in files and in bodies.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from formats.errors import BadText
from formats.fastjson.dialects import BODY, FILE, Dialect
from formats.fastjson.values import MAX_NUMBER, Inline, Key, ObjectKey, Real, Value

_BOM = b"\xef\xbb\xbf"
# Possessive throughout: a match never steps back, so reading stays linear whatever the bytes are.
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
_ENTRY = re.compile(rf'"([^"\\]*+)":(?:({_LONG})|{_NUMBERS}),[ \t\r\n]*+(?=")')
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_UNENDED_VALUE = re.compile(rb":[ \t\r\n]*-?[0-9.eE+-]+\Z")
_UNENDED_ITEM = re.compile(rb"[,\[][ \t\r\n]*-?[0-9.eE+-]+\Z")
_PATH = re.compile(r"\$(?:\.(?:\\.|[^.\[\]\\])*+|\[-?[0-9]{1,20}\])*+", re.DOTALL)
_STEP = re.compile(r"\.((?:\\.|[^.\[\]\\])*+)|\[(-?[0-9]{1,20})\]", re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

_Container = list[Value] | dict[Key, Value]
_MOST_REPEATED = 1 << 20  # characters and values that references may stand for in a file, however short it is

# (id of a container, key or index) → character where that value begins; and the container, so that its id stays its own
_Marks = dict[tuple[int, Key], tuple[int, _Container]]


def loads(data: bytes, dialect: Dialect = FILE, *, cycles: bool = True) -> Value:
    """Read a whole text.

    A bare integer key becomes an ``int``, an object that is a key an `ObjectKey`, any other key a ``str``; of equal
    keys the last counts. A reference becomes the very object that it names, which must be an object that began before
    it, as in every file that fastjson wrote; ``@``, ``..`` and ``$`` name objects that contain the reference, so the
    value then contains itself.

    Args:
        data: the file, or the body.
        dialect: `FILE` or `BODY`.
        cycles: False to refuse a value that contains itself, as no configuration class does, or whose references stand
            for far more than the file is long: carrying them out would need all of that in memory.

    Raises:
        BadText: anything else. ``at`` is the byte that cannot be read on: for an unclosed string its quote, for bytes
            behind the value the first of them, for a text that ends too early its length.
    """
    reader = _Reader.of(data, dialect, cycles=cycles)
    value, end = reader.read()
    tail = reader.skip(dialect.tail, end)
    if tail < len(reader.text):
        raise reader.error(tail, "bytes follow the end of the JSON value")
    return value


def loads_plain(data: bytes) -> Value:
    """Read a body or header, at the speed of the standard library where it is standard JSON without fractions.

    Raises:
        BadText: as `loads`.
    """
    if data.count(b"{") + data.count(b"[") > BODY.depth or _HALF.search(data):
        return loads(data, BODY)
    try:
        text = data.decode("utf-8")
        value, end = _PLAIN.raw_decode(text)
    except ValueError:
        return loads(data, BODY)
    return value if end == len(text) else loads(data, BODY)


def _refuse(name: str) -> Value:
    raise ValueError(name)


_PLAIN = json.JSONDecoder(parse_float=Real, parse_constant=_refuse)


def loads_prefix(data: bytes, *, cycles: bool = True) -> tuple[Value, int]:
    """Read the value that a file begins with, and say at which byte it ends; what follows is not looked at.

    For files whose end is stale: a broker that rewrites in place can leave the end of the longer file that was there
    before (apache/rocketmq#9328).

    Raises:
        BadText: as `loads`, except for what follows the value.
    """
    reader = _Reader.of(data, cycles=cycles)
    value, end = reader.read()
    return value, reader.byte(end)


class Torn(NamedTuple):
    """What a damaged file holds in front of the damage."""

    value: Value  # None where not even its first byte can be read
    open: list[Key]  # path to the innermost object or list that has not ended; it begins inside the top value
    at: int  # byte at which reading ended
    reason: str


def loads_torn(data: bytes) -> Torn | None:
    """Read a file that `loads` refuses as far as it goes; None for one that is whole.

    A number that nothing ends is left out: digits may be missing.
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
    """The byte at which the value under a path of keys and list indices begins; 0 if there is none.

    It reads the file once more, so it is for error messages.

    Raises:
        BadText: as `loads`, except for what follows the value.
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
        self.most = dialect.depth - outside  # how deep it may go
        self.top: list[Value] = []  # the top value is its only item
        self.outer: list[tuple[_Container, Key]] = []  # what is open around the innermost, and under which key
        self._repeated = 0  # values and characters that references stand for so far
        self._weights: dict[int, int] = {}  # id of a container that references name, or lies in one → its weight

    @classmethod
    def of(cls, data: bytes, dialect: Dialect = FILE, *, cycles: bool = True, marks: _Marks | None = None) -> "_Reader":
        """For a whole text."""
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
        assert match  # it matches nothing as well
        return match.end()

    def read(self, at: int = 0) -> tuple[Value, int]:
        """The value at a character and the character behind it. A loop with a stack, so depth is ours to bound."""
        text, blank = self.text, self.dialect.blank
        inside: _Container = self.top
        key: Key = 0
        outer, references = self.outer, self.dialect.references
        at = self.skip(blank, at)
        while True:
            first = text[at : at + 1]
            if self.marks is not None:
                self.marks[id(inside), key] = at, inside
            if first in ("{", "["):
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
            while not more:  # a value ended: close what ends with it, until another one must come
                if inside is self.top:
                    return self.top[0], at
                at = self.skip(blank, at)
                closing = _closing(inside)
                if text.startswith(",", at):
                    at = self.skip(blank, at + 1)
                    more = not text.startswith(closing, at)  # a comma may stand before the closing bracket
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
            if self.dialect.references:  # the last of equal keys at its own place: it may refer to what came between
                inside.pop(key, None)
            inside[key] = item
        else:
            inside.append(item)

    def _entries(self, inside: dict[Key, Value], at: int) -> int:
        """Read entries whose value is an integer or an object of integers, and return where the first other one begins.

        Offset tables have hundreds of thousands of them, so each takes one match. The last entry of a table has no
        comma and is left to the caller.
        """
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
                    break  # a key twice
                self._put(inside, key, table)
            at = token.end()
        return at

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
        assert isinstance(value, dict)  # a bracket opens it
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

    def _number(self, found: re.Match[str]) -> int:
        self._check_number(found)
        return int(found.group())

    def _real(self, found: re.Match[str]) -> Real:
        self._check_number(found)
        return Real(found.group())

    def _check_number(self, found: re.Match[str]) -> None:
        if (length := found.end() - found.start()) > MAX_NUMBER:
            raise self.error(found.start(), f"a number of {length} characters")

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
        """Put the object that a reference names in the place of the reference that just ended."""
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
            return  # to fastjson as well an object like any other
        if not isinstance(target, dict) or target is closed:
            raise self.error(at - 1, "a reference to something that is no object before it")
        if not self.cycles and (target is inside or any(target is container for container, _ in outer)):
            raise self.error(at - 1, "a reference to an object that contains it")
        self._repeated += 0 if self.cycles else self._weight(target)
        # a few nested references can stand for more than any memory holds; brokers' own files double in length at most
        if self._repeated > _MOST_REPEATED + 4 * len(self.text):
            raise self.error(at - 1, f"references that stand for more than {self._repeated} values and characters")
        inside[key] = target  # type: ignore[index]  # its key, or the index of its last item

    def _weight(self, target: _Container) -> int:
        """Values and characters that an object holds, all references in it carried out.

        What has been closed never changes, so each container is counted once.
        """
        known, waiting = self._weights, [target]
        while waiting:
            container = waiting[-1]
            if id(container) in known:
                waiting.pop()
                continue
            items = list(container.values()) if isinstance(container, dict) else container
            inner = [item for item in items if isinstance(item, dict | list)]
            missing = [item for item in inner if id(item) not in known]
            if missing:
                waiting += missing
                continue
            plain = sum(1 + len(item) if isinstance(item, str) else 1 for item in items)
            keys = sum(len(name) for name in container if isinstance(name, str)) if isinstance(container, dict) else 0
            known[id(container)] = plain + keys + sum(known[id(item)] for item in inner)
        return known[id(target)]

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
            # A bare key is named by number, a quoted one by text, whichever way this file has it.
            value = value.get(key, value.get(str(key)) if index else None)
        elif isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            return None
    return value
