"""Properties and the small primitives."""

import ipaddress
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadLength, FormatError
from formats.message.properties import build, build_many, crc_property, parse, parse_raw, split_keys
from formats.primitives import address_text, crc31, flag_names, host_text, java_hash, parse_address, parse_host
from tests.formats.strategies import addresses, examples, many_examples


def as_java_parses(text: bytes) -> dict[bytes, bytes]:
    """The rule of 4.9.1 and later, step by step."""
    out: dict[bytes, bytes] = {}
    i = 0
    while i < len(text):
        j = text.find(b"\x02", i)
        j = len(text) if j < 0 else j
        if j - i >= 3:
            k = text.find(b"\x01", i)
            if i < k < j - 1:
                out[text[i:k]] = text[k + 1 : j]
        i = j + 1
    return out


@many_examples
@given(
    text=st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"bc", "键".encode(), b"\xff"]), max_size=24).map(b"".join)
)
def test_parsing_follows_javas_rule(text: bytes) -> None:
    assert parse_raw(text) == as_java_parses(text)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d\x01e", {"a": "b", "c": "d\x01e"}),
        (b"a\x01", {}),
        (b"\x01b\x01c", {}),
        (b"a\x02b\x01c", {"b": "c"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"U\x01first\x02U\x01last", {"U": "last"}),
        (b"a\x01\xff", {"a": "�"}),
    ],
)
def test_parsing(text: bytes, result: dict[str, str]) -> None:
    assert parse(text) == result


names = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=8)


_texts = st.one_of(
    st.sampled_from(["a", "é", "\x01", "\x02", "a\x01b", "a\x02b", "x" * 0x7FFB, "x" * 0x7FFC, "é" * 0x4000]), names
)


@many_examples
@given(
    many=st.lists(st.dictionaries(_texts, st.one_of(_texts, st.integers()), max_size=3), max_size=4), end=st.booleans()
)
def test_many_are_built_as_each_by_itself(many: list[dict[str, str]], end: bool) -> None:
    def built(make: Callable[[], list[bytes]]) -> list[bytes] | str:
        try:
            return make()
        except FormatError as err:
            return f"{type(err).__name__}: {err}"

    each = built(lambda: [build(properties, trailing_separator=end) for properties in many])
    assert built(lambda: build_many(many, trailing_separator=end)) == each


@examples
@given(properties=st.dictionaries(names, names, max_size=5), trailing=st.booleans())
def test_properties_read_as_they_were_built(properties: dict[str, str], trailing: bool) -> None:
    raw = build(properties, trailing_separator=trailing)

    assert parse(raw) == properties
    assert raw.endswith(b"\x02") is (trailing and bool(properties))


def test_the_longest_properties() -> None:
    assert len(build({"K": "v" * 32765})) == 32767
    with pytest.raises(BadLength):
        build({"K": "v" * 32765}, trailing_separator=True)


@pytest.mark.parametrize(
    ("keys", "split"), [("", []), (" ", []), ("a", ["a"]), (" a  b ", ["a", "b"]), ("a\tb", ["a\tb"])]
)
def test_keys_are_split_at_blanks(keys: str, split: list[str]) -> None:
    assert split_keys(keys) == split


@given(crc=st.integers(0, 2**31 - 1))
def test_the_crc_property_has_20_bytes_and_reads_back(crc: int) -> None:
    raw = crc_property(crc)

    assert len(raw) == 20
    assert int(parse(raw)["__CRC32#"][::-1]) == crc


@examples
@given(data=st.binary(max_size=50))
def test_crc31_has_31_bits(data: bytes) -> None:
    assert 0 <= crc31(data) < 2**31
    assert crc31(b"") == 0


@examples
@given(text=st.text(st.characters(), max_size=12) | st.text(st.characters(max_codepoint=127), max_size=200))
def test_java_hash_is_over_utf16_units(text: str) -> None:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    total = sum(unit * 31**i for i, unit in enumerate(reversed(units)))

    assert java_hash(text) == (total + 2**31) % 2**32 - 2**31


@examples
@given(address=addresses, port=st.integers(0, 65535))
def test_addresses_read_as_they_are_printed(address: bytes, port: int) -> None:
    text = host_text(address, port)
    mapped = len(address) == 16 and ipaddress.IPv6Address(address).ipv4_mapped

    assert parse_host(text) == (address[12:] if mapped else address, port)
    assert parse_address(address_text(address)) in (address, address[12:])


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("fd000000000000000000000000000002", "fd00:0:0:0:0:0:0:2"),
        ("00000000000000000000ffffc0000201", "192.0.2.1"),
        ("20010db80000000000000000000000ab", "2001:db8:0:0:0:0:0:ab"),
        ("7f000001", "127.0.0.1"),
    ],
)
def test_addresses_are_printed_as_java_does(raw: str, text: str) -> None:
    assert address_text(bytes.fromhex(raw)) == text


@pytest.mark.parametrize("text", ["", "127.0.0.1", "host:80", "127.0.0.1:", "127.0.0.1:x", ":80"])
def test_hosts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_host(text)


@pytest.mark.parametrize(
    ("sys_flag", "text"),
    [
        (0, []),
        (0x1, ["compressed:zlib"]),
        (0x101, ["compressed:lz4"]),
        (0x201, ["compressed:zstd"]),
        (0x301, ["compressed:zlib"]),
        (0x401, ["compressed:unknown"]),
        (0x300, []),
        (0x2, ["multi-tags"]),
        (0x4, ["prepared"]),
        (0x8, ["commit"]),
        (0xC, ["rollback"]),
        (0xF0, ["born-v6", "store-v6", "need-unwrap", "inner-batch"]),
    ],
)
def test_flags_in_words(sys_flag: int, text: list[str]) -> None:
    assert flag_names(sys_flag) == text
