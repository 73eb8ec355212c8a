"""The JSON of bodies and headers as fastjson writes and reads it: on one line, with bare integer keys and object keys.

An object that is the key of another one is an `ObjectKey`. Numbers with a point keep their characters (`Real`).
"""

import json
import re
from typing import TypeAlias, Union

from formats.config.write import MAX_NUMBER, Real, real_text
from formats.errors import BadText

Key: TypeAlias = "str | int | ObjectKey"
Value: TypeAlias = Union[bool, int, float, str, "list[Value]", "dict[Key, Value]", None]

MAX_DEPTH = 64
"""Objects and lists inside one another; the deepest body of any broker has seven."""


class ObjectKey(tuple[tuple[str, "Value"], ...]):
    """The members of an object that is a key, in their order."""

    __slots__ = ()


_BLANK = re.compile(r"[ \t\r\n]*+")
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"|\'((?:[^\'\\]++|\\.)*+)\'', re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_SINGLE = dict(zip("btnvfFr\"'/\\0", "\b\t\n\v\f\f\r\"'/\\\0", strict=True))
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_NAMED = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_HALF = re.compile(rb"\\\\u[dD][89a-fA-F]")
_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


def loads(data: bytes) -> Value:
    """Read one JSON text in the dialect.

    Raises:
        BadText: not UTF-8, not JSON in the wide sense, nested too deeply, or bytes behind its end. ``at`` is a byte.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as err:
        raise BadText(err.start, "bytes that are not UTF-8") from None
    reader = _Reader(text)
    value, at = reader.value(reader.skip(0), 0)
    at = reader.skip(at)
    if at < len(text):
        raise reader.error(at, "bytes follow the end of the JSON value")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def error(self, at: int, reason: str) -> BadText:
        return BadText(len(self.text[:at].encode("utf-8")), reason)

    def skip(self, at: int) -> int:
        found = _BLANK.match(self.text, at)
        assert found  # it matches nothing as well
        return found.end()

    def value(self, at: int, depth: int) -> tuple[Value, int]:
        first = self.text[at : at + 1]
        if first == "{" or first == "[":
            if depth == MAX_DEPTH:
                raise self.error(at, f"nested deeper than {MAX_DEPTH} levels")
            return self.members(at + 1, depth + 1) if first == "{" else self.items(at + 1, depth + 1)
        if first and first in "\"'":
            return self.string(at)
        if number := _NUMBER.match(self.text, at):
            return self.number(number), number.end()
        name = _NAME.match(self.text, at)
        if name is None or name.group() not in _WORDS:
            raise self.error(at, "the text ends too early" if not first else "no value")
        return _WORDS[name.group()], name.end()

    def members(self, at: int, depth: int) -> tuple[dict[Key, Value], int]:
        found: dict[Key, Value] = {}
        while True:
            at = self.skip(at)
            if self.text.startswith("}", at):
                return found, at + 1
            key, at = self.key(at, depth)
            at = self.skip(at)
            if not self.text.startswith(":", at):
                raise self.error(at, "no ':' after a key")
            found[key], at = self.value(self.skip(at + 1), depth)
            at = self.separator(at, "}")

    def items(self, at: int, depth: int) -> tuple[list[Value], int]:
        found: list[Value] = []
        while True:
            at = self.skip(at)
            if self.text.startswith("]", at):
                return found, at + 1
            item, at = self.value(at, depth)
            found.append(item)
            at = self.separator(at, "]")

    def separator(self, at: int, closing: str) -> int:
        at = self.skip(at)
        if self.text.startswith(",", at):
            return at + 1
        if not self.text.startswith(closing, at):
            raise self.error(at, f"no ',' or '{closing}'")
        return at

    def key(self, at: int, depth: int) -> tuple[Key, int]:
        first = self.text[at : at + 1]
        if first == "{":
            inner, end = self.value(at, depth)
            assert isinstance(inner, dict)
            members = []
            for name, value in inner.items():
                if not isinstance(name, str) or isinstance(value, list | dict):
                    raise self.error(at, "the object that is a key holds more than plain values")
                members.append((name, value))
            return ObjectKey(members), end
        if first and first in "\"'":
            return self.string(at)
        if (number := _NUMBER.match(self.text, at)) and isinstance(whole := self.number(number), int):
            return whole, number.end()
        if bare := _NAME.match(self.text, at):
            return bare.group(), bare.end()
        raise self.error(at, "the text ends too early" if not first else "no key")

    def number(self, found: re.Match[str]) -> int | Real:
        text = found.group()
        if len(text) > MAX_NUMBER:
            raise self.error(found.start(), f"a number of {len(text)} characters")
        return Real(text) if any(char in text for char in ".eE") else int(text)

    def string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self.text, at)
        if found is None:
            raise self.error(at, "a string without its closing quote")
        raw = found.group(1) if found.group(1) is not None else found.group(2)
        if "\\" not in raw:
            return raw, found.end()

        def plain(escape: re.Match[str]) -> str:
            unit, byte, single = escape.groups()
            if unit or byte:
                return chr(int(unit or byte, 16))
            if single not in _SINGLE:
                raise self.error(at + 1 + escape.start(), "an escape that the dialect does not have")
            return _SINGLE[single]

        text = _ESCAPE.sub(plain, raw)
        # two halves of a pair are one character; a half alone is what Java writes for it
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), found.end()


def dumps(value: Value, *, quote_numbers: bool = False) -> bytes:
    """The text on one line as fastjson writes it.

    Args:
        value: what is written; members that are None are left out, as fastjson does.
        quote_numbers: keys that are integers in quotes (standard JSON), as name servers send routes to newer clients.

    Raises:
        TypeError: a value that JSON does not have.
    """
    out: list[str] = []
    _write(value, quote_numbers, out)
    return "".join(out).encode("utf-8")


def _write(value: Value, quote_numbers: bool, out: list[str]) -> None:
    if isinstance(value, str):
        out.append(quoted(value))
    elif value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, int):
        out.append(str(int(value)))
    elif isinstance(value, float):
        out.append(real_text(value))
    elif isinstance(value, dict):
        before = "{"
        for key, item in value.items():
            if item is None:
                continue
            out.append(before)
            _write_key(key, quote_numbers, out)
            out.append(":")
            _write(item, quote_numbers, out)
            before = ","
        out.append("}" if before == "," else "{}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            out.append("," if index else "[")
            _write(item, quote_numbers, out)
        out.append("]" if value else "[]")
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def _write_key(key: Key, quote_numbers: bool, out: list[str]) -> None:
    if isinstance(key, str):
        out.append(quoted(key))
    elif isinstance(key, int):
        out.append(f'"{int(key)}"' if quote_numbers else str(int(key)))
    else:
        _write(dict(key), quote_numbers, out)


def quoted(text: str) -> str:
    """A text as fastjson writes it."""
    if text.isprintable() and '"' not in text and "\\" not in text:  # nearly all are, and this is soon said
        return f'"{text}"'
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    return _NAMED.get(char) or f"\\u{ord(char):04X}"


def loads_plain(data: bytes) -> Value:
    """`loads`, at the speed of the standard library where the text is standard JSON without fractions (headers)."""
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH or _HALF.search(data):
        return loads(data)
    try:
        text = data.decode("utf-8")
        value, end = _PLAIN.raw_decode(text)
    except ValueError:
        return loads(data)
    return value if end == len(text) else loads(data)


def _refuse(name: str) -> Value:
    raise ValueError(name)


_PLAIN = json.JSONDecoder(parse_float=Real, parse_constant=_refuse)
