"""Any configuration file can be built and read; any bytes are read or refused."""

import dataclasses
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formats.config.file import ConfigFile
from formats.config.files import NAMES as FILE_NAMES
from formats.config.files import Topics, model_of
from formats.errors import BadText, FormatError
from formats.fastjson.declare import Declared, Flag, Items, Kind, Nested, Table, Text, Whole, members_of
from formats.fastjson.values import Real
from formats.versions import V4_9, V5_3
from tests.formats.config_samples import FILES, model

MODELS = [model_of(name) for name in FILE_NAMES]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(lambda name: name != "$ref")
EXTRA = st.dictionaries(
    NAMES.map("x-".__add__),
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | NAMES | st.lists(NAMES, max_size=2),
    max_size=2,
)


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    match kind:
        case Whole():
            return st.integers(-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)
        case Flag():
            return st.booleans()
        case Text():
            return NAMES
        case Items():
            return st.lists(values_of(kind.item), max_size=3).map(tuple)
        case Table():
            return st.dictionaries(values_of(kind.key), values_of(kind.item), max_size=3)
        case Nested():
            return beans(kind.declared)
    raise TypeError(kind)


def beans(bean: type[Declared]) -> st.SearchStrategy[Any]:
    defaults = {field.name: field.default for field in dataclasses.fields(bean)}
    members = {
        member.attribute: values_of(member.kind) | (st.none() if defaults[member.attribute] is None else st.nothing())
        for member in members_of(bean).values()
    }
    return st.builds(bean, extra=EXTRA, **members)


ANY_FILE = st.sampled_from(MODELS).flatmap(beans)


@given(ANY_FILE)
def test_what_is_built_for_5_reads_as_it_was(file: ConfigFile) -> None:
    built = file.build(V5_3)
    again = type(file).parse(built)
    assert again == file
    assert again.build(V5_3) == built


@given(ANY_FILE)
def test_what_is_built_for_4_has_all_that_4_knows(file: ConfigFile) -> None:
    built = file.build(V4_9)
    again = type(file).parse(built)
    assert again.build(V4_9) == built
    if file.SINCE != V4_9:
        assert again == file
        return
    assert b'"stateVersion"' not in built
    assert b'"attributes"' not in built
    for member in members_of(type(file)).values():
        if member.since == V4_9 and not isinstance(member.kind, Nested):
            assert list(getattr(again, member.attribute)) == list(getattr(file, member.attribute))


def reads_or_is_refused(kind: type[ConfigFile], raw: bytes) -> None:
    try:
        file = kind.parse(raw)
    except FormatError as err:
        refused: FormatError | None = err
    else:
        refused = None
        assert kind.parse(file.build(V5_3)).build() == file.build()
    assert refused is None or (type(refused) is BadText and 0 <= refused.at <= len(raw))


@given(st.sampled_from(MODELS), st.binary())
def test_random_bytes_read_or_are_refused(kind: type[ConfigFile], raw: bytes) -> None:
    reads_or_is_refused(kind, raw)
    reads_or_is_refused(kind, b'{"offsetTable":' + raw + b"}")


@given(st.sampled_from(FILES), st.data())
def test_a_damaged_file_reads_or_is_refused(path: Path, data: st.DataObject) -> None:
    raw = bytearray(path.read_bytes())
    pieces = st.sampled_from(
        [b"null", b"[]", b"{}", b'"7"', b"7", b"1.5", b'{"$ref":"$"}', b"", b",", b"}", b'"', b"\xff"]
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 12))] = data.draw(pieces)
    reads_or_is_refused(model(path), bytes(raw))


@given(st.sampled_from(FILES), st.data())
def test_a_file_with_a_strange_value_reads_or_is_refused(path: Path, data: st.DataObject) -> None:
    raw = path.read_bytes()
    places = [at for at, char in enumerate(raw) if char == ord(":") and raw[at + 1 : at + 2].isdigit()]
    if not places:
        return
    at = data.draw(st.sampled_from(places)) + 1
    end = next(end for end in range(at, len(raw) + 1) if not raw[end : end + 1].isdigit())
    strange = data.draw(st.sampled_from([b"null", b"[]", b"{}", b'"7"', b"1e400", b"-1", b"9" * 30, b"true", b"''"]))
    reads_or_is_refused(model(path), raw[:at] + strange + raw[end:])


def test_numbers_with_a_point_keep_their_characters_in_unknown_members() -> None:
    assert b'"x":0.10' in Topics(extra={"x": Real("0.10")}).build()
