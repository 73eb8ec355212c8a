"""Headers and bodies as declared dataclasses: read from and written to their JSON or their text fields.

A declaration is a dataclass whose fields have types of this module (`Int`, `Long`), ``str``, ``bool``, ``float``, other
declarations, enums, and lists and dicts of those. A text with names (``Annotated[str, names]``) may come as the number
of one of them. The member of the wire is the field's name in camel case, or what
`wire` says. A field without a default must be there. Members that are None are not written.
"""

import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from formats.errors import BadText
from formats.fastjson.dialects import BODY, STANDARD
from formats.fastjson.read import loads
from formats.fastjson.values import Key, ObjectKey, Value
from formats.fastjson.write import dumps

Int = Annotated[int, 32]
Long = Annotated[int, 64]


class Declared(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T", bound=Declared)
_Read = Callable[[Any, bool], Any]
_Write = Callable[[Any], Any]
_MEMBER = "member"
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?|NaN")


def wire(member: str, default: Any = MISSING) -> Any:
    """A field whose name on the wire is not its own name in camel case."""
    return field(default=default, metadata={_MEMBER: member})


@dataclass(frozen=True)
class _Member:
    attribute: str
    name: str
    required: bool
    kind: Any
    read: _Read
    write: _Write


@cache
def _members(declared: type) -> dict[str, _Member]:
    hints = get_type_hints(declared, include_extras=True)
    found = {}
    for item in fields(declared):
        kind = _bare(hints[item.name])
        name = item.metadata.get(_MEMBER) or _camel(item.name)
        required = item.default is MISSING and item.default_factory is MISSING
        found[name] = _Member(item.name, name, required, kind, _reader(kind), _writer(kind))
    return found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def short_names(declared: type) -> dict[str, str]:
    """A declaration's names on the wire by what its fields are called in camel case."""
    return {_camel(member.attribute): member.name for member in _members(declared).values()}


def _bare(kind: Any) -> Any:
    """A type without ``| None``."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


# -- JSON -------------------------------------------------------------------------------------------------------------


def from_json(declared: type[T], value: Value, strict: bool = False) -> T:
    """A declaration's object from a JSON value.

    Args:
        declared: the dataclass.
        value: what `formats.fastjson.read.loads` gave.
        strict: refuse members that are not declared; they are passed over otherwise, as in Java.

    Raises:
        BadText: not an object, a member that must be there is not, or one of another type.
    """
    if not isinstance(value, dict):
        raise BadText(0, f"{declared.__name__} that is not a JSON object")
    members = _members(declared)
    if strict and (unknown := [str(key) for key in value if key not in members]):
        raise BadText(0, f"{declared.__name__} with members that are not declared: {', '.join(unknown)}")
    found = {}
    for name, member in members.items():
        item = value.get(name)
        if item is None:
            if member.required:
                raise BadText(0, f"{declared.__name__} without {name}")
            continue
        try:
            found[member.attribute] = member.read(item, strict)
        except BadText as err:
            raise BadText(err.at, f"{declared.__name__}.{name}: {err.reason}") from None
    return declared(**found)


def to_json(item: Declared) -> dict[Key, Value]:
    """The JSON value of a declaration's object, its members in alphabetical order as fastjson has them."""
    found: dict[Key, Value] = {}
    for name, member in sorted(_members(type(item)).items()):
        value = getattr(item, member.attribute)
        if value is not None:
            found[name] = member.write(value)
    return found


def body_of(item: Declared, *, quote_numbers: bool = False) -> bytes:
    """The body that holds a declaration's object."""
    return dumps(to_json(item), STANDARD if quote_numbers else BODY)


def read_body(declared: type[T], body: bytes, strict: bool = False) -> T:
    """A declaration's object from a body.

    Raises:
        BadText: as `formats.fastjson.read.loads` and `from_json`.
    """
    return from_json(declared, loads(body, BODY), strict)


def _reader(kind: Any) -> _Read:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _integer_reader(args[1]) if isinstance(args[1], int) else _name_reader(args[1])
    if origin is list:
        item = _reader(_bare(args[0]))
        return lambda value, strict: [item(one, strict) for one in _expect(list, value)]
    if origin is dict:
        key, inner = _key_reader(args[0]), _reader(_bare(args[1]))
        return lambda value, strict: {key(k, strict): inner(v, strict) for k, v in _expect(dict, value).items()}
    if kind is float:
        return lambda value, strict: _real(value)
    if kind in (str, bool):
        return lambda value, strict: _expect(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value, strict: _enum(kind, value)
    if is_dataclass(kind) and isinstance(kind, type):
        return lambda value, strict: from_json(kind, value, strict)
    raise TypeError(f"{kind!r} has no form on the wire")


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadText(0, "no number")
    return value if isinstance(value, float) else float(value) if abs(value) < 1 << 64 else math.inf


def _expect(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise BadText(0, f"no {kind.__name__}")
    return value


def _enum(kind: type[Enum], value: Any) -> Any:
    if not isinstance(value, str) or value not in kind.__members__:
        raise BadText(0, f"{str(value)[:40]!r} is none of {', '.join(kind.__members__)}")
    return kind[value]


def _integer_reader(bits: int) -> _Read:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(value: Any, strict: bool) -> int:
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadText(0, "no integer")
        if not least <= value <= most:
            raise BadText(0, f"{value} is not a number of {bits} bits")
        return value

    return read


def _name_reader(names: tuple[str, ...]) -> _Read:
    def read(value: Any, strict: bool) -> str:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
            return names[value]  # as clients in C++ write it, and fastjson reads it
        text: str = _expect(str, value)
        return text

    return read


def _key_reader(kind: Any) -> _Read:
    # integer keys may be quoted, texts may be bare
    if kind is str:
        return lambda value, strict: value if isinstance(value, str) else str(_expect(int, value))
    read = _reader(kind)
    return lambda value, strict: read(dict(value) if isinstance(value, ObjectKey) else value, strict)


def _writer(kind: Any) -> _Write:
    origin, args = get_origin(kind), get_args(kind)
    if origin is list:
        item = _writer(_bare(args[0]))
        return lambda value: [item(one) for one in value]
    if origin is dict:
        key, inner = _writer(args[0]), _writer(_bare(args[1]))
        if is_dataclass(args[0]):
            return lambda value: {ObjectKey(key(k).items()): inner(v) for k, v in value.items()}
        return lambda value: {key(k): inner(v) for k, v in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value: value.name
    if is_dataclass(kind):
        return to_json
    return lambda value: value


# -- text fields ------------------------------------------------------------------------------------------------------


def from_fields(declared: type[T], texts: Mapping[str, str] | None, strict: bool = False) -> T:
    """A declaration's object from the text fields of a header ("extFields").

    Raises:
        BadText: a field that must be there is not, or its text is not of its type; with ``strict`` also fields that are
            not declared.
    """
    texts = texts or {}
    members, required = _text_members(declared)
    if strict and (unknown := [key for key in texts if key not in members]):
        raise BadText(0, f"{declared.__name__} with fields that are not declared: {', '.join(unknown)}")
    found = {}
    name = ""
    try:
        for name, text in texts.items():
            if text is not None and (member := members.get(name)) is not None:
                attribute, of_text = member
                found[attribute] = text if of_text is None else of_text(text)
    except BadText as err:
        raise BadText(err.at, f"{declared.__name__}.{name}: {err.reason}") from None
    if not required <= found.keys():
        missing = next(name for name, (attribute, _of) in members.items() if attribute in required - found.keys())
        raise BadText(0, f"{declared.__name__} without {missing}")
    return declared(**found)


@cache
def _text_members(declared: type) -> tuple[dict[str, tuple[str, Callable[[str], Any] | None]], frozenset[str]]:
    """({name: (attribute, reader)} of all fields, attributes that must be there); a reader None takes a text as it is.

    Every request has several fields, so that what each is is looked at once, here.
    """
    members = {
        name: (member.attribute, None if member.kind is str else _text_reader(member.kind))
        for name, member in _members(declared).items()
    }
    return members, frozenset(member.attribute for member in _members(declared).values() if member.required)


def _text_reader(kind: Any) -> Callable[[str], Any]:
    """Of a text field that is not simply text."""
    if kind is bool:
        return lambda text: text.lower() == "true"  # Boolean.parseBoolean
    read = _reader(kind)
    if kind in (Int, Long):
        digits = 9 if kind == Int else 18  # so many fit for sure
        return lambda text: (
            int(text) if text.isdecimal() and text.isascii() and len(text) <= digits else read(text, False)
        )
    if kind is float:
        return lambda text: float(text) if _REAL.fullmatch(text) else read(text, False)
    return lambda text: read(text, False)


def to_fields(item: Declared) -> dict[str, str]:
    """The text fields of a declaration's object. Their order means nothing; Java's is that of a HashMap."""
    found = {}
    for name, member in _members(type(item)).items():
        value = getattr(item, member.attribute)
        kind = type(value)
        if kind is str:
            found[name] = value
        elif kind is int:
            found[name] = str(value)
        elif kind is bool:
            found[name] = "true" if value else "false"
        elif value is not None:
            written = member.write(value)
            found[name] = written if isinstance(written, str) else dumps(written, BODY).decode()
    return found
