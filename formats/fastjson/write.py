"""Writer for JSON, byte-identical to fastjson's output.

Source: com.alibaba.fastjson.serializer.MapSerializer, ListSerializer, CollectionCodec, SerialContext (1.2.69, 1.2.83).
There is no blank after ``:`` and no newline at the end. Files are indented with one TAB per level; entries with an
integer key continue on the same line, entries with a text key begin a new one.
"""

import math
import re
from decimal import Decimal

from formats.fastjson.dialects import BODY, BROWSER, FILE, Dialect
from formats.fastjson.values import MAX_NUMBER, Inline, Key, ObjectKey, Real, Value

_BROWSER_SAFE = 2**53 - 1  # JavaScript loses digits of larger integers, so BROWSER quotes them
_BROWSER_TEXT = BROWSER.escaped
_NAMED = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\", "/": "\\/"}
_REFERENCE = re.compile('["\\\\\ud800-\udc7f\udd00-\udfff]')  # all that fastjson escapes in a path
_SPECIAL = re.compile(r"[\x00-/:-@\[-`{-\x80]")


def dumps(value: Value, dialect: Dialect = FILE) -> bytes:
    """Return the bytes that a broker's fastjson would write for a value.

    Args:
        value: None, bool, int, float, str, list (see `Inline`) or dict with keys of ``str``, ``int`` or `ObjectKey`.
        dialect: `FILE`, `BROWSER`, `BODY` or `STANDARD`.

    Raises:
        ValueError: a file is nested too deeply, or a number is longer than `MAX_NUMBER`, infinite or NaN.
        TypeError: a value or key has another type.
    """
    writer = _Writer(dialect)
    writer.write(value, 0, None)
    return "".join(writer.out).encode("utf-8", "surrogateescape")


def quote(text: str, escaped: re.Pattern[str] = BODY.escaped) -> str:
    """Return a string literal, escaping the characters that match ``escaped``; by default as in a body."""
    # most texts are printable, and of the printable characters only BROWSER escapes more than quotes and backslashes
    if text.isprintable() and '"' not in text and "\\" not in text and escaped is not _BROWSER_TEXT:
        return f'"{text}"'
    return f'"{escaped.sub(_escape, text)}"'


def scalar_text(value: Value, dialect: Dialect = BODY) -> str:
    """The text of a value that is neither a list nor an object.

    Raises:
        ValueError: a number is longer than `MAX_NUMBER`, infinite or NaN.
        TypeError: the value has another type.
    """
    if isinstance(value, str):
        return quote(value, dialect.escaped)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        large = dialect.quote_large and abs(value) > _BROWSER_SAFE
        return f'"{_digits(value)}"' if large else _digits(value)
    if isinstance(value, float):
        return real_text(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


class _Place:
    """Position of a value: its container and key, linked to the position of the container; None for the top value."""

    __slots__ = ("container", "depth", "key", "outer")

    def __init__(self, outer: "_Place | None", container: list[Value] | dict[Key, Value], key: Key) -> None:
        self.outer = outer
        self.container = container
        self.key = key
        self.depth: int = outer.depth + 1 if outer else 1


class _Writer:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.references, self.nulls, self.escaped, self.tabs = (
            dialect.references, dialect.nulls, dialect.escaped, dialect.tabs,
        )  # fmt: skip
        self.plain = not dialect.quote_large  # integers are written without quotes
        self.out: list[str] = []
        self.written: dict[int, _Place | None] = {}  # id of an object → where it was first written

    def write(self, value: Value, tabs: int, place: _Place | None) -> None:
        if isinstance(value, list | dict):
            if place and place.depth >= self.dialect.depth:
                raise ValueError(f"nested deeper than {self.dialect.depth} levels")
            self._object(value, tabs, place) if isinstance(value, dict) else self._list(value, tabs, place)
        else:
            self.out.append(scalar_text(value, self.dialect))

    def _object(self, value: dict[Key, Value], tabs: int, place: _Place | None) -> None:
        out, references, nulls, escaped, plain = self.out, self.references, self.nulls, self.escaped, self.plain
        if references:
            if id(value) in self.written:
                out.append(f'{{"$ref":{quote(self._path(value, place), _REFERENCE)}}}')
                return
            self.written[id(value)] = place
        line, end = (self._line(tabs + 1), self._line(tabs) + "}") if self.tabs else ("", "}")
        before = "{"
        for key, item in value.items():
            if item is None and not nulls:
                continue
            name = line + quote(key, escaped) if isinstance(key, str) else self._key(key)
            if type(item) is str:
                out.append(f"{before}{name}:{quote(item, escaped)}")
            elif type(item) is int and plain:
                out.append(f"{before}{name}:{_digits(item)}")
            elif isinstance(item, list | dict):
                out.append(f"{before}{name}:")
                self.write(item, tabs + 1, _Place(place, value, key) if references else None)
            else:
                out.append(f"{before}{name}:{scalar_text(item, self.dialect)}")
            before = ","
        out.append("{}" if before == "{" else end)

    def _key(self, key: Key) -> str:
        """Return the text of a key that is not a string."""
        if isinstance(key, int) and not isinstance(key, bool):
            return f'"{_digits(key)}"' if self.dialect.quote_keys else _digits(key)
        if not isinstance(key, ObjectKey) or not self.dialect.object_keys:
            raise TypeError(f"{type(key).__name__} as the key of an object")
        members = (f"{quote(name)}:{scalar_text(item, self.dialect)}" for name, item in key if item is not None)
        return f"{{{','.join(members)}}}"

    def _list(self, value: list[Value], tabs: int, place: _Place | None) -> None:
        if not value:
            self.out.append("[]")
            return
        # the items of an inline list are not indented either: an object in a set closes at the set's own level
        inline = isinstance(value, Inline)
        line, references = "" if inline else self._line(tabs + 1), self.references
        before = "["
        for index, item in enumerate(value):
            self.out.append(before + line)
            inner = _Place(place, value, index) if references and isinstance(item, list | dict) else None
            self.write(item, tabs if inline else tabs + 1, inner)
            before = ","
        self.out.append("]" if inline else self._line(tabs) + "]")

    def _line(self, tabs: int) -> str:
        return "\n" + "\t" * tabs if self.tabs else ""

    def _path(self, value: dict[Key, Value], place: _Place | None) -> str:
        first = self.written[id(value)]
        if place is not None and place.container is value:
            return "@"
        if place is not None and place.outer is not None and place.outer.container is value:
            return ".."
        steps: list[str] = []
        while first is not None:
            key = first.key
            steps.append(f".{_SPECIAL.sub(_escaped_step, key)}" if isinstance(key, str) else f"[{key}]")
            first = first.outer
        return "$" + "".join(reversed(steps))


def _digits(value: int) -> str:
    if value.bit_length() > 3 * MAX_NUMBER:  # a digit carries more than three bits
        raise ValueError(f"an integer of {value.bit_length()} bits")
    return str(value)


def _escaped_step(special: re.Match[str]) -> str:
    return "\\" + special.group()


def _escape(special: re.Match[str]) -> str:
    char = special.group()
    if char in _NAMED:
        return _NAMED[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def real_text(value: float) -> str:
    """Format a double as ``Double.toString``: always with a point, with an exponent from 10**7 up and below 10**-3.

    Raises:
        ValueError: the value is infinite or NaN.
    """
    if isinstance(value, Real):
        return value.text
    if not math.isfinite(value):
        raise ValueError(f"{value} has no JSON form")
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)  # only infinities and NaN have letters there
    figures = "".join(map(str, digits)).rstrip("0")
    magnitude = len(digits) + exponent - 1  # power of ten of the first figure
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0"
    if -3 <= magnitude < 0:
        return f"{minus}0.{'0' * (-magnitude - 1)}{figures}"
    if 0 <= magnitude < 7:
        figures = figures.ljust(magnitude + 2, "0")
        return f"{minus}{figures[: magnitude + 1]}.{figures[magnitude + 1 :]}"
    return f"{minus}{figures[0]}.{figures[1:] or '0'}E{magnitude}"
