"""Declare Java classes as dataclasses, to read them from JSON and write them to it.

::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class TopicConfig(Bean):
        topic_name: str | None = None
        read_queue_nums: Int = 16
        attributes: Mapping[str, str] = member(default=dict, since=V5_3)

Each field is a member of the class. Its name is the field's in camel case, or the one given to `member`. Its kind
follows from the type: ``str``, ``bool``, ``float``, `Int`, `Long`, another declaration, or a list, tuple or map of
those. A text with names (``Annotated[str, names]``) may be given as the number of one of them. A field without a
default is required. Members that are None are not written. `Bean` adds what only files need.

Values follow what fastjson accepts for the Java type: a number as a string and, in files, ``1.0`` for an integer,
``"true"`` and 1 for a boolean. Where fastjson makes up a value (1.7 becomes 1, true becomes 1, an object its own text),
these are rejected: such a file is damaged.
"""

import math
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar, Union, get_args, get_origin

from formats.errors import BadText
from formats.fastjson.dialects import BODY, FILE, STANDARD, Dialect
from formats.fastjson.read import loads, loads_plain, locate
from formats.fastjson.values import Inline, Key, Numbers, ObjectKey, Real, Value
from formats.fastjson.write import dumps, quote, scalar_text
from formats.versions import V4_9, VERSIONS, Version

Int = Annotated[int, 32]
Long = Annotated[int, 64]

_STRICT = BODY._replace(strict=True)
NEWEST = max(VERSIONS)
"""The newest version, which has all members."""


class Declared(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T", bound=Declared)


def member(name: str | None = None, default: Any = MISSING, *, since: Version = V4_9, inline: bool = False) -> Any:
    """A field that needs more than a type and a default.

    Args:
        name: name in the text; None for the field's name in camel case.
        default: value if it is missing in the text, as initialized in the Java class; the classes ``dict`` and
            subclasses of `Bean` stand for a new instance.
        since: the first version that has it; it is not written for older ones.
        inline: a list written on one line (an array or ``Set`` in Java).
    """
    about = {"name": name, "since": since, "inline": inline}
    if isinstance(default, type):
        return field(default_factory=default, metadata=about)
    return field(default=default, metadata=about)


class Unfit(Exception):
    """A value that its member cannot accept. Containers prepend their key to ``path`` as it propagates."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[Key] = []

    def within(self, key: Key) -> "Unfit":
        self.path.insert(0, key)
        return self

    def at(self, top: str) -> str:
        """The path, starting with ``top``, and the reason."""
        steps = (f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_step(key)}]" for key in self.path)
        return f"{top}{''.join(steps)}: {self.reason}"


def _step(key: Key) -> str:
    return dumps(key if isinstance(key, int) else str(key)).decode("utf-8", "backslashreplace")


# -- kinds of members -------------------------------------------------------------------------------------------------


class Kind(ABC):
    """Reads and writes the values of a member."""

    @abstractmethod
    def read(self, raw: Any, dialect: Dialect) -> Any:
        """The value in memory. Raises `Unfit`, even for None; null members are skipped before."""

    def write(self, value: Any, dialect: Dialect, version: Version) -> Any:
        """The JSON value; always a new one, so that shared objects do not become references in the file.

        fastjson 1.2.83 writes a reference for a shared ``attributes`` map, but reads it as an attribute named ``$ref``.
        """
        return value

    def text(self, value: Any, version: Version) -> str:
        """The text of the value in a body, as `formats.fastjson.write.dumps` has it of what :meth:`write` returns."""
        return scalar_text(value)


class Whole(Kind):
    """``int`` (32 bits) or ``long`` (64 bits)."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.least = -(1 << bits - 1)

    def read(self, raw: Any, dialect: Dialect) -> int:
        if type(raw) is int and self.least <= raw < -self.least:
            return raw
        number = raw
        if isinstance(raw, str):
            number = int(raw) if dialect.integer.fullmatch(raw) else None
        elif isinstance(raw, float) and dialect.converts:
            number = int(raw) if raw.is_integer() else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise Unfit(f"{describe(raw)} where an integer must be")
        if not self.least <= number < -self.least:
            raise Unfit(f"an integer that does not fit into {self.bits} bits")
        return number

    def text(self, value: Any, version: Version) -> str:
        return str(value) if type(value) is int else scalar_text(value)


class Flag(Kind):
    """``boolean``."""

    def read(self, raw: Any, dialect: Dialect) -> bool:
        if isinstance(raw, bool):
            return raw
        word = raw.lower() if isinstance(raw, str) else raw
        if dialect.converts and word in ("true", 1, "false", 0):
            return word in ("true", 1)
        raise Unfit(f"{describe(raw)} where true or false must be")


class Text(Kind):
    """``String``, or the name of an enum constant, which is kept even if no broker knows it."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = names  # names by number; C++ clients write numbers, and fastjson reads them

    def read(self, raw: Any, dialect: Dialect) -> str:
        if isinstance(raw, str):
            return raw
        if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < len(self.names):
            return self.names[raw]
        if dialect.converts and isinstance(raw, int | Real):
            return raw.text if isinstance(raw, Real) else str(raw).lower()  # true, not True
        raise Unfit(f"{describe(raw)} where text must be")


class Fraction(Kind):
    """``double``; too large values become infinite."""

    def read(self, raw: Any, dialect: Dialect) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise Unfit(f"{describe(raw)} where a number must be")
        return raw if isinstance(raw, float) else float(raw) if abs(raw) < 1 << 64 else math.inf


class Items(Kind):
    """A Java ``List`` (one item per line) or, with ``inline``, an array or ``Set`` (all on one line)."""

    def __init__(self, item: Kind, make: type, *, inline: bool = False) -> None:
        self.item = item
        self.make = make
        self.inline = inline

    def read(self, raw: Any, dialect: Dialect) -> Any:
        if not isinstance(raw, list):
            raise Unfit(f"{describe(raw)} where a list must be")
        items = []
        for index, item in enumerate(raw):
            try:
                items.append(self.item.read(item, dialect))
            except Unfit as err:
                raise err.within(index) from None
        return self.make(items)

    def write(self, value: Any, dialect: Dialect, version: Version) -> list[Value]:
        items = [self.item.write(item, dialect, version) for item in value]
        return Inline(items) if self.inline else items

    def text(self, value: Any, version: Version) -> str:
        text = self.item.text
        return f"[{','.join([text(item, version) for item in value])}]"


class Table(Kind):
    """A Java ``Map``; a dict in the order of the text. Integer keys are read quoted or unquoted.

    It is the dict of the JSON value itself if nothing in it needs converting: with hundreds of thousands of groups,
    two copies would not fit into memory.
    """

    def __init__(self, key: Kind, item: Kind) -> None:
        self.key = key
        self.item = item

    def read(self, raw: Any, dialect: Dialect) -> Mapping[Any, Any]:
        if isinstance(raw, Numbers):
            return raw  # they fit
        if not isinstance(raw, dict):
            raise Unfit(f"{describe(raw)} where an object must be")
        if isinstance(self.key, Whole) and isinstance(self.item, Whole) and _all_fit(raw, self.key, self.item):
            return raw
        table: dict[Any, Any] | None = None
        for position, (key, item) in enumerate(raw.items()):
            try:
                name, value = self.read_key(key, dialect), self.item.read(item, dialect)
            except Unfit as err:
                raise err.within(key) from None
            if table is None and (name is not key or value is not item):
                table = dict(islice(raw.items(), position))
            if table is not None:
                table[name] = value
        return raw if table is None else table

    def read_key(self, key: Key, dialect: Dialect) -> Any:
        """Convert a key.

        Raises:
            Unfit: it has another type.
        """
        if isinstance(self.key, Text):
            if isinstance(key, str):
                return key
            if isinstance(key, int) and not dialect.converts:
                return str(key)
            raise Unfit("its key is a bare number where text must be")  # "illegal identifier" to fastjson
        try:
            return self.key.read(dict(key) if isinstance(key, ObjectKey) else key, dialect)
        except Unfit as err:
            if isinstance(self.key, Whole):
                raise Unfit(f"its key is not an integer of {self.key.bits} bits") from None
            raise Unfit(err.at("its key")) from None

    def write(self, value: Mapping[Any, Any], dialect: Dialect, version: Version) -> dict[Key, Value]:
        item = self.item.write
        if isinstance(self.key, Nested):
            key = self.key.write
            return {
                ObjectKey(key(k, dialect, version).items()): item(v, dialect, version)  # type: ignore[arg-type]
                for k, v in value.items()
            }
        return {k: item(v, dialect, version) for k, v in value.items()}

    def text(self, value: Mapping[Any, Any], version: Version) -> str:
        key, item = self.key.text, self.item.text
        entries = [f"{key(k, version)}:{item(v, version)}" for k, v in value.items() if v is not None]
        return f"{{{','.join(entries)}}}"


def _all_fit(raw: dict[Key, Value], keys: Whole, items: Whole) -> bool:
    low, least = keys.least, items.least
    for key, item in raw.items():
        if not (type(key) is type(item) is int and low <= key < -low and least <= item < -least):
            return False
    return True


class Nested(Kind):
    """An object of another declaration."""

    def __init__(self, declared: type[Declared]) -> None:
        self.declared = declared

    def read(self, raw: Any, dialect: Dialect) -> Any:
        return read_object(self.declared, raw, dialect)

    def write(self, value: Declared, dialect: Dialect, version: Version) -> dict[Key, Value]:
        return write_object(value, dialect, version)

    def text(self, value: Declared, version: Version) -> str:
        members = [
            f"{name}{text(member, version)}"
            for name, attribute, text, since in _in_text(type(value))
            if (member := getattr(value, attribute)) is not None and since <= version
        ]
        return f"{{{','.join(members)}}}"


def kind_of(declared: Any, inline: bool = False) -> Kind:
    """The kind that follows from a type.

    Raises:
        TypeError: a type that has no form in JSON.
    """
    origin, args = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return Whole(args[1]) if isinstance(args[1], int) else Text(args[1])
    if origin in (list, tuple):
        return Items(kind_of(_bare(args[0])), origin, inline=inline)
    if origin in (dict, Mapping):
        return Table(kind_of(args[0]), kind_of(_bare(args[1])))
    if is_dataclass(declared) and isinstance(declared, type):
        return Nested(declared)
    if declared not in (str, bool, float):
        raise TypeError(f"{declared!r} has no form in JSON")
    return Text() if declared is str else Flag() if declared is bool else Fraction()


def _bare(declared: Any) -> Any:
    """A type without ``| None``."""
    if get_origin(declared) in (Union, types.UnionType):
        return next(part for part in get_args(declared) if part is not type(None))
    return declared


def describe(raw: Any) -> str:
    """Describe a value for an error message."""
    if raw is None:
        return "null"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, dict | list | ObjectKey):
        return "a list" if isinstance(raw, list) else "an object"
    if isinstance(raw, str):
        return "text" if raw else "empty text"
    return raw.text[:20] if isinstance(raw, Real) else "a number"


# -- members and objects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """Description of one field of a declaration.

    Attributes:
        attribute: the field's name.
        name: the member's in the text.
        kind: what it holds.
        since: the first version that has it.
        required: it must be there.
        unset: it is None where a body does not have it, though its default is something else.
    """

    attribute: str
    name: str
    kind: Kind
    since: Version
    required: bool
    unset: bool


_members: dict[type, dict[str, Member]] = {}


def members_of(declared: type[Declared]) -> dict[str, Member]:
    """The members of a declaration by name, in its order."""
    if declared not in _members:
        own = (item for item in fields(declared) if item.name != "extra" or not issubclass(declared, Bean))
        _members[declared] = {member.name: member for member in map(_read_field, own)}
    return _members[declared]


def _read_field(item: Field[Any]) -> Member:
    about, bare = item.metadata, _bare(item.type)
    return Member(
        attribute=item.name,
        name=about.get("name") or to_camel_case(item.name),
        kind=kind_of(bare, about.get("inline", False)),
        since=about.get("since", V4_9),
        required=item.default is MISSING and item.default_factory is MISSING,
        unset=bare is not item.type and item.default not in (None, MISSING),
    )


@cache
def _in_order(declared: type) -> tuple[Member, ...]:
    return tuple(member for _, member in sorted(members_of(declared).items()))


@cache
def _in_reading(declared: type) -> tuple[tuple[str, str, Callable[[Any, Dialect], Any], bool, bool], ...]:
    """Name, attribute, reader, and whether it is required and unset, of each member."""
    return tuple((m.name, m.attribute, m.kind.read, m.required, m.unset) for m in members_of(declared).values())


@cache
def _in_text(declared: type) -> tuple[tuple[str, str, Callable[[Any, Version], str], Version], ...]:
    """Name with colon, attribute, writer and first version of each member, in the order of a body."""
    return tuple((f"{quote(m.name)}:", m.attribute, m.kind.text, m.since) for m in _in_order(declared))


def to_camel_case(name: str) -> str:
    """The name of a field as a Java class has it."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def read_object(declared: type[T], raw: Value, dialect: Dialect) -> T:
    """A declaration's object from a JSON value.

    Raises:
        Unfit: it is no object, a member that must be there is not, or a value is of another kind.
    """
    if not isinstance(raw, dict):
        raise Unfit(f"{describe(raw)} where an object must be")
    members = members_of(declared)
    values: dict[str, Any] = {}
    for name, attribute, read, required, unset in _in_reading(declared):
        item = raw.get(name)
        if item is not None:
            try:
                values[attribute] = read(item, dialect)
            except Unfit as err:
                raise err.within(name) from None
        elif required:
            raise Unfit(f"an object without {name}")
        elif unset and not dialect.keeps:
            values[attribute] = None
    if dialect.keeps and issubclass(declared, Bean):
        values["extra"] = {key: item for key, item in raw.items() if key not in members and key not in declared.DERIVED}
    elif dialect.strict and (unknown := [str(key) for key in raw if key not in members]):
        raise Unfit(f"members that are not declared: {', '.join(unknown)}")
    return declared(**values)


def write_object(item: Declared, dialect: Dialect, version: Version) -> dict[Key, Value]:
    """The JSON value of a declaration's object, for a version of the broker.

    Its members are in alphabetical order, as fastjson has properties.
    """
    bean = item if dialect.keeps and isinstance(item, Bean) else None
    members: dict[Key, Value] = {}
    for member in members_of(type(item)).values() if bean and bean.ORDERED else _in_order(type(item)):
        value = getattr(item, member.attribute)
        if value is not None and member.since <= version:
            members[member.name] = member.kind.write(value, dialect, version)
    if bean and (bean.extra or bean.DERIVED):
        known = members_of(type(item))
        more = {name: getattr(item, name) for name in bean.DERIVED}
        more |= {key: value for key, value in bean.extra.items() if key not in known and key not in more}
        if bean.ORDERED:
            return members | dict(sorted(more.items(), key=lambda entry: str(entry[0])))
        return dict(sorted((members | more).items(), key=lambda entry: str(entry[0])))
    return members


@dataclass(frozen=True, slots=True, kw_only=True)
class Bean:
    """An object of a file, which keeps what it does not know.

    Attributes:
        extra: members that no version here knows, as they were read. They are written again.
    """

    KEEP: ClassVar[str | None] = None  # a member whose tables of numbers stay text, as there may be a million
    DERIVED: ClassVar[tuple[str, ...]] = ()  # properties that a broker writes, named as there, and never reads
    ORDERED: ClassVar[bool] = False  # members are written in the order in which they are declared
    extra: Mapping[Any, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: Value) -> Self:
        """From the JSON value.

        Raises:
            Unfit: it is no object, or a value in it is of another kind.
        """
        return read_object(cls, raw, FILE)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read the text of one, of any version; what it lacks has the default of the Java class.

        Raises:
            BadText: it is not of the dialect; or a value is of another type than its member: then ``reason``
                begins with its path and ``at`` is its first byte.
        """
        raw = loads(data, FILE, cycles=False, keep=cls.KEEP)
        try:
            return cls.read(raw)
        except Unfit as err:
            raise BadText(locate(data, err.path), err.at("$")) from None

    def write(self, version: Version) -> dict[Key, Value]:
        """The JSON value for a version of the broker."""
        return write_object(self, FILE, version)


# -- bodies -----------------------------------------------------------------------------------------------------------


def read_body(declared: type[T], body: bytes, strict: bool = False) -> T:
    """A declaration's object from a body.

    Raises:
        BadText: as `formats.fastjson.read.loads` and `from_json`.
    """
    return from_json(declared, loads_plain(body), strict)


def from_json(declared: type[T], value: Value, strict: bool = False) -> T:
    """A declaration's object from the JSON value of a body.

    Args:
        declared: the dataclass.
        value: what was read.
        strict: refuse members that are not declared; they are passed over otherwise, as in Java.

    Raises:
        BadText: not an object, a member that must be there is not, or one of another type.
    """
    try:
        return read_object(declared, value, _STRICT if strict else BODY)
    except Unfit as err:
        raise BadText(0, err.at(declared.__name__)) from None


def body_of(item: Declared, version: Version = NEWEST, *, quote_numbers: bool = False) -> bytes:
    """The body that holds a declaration's object, for a version of the broker.

    Args:
        quote_numbers: keys that are integers stand in quotes (standard JSON).
    """
    if quote_numbers:
        return dumps(to_json(item, version), STANDARD)
    return Nested(type(item)).text(item, version).encode()


def to_json(item: Declared, version: Version = NEWEST) -> dict[Key, Value]:
    """The JSON value of a body that holds a declaration's object."""
    return write_object(item, BODY, version)
