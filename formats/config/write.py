"""The writing half of the brokers' JSON dialect: the exact layout that fastjson 1.2 gives to configuration files.

Layout after ``com.alibaba.fastjson.serializer`` (1.2.69 and 1.2.83; ``MapSerializer``, ``ListSerializer``,
``CollectionCodec``, ``SerialContext``): one TAB per level, ``\\n``, no space after ``:``, no newline at the end.
Entries with an integer key stay on the line, entries with a text key get their own.
"""

import math
import re
from decimal import Decimal

from formats.fastjson.values import MAX_NUMBER, Inline, Key, Real, Value

MAX_DEPTH = 200
"""Objects and lists inside one another; the deepest configuration file of any broker has eight."""

_BROWSER_SAFE = 2**53 - 1  # larger integers lose digits in a browser, so that mode quotes them
_NAMED = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
# U+DC80–U+DCFF stand for bytes that are not UTF-8 and leave as those bytes; any other lone surrogate has no UTF-8 form.
_STANDARD = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udc7f\udd00-\udfff]')
_BROWSER = re.compile('["\\\\/\x00-\x1f]|[^\x00-\x7e\udc80-\udcff]')
_REFERENCE = re.compile('["\\\\\ud800-\udc7f\udd00-\udfff]')  # in a path fastjson leaves everything else as it is
_SPECIAL = re.compile(r"[^0-9A-Za-z\u0081-\U0010ffff]")


def dumps(value: Value, *, compact: bool = False) -> bytes:
    """The bytes that a broker's fastjson would write for a value.

    An object that occurs a second time (the same ``dict``, not an equal one) becomes ``{"$ref":…}``, as fastjson does.
    Members whose value is None are written as ``null``; fastjson leaves them out, so a broker's file has none.

    Args:
        value: None, bool, int, float, str, list (see `Inline`) or dict with keys of ``str`` or ``int``.
        compact: one line in the "browser compatible" form of ``timermetrics`` and of values in RocksDB: integer keys
            are quoted, all but ASCII is ``\\uXXXX``, ``/`` is ``\\/``, integers beyond 2**53 - 1 are quoted. Without
            it the layout of ``config/*.json``.

    Raises:
        ValueError: nested deeper than `MAX_DEPTH`, a number longer than `MAX_NUMBER`, infinite or not a number.
        TypeError: a value or key of another type.
    """
    writer = _Writer(compact)
    writer.write(value, 0, None)
    return "".join(writer.out).encode("utf-8", "surrogateescape")


class _Place:
    """Where a value sits: in which container, under which key; the chain ends at the top value, which has none."""

    __slots__ = ("container", "depth", "key", "outer")

    def __init__(self, outer: "_Place | None", container: list[Value] | dict[Key, Value], key: Key) -> None:
        self.outer = outer
        self.container = container
        self.key = key
        self.depth: int = outer.depth + 1 if outer else 1


class _Writer:
    def __init__(self, compact: bool) -> None:
        self.compact = compact
        self.escaped = _BROWSER if compact else _STANDARD
        self.out: list[str] = []
        self.written: dict[int, _Place | None] = {}  # id of an object → where it was written in full

    def write(self, value: Value, tabs: int, place: _Place | None) -> None:
        if isinstance(value, str):
            self.out.append(_quoted(value, self.escaped))
        elif value is None:
            self.out.append("null")
        elif isinstance(value, bool):
            self.out.append("true" if value else "false")
        elif isinstance(value, int):
            wide = self.compact and abs(value) > _BROWSER_SAFE
            self.out.append(f'"{_digits(value)}"' if wide else _digits(value))
        elif isinstance(value, float):
            self.out.append(real_text(value))
        elif isinstance(value, list | dict):
            if place and place.depth >= MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
            self._object(value, tabs, place) if isinstance(value, dict) else self._list(value, tabs, place)
        else:
            raise TypeError(f"{type(value).__name__} has no JSON form")

    def _object(self, value: dict[Key, Value], tabs: int, place: _Place | None) -> None:
        if id(value) in self.written:
            self.out.append(f'{{"$ref":{_quoted(self._path(value, place), _REFERENCE)}}}')
            return
        self.written[id(value)] = place
        if not value:
            self.out.append("{}")
            return
        before = "{"
        for key, item in value.items():
            self.out.append(before)
            if isinstance(key, str):
                self._line(tabs + 1)
                self.out.append(_quoted(key, self.escaped))
            elif isinstance(key, int) and not isinstance(key, bool):
                self.out.append(f'"{_digits(key)}"' if self.compact else _digits(key))
            else:
                raise TypeError(f"{type(key).__name__} as the key of an object")
            self.out.append(":")
            self.write(item, tabs + 1, _Place(place, value, key))
            before = ","
        self._line(tabs)
        self.out.append("}")

    def _list(self, value: list[Value], tabs: int, place: _Place | None) -> None:
        if not value:
            self.out.append("[]")
            return
        inline = isinstance(value, Inline)  # its items do not indent either: an object in a set closes under its member
        before = "["
        for index, item in enumerate(value):
            self.out.append(before)
            if not inline:
                self._line(tabs + 1)
            self.write(item, tabs if inline else tabs + 1, _Place(place, value, index))
            before = ","
        if not inline:
            self._line(tabs)
        self.out.append("]")

    def _line(self, tabs: int) -> None:
        if not self.compact:
            self.out.append("\n" + "\t" * tabs)

    def _path(self, value: dict[Key, Value], place: _Place | None) -> str:
        first = self.written[id(value)]
        if place is not None and place.container is value:
            return "@"
        if place is not None and place.outer is not None and place.outer.container is value:
            return ".."
        steps: list[str] = []
        while first is not None:
            key = first.key
            steps.append(f"[{key}]" if isinstance(key, int) else "." + _escaped_step(str(key)))
            first = first.outer
        return "$" + "".join(reversed(steps))


def _digits(value: int) -> str:
    if value.bit_length() > 3 * MAX_NUMBER:  # a digit has more than three bits
        raise ValueError(f"an integer of {value.bit_length()} bits")
    return str(value)


def _escaped_step(key: str) -> str:
    return _SPECIAL.sub(lambda found: "\\" + found.group(), key)


def _quoted(text: str, escaped: re.Pattern[str]) -> str:
    return f'"{escaped.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    if char in _NAMED:
        return _NAMED[char]
    if char == "/":
        return "\\/"
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def real_text(value: float) -> str:
    """As ``Double.toString``: a point always, an exponent from 10**7 up and below 10**-3.

    Raises:
        ValueError: it is infinite, or no number.
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
