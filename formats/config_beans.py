"""What the configuration files are made of: objects with named members, tables, lists and single values.

A model declares each member once, with `member`; reading, writing, defaults and the version that brought it all come
from that line. Conversions follow what a broker's fastjson accepts for the Java type of the member: a number given as a
string, ``1.0`` for an integer, ``"true"`` and 1 for a boolean, null for "as if it were not there". Where fastjson makes
up a value (1.7 becomes 1, true becomes 1, an object becomes its text), this refuses: such a file is damaged.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, Self, get_args

from formats.config_json import Inline, Key, Real, Value, dumps, loads, locate
from formats.errors import BadText

Engine = Literal["4.9", "5.3"]
ENGINES: tuple[str, ...] = get_args(Engine)  # in the order of their release


class Unfit(Exception):
    """A value that its member cannot take. Containers put their key in front of ``path`` on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[Key] = []

    def within(self, key: Key) -> "Unfit":
        self.path.insert(0, key)
        return self


class Kind(ABC):
    """How the values of a member are read and written."""

    @abstractmethod
    def read(self, raw: Value) -> Any:
        """The model's value. Raises `Unfit`, also for None; a bean leaves null members out before."""

    @abstractmethod
    def write(self, value: Any, engine: str) -> Value:
        """The JSON value, made anew: what two objects of a model share must not become a reference in the file.

        fastjson 1.2.83 writes one for a shared ``attributes`` map, but reads it back as an attribute named ``$ref``.
        """


class Whole(Kind):
    """``int`` (32 bits) or ``long`` (64 bits)."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def read(self, raw: Value) -> int:
        number = raw
        if isinstance(raw, str):
            number = int(raw) if re.fullmatch(r"-?[0-9]{1,40}", raw) else None
        elif isinstance(raw, float):
            number = int(raw) if raw.is_integer() else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise Unfit(f"{_what(raw)} where an integer must be")
        if not -(1 << self.bits - 1) <= number < 1 << self.bits - 1:
            raise Unfit(f"{number} does not fit into {self.bits} bits")
        return number

    def write(self, value: int, engine: str) -> Value:
        return value


class Flag(Kind):
    """``boolean``."""

    def read(self, raw: Value) -> bool:
        word = raw.lower() if isinstance(raw, str) else raw
        if word in ("true", 1):  # True is 1
            return True
        if word in ("false", 0):
            return False
        raise Unfit(f"{_what(raw)} where true or false must be")

    def write(self, value: bool, engine: str) -> Value:
        return value


class Text(Kind):
    """``String``, or the name of an enum constant, which is kept as it is even if no broker knows it."""

    def read(self, raw: Value) -> str:
        if isinstance(raw, str):
            return raw
        if isinstance(raw, bool):
            return "true" if raw else "false"
        if isinstance(raw, int | Real):
            return raw.text if isinstance(raw, Real) else str(raw)
        raise Unfit(f"{_what(raw)} where text must be")

    def write(self, value: str, engine: str) -> Value:
        return value


class Items(Kind):
    """A Java ``List`` (one item per line) or, with ``inline``, an array or ``Set`` (all on one line); a tuple here."""

    def __init__(self, item: Kind, *, inline: bool = False) -> None:
        self.item = item
        self.inline = inline

    def read(self, raw: Value) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            raise Unfit(f"{_what(raw)} where a list must be")
        items = []
        for index, item in enumerate(raw):
            try:
                items.append(self.item.read(item))
            except Unfit as err:
                raise err.within(index) from None
        return tuple(items)

    def write(self, value: tuple[Any, ...], engine: str) -> Value:
        items = [self.item.write(item, engine) for item in value]
        return Inline(items) if self.inline else items


class Table(Kind):
    """A Java ``Map`` from text to anything; a dict here, in the order of the file."""

    def __init__(self, item: Kind) -> None:
        self.item = item

    def read(self, raw: Value) -> dict[Any, Any]:
        if not isinstance(raw, dict):
            raise Unfit(f"{_what(raw)} where an object must be")
        table: dict[Any, Any] = {}
        for key, item in raw.items():
            try:
                table[self.key(key)] = self.item.read(item)
            except Unfit as err:
                raise err.within(key) from None
        return table

    def key(self, key: Key) -> Key:
        if isinstance(key, int):  # "illegal identifier" to fastjson
            raise Unfit("a bare number as key, where keys are text")
        return key

    def write(self, value: Mapping[Any, Any], engine: str) -> Value:
        return {key: self.item.write(item, engine) for key, item in value.items()}


class Numbered(Table):
    """A Java ``Map`` from ``Integer`` (or ``Long``, with 64 bits); keys are written bare, read bare or quoted."""

    def __init__(self, item: Kind, bits: int = 32) -> None:
        super().__init__(item)
        self.number = Whole(bits)

    def key(self, key: Key) -> Key:
        try:
            return self.number.read(key)
        except Unfit as err:
            raise Unfit(f"as key {err.reason}") from None


class Nested(Kind):
    """An object with members of its own."""

    def __init__(self, bean: "type[Bean]") -> None:
        self.bean = bean

    def read(self, raw: Value) -> "Bean":
        return self.bean.read(raw)

    def write(self, value: "Bean", engine: str) -> Value:
        return value.write(engine)


INT, LONG, FLAG, TEXT = Whole(32), Whole(64), Flag(), Text()


def member(name: str, kind: Kind, default: Any = None, *, since: Engine = "4.9") -> Any:
    """A dataclass field for the member ``name`` of the file.

    Args:
        name: as it stands in the file.
        kind: what it holds.
        default: its value where the file has none, as the Java class initialises it; the classes ``dict`` and
            subclasses of `Bean` stand for a new one. None is not written, as fastjson does.
        since: the first version that has it; it is not written for an older one.
    """
    about = {"name": name, "kind": kind, "since": since}
    if isinstance(default, type):
        return field(default_factory=default, metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bean:
    """An object with named members, written in alphabetical order as fastjson does with properties.

    Attributes:
        extra: members that no version here knows, as they were read. They are written again.
    """

    extra: Mapping[Key, Value] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: Value) -> Self:
        """From the JSON value. Raises `Unfit`."""
        if not isinstance(raw, dict):
            raise Unfit(f"{_what(raw)} where an object must be")
        extra = dict(raw)
        values: dict[str, Any] = {}
        for attribute, name, kind, _ in _members(cls):
            item = extra.pop(name, None)
            if item is not None:
                try:
                    values[attribute] = kind.read(item)
                except Unfit as err:
                    raise err.within(name) from None
        return cls(**values, extra=extra)

    def write(self, engine: str) -> dict[Key, Value]:
        """The JSON value for a version of the broker."""
        made = dict(self.extra)
        for attribute, name, kind, since in _members(type(self)):
            value = getattr(self, attribute)
            made.pop(name, None)
            if value is not None and ENGINES.index(since) <= ENGINES.index(engine):
                made[name] = kind.write(value, engine)
        return dict(sorted(made.items(), key=lambda entry: str(entry[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile(Bean):
    """A whole file."""

    SINCE: ClassVar[Engine] = "4.9"  # the first version that has the file
    COMPACT: ClassVar[bool] = False  # on one line, see `formats.config_json.dumps`

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a file of any version; what it lacks has the default of the Java class.

        Raises:
            BadText: the file is not of the dialect; or a value is of another type than its member: then ``reason``
                begins with its path and ``at`` is its first byte.
        """
        raw = loads(data, cycles=False)
        try:
            return cls.read(raw)
        except Unfit as err:
            raise BadText(locate(data, err.path), f"{_path(err.path)}: {err.reason}") from None

    def build(self, *, engine: str = "4.9") -> bytes:
        """The file as a broker of a version writes it, apart from the order of tables, which is ours.

        Args:
            engine: ``"4.9"`` or ``"5.3"``. Members that came later are left out; a file that 4.9 does not have is
                always built for 5.3. `extra` members are written for every version: brokers skip what they do not know.

        Raises:
            ValueError: another version, or `extra` holds what JSON cannot.
        """
        if engine not in ENGINES:
            raise ValueError(f"{engine!r} is not one of {', '.join(ENGINES)}")
        newest = max(engine, self.SINCE, key=ENGINES.index)
        return dumps(self.write(newest), compact=self.COMPACT)


@cache
def _members(bean: type[Bean]) -> tuple[tuple[str, str, Kind, str], ...]:
    """(attribute, name in the file, kind, version that brought it) of each member."""
    declared = ((one.name, one.metadata) for one in fields(bean) if one.metadata)
    return tuple((name, about["name"], about["kind"], about["since"]) for name, about in declared)


def _what(raw: Value) -> str:
    if raw is None:
        return "null"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, dict | list):
        return "an object" if isinstance(raw, dict) else "a list"
    if isinstance(raw, str):
        return "text" if raw else "empty text"
    return f"{raw:.20}" if isinstance(raw, float) else "a number"


def _path(path: list[Key]) -> str:
    steps = (f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_step(key)}]" for key in path)
    return "$" + "".join(steps)


def _step(key: Key) -> str:
    return dumps(key).decode("utf-8", "backslashreplace")
