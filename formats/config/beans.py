"""What the models of the configuration files are made of: objects with named members, and whole files.

A model declares each member once, with `member`; reading, writing, its default and the version that brought it all come
from that line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from formats.config.kinds import LONG, Kind, Unfit, describe
from formats.errors import BadText
from formats.fastjson.dialects import FILE, Dialect
from formats.fastjson.read import loads, locate
from formats.fastjson.values import Key, Value
from formats.fastjson.write import dumps
from formats.versions import V4_9, V5_3, VERSIONS, Version


class Nested(Kind):
    """An object with members of its own."""

    def __init__(self, bean: "type[Bean]") -> None:
        self.bean = bean

    def read(self, raw: Value) -> "Bean":
        return self.bean.read(raw)

    def write(self, value: "Bean", version: Version) -> Value:
        return value.write(version)


def member(name: str, kind: Kind, default: Any = None, *, since: Version = V4_9) -> Any:
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

    DERIVED: ClassVar[tuple[str, ...]] = ()  # properties that a broker writes, named as there, and never reads
    extra: Mapping[Key, Value] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: Value) -> Self:
        """From the JSON value.

        Raises:
            Unfit: it is no object, or a value in it is of another kind.
        """
        if not isinstance(raw, dict):
            raise Unfit(f"{describe(raw)} where an object must be")
        extra = {key: item for key, item in raw.items() if key not in cls.DERIVED}
        values: dict[str, Any] = {}
        for attribute, name, kind, _ in _members(cls):
            item = extra.pop(name, None)
            if item is not None:
                try:
                    values[attribute] = kind.read(item)
                except Unfit as err:
                    raise err.within(name) from None
        return cls(**values, extra=extra)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read the text of one, of any version; what it lacks has the default of the Java class.

        Raises:
            BadText: it is not of the dialect; or a value is of another type than its member: then ``reason``
                begins with its path and ``at`` is its first byte.
        """
        raw = loads(data, cycles=False)
        try:
            return cls.read(raw)
        except Unfit as err:
            raise BadText(locate(data, err.path), f"{_path(err.path)}: {err.reason}") from None

    def write(self, version: Version) -> dict[Key, Value]:
        """The JSON value for a version of the broker."""
        made = dict(self.extra) | {name: getattr(self, name) for name in self.DERIVED}
        for attribute, name, kind, since in _members(type(self)):
            value = getattr(self, attribute)
            made.pop(name, None)
            if value is not None and since <= version:
                made[name] = kind.write(value, version)
        return dict(sorted(made.items(), key=lambda entry: str(entry[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion(Bean):
    """Version of a table (``DataVersion``): the broker compares all of it. Our own default is 0 where Java's is now."""

    counter: int = member("counter", LONG, 0)  # changes so far
    timestamp: int = member("timestamp", LONG, 0)  # of the last change, ms since the epoch
    state_version: int = member("stateVersion", LONG, 0, since=V5_3)  # epoch of the master; 0 without controller


VERSION = Nested(DataVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile(Bean):
    """A whole file."""

    SINCE: ClassVar[Version] = V4_9  # the first version that has the file
    DIALECT: ClassVar[Dialect] = FILE

    def build(self, version: Version = V4_9) -> bytes:
        """The file as a broker of a version writes it, apart from the order of tables, which is ours.

        Args:
            version: of the broker. Members that came later are left out; a file that came later is built for the
                version that brought it. `extra` members are always written: brokers skip what they do not know.

        Raises:
            ValueError: a version whose forms are not known, or `extra` holds what JSON cannot.
        """
        if version not in VERSIONS:
            raise ValueError(f"{version} is not one of {', '.join(map(str, VERSIONS))}")
        return dumps(self.write(max(version, self.SINCE)), self.DIALECT)


_declared: dict[type, tuple[tuple[str, str, Kind, Version], ...]] = {}


def _members(bean: type[Bean]) -> tuple[tuple[str, str, Kind, Version], ...]:
    """(attribute, name in the file, kind, version that brought it) of each member."""
    if bean not in _declared:
        members = ((one.name, one.metadata) for one in fields(bean) if one.metadata)
        _declared[bean] = tuple((name, about["name"], about["kind"], about["since"]) for name, about in members)
    return _declared[bean]


def _path(path: list[Key]) -> str:
    steps = (f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_step(key)}]" for key in path)
    return "$" + "".join(steps)


def _step(key: Key) -> str:
    return dumps(key if isinstance(key, int) else str(key)).decode("utf-8", "backslashreplace")
