"""The brokers' JSON dialect: what is read, what is refused and where; writing gives exactly a broker's bytes."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from formats.errors import BadText
from formats.fastjson import read
from formats.fastjson.dialects import BODY, BROWSER, FILE
from formats.fastjson.read import loads, loads_plain, loads_prefix, locate
from formats.fastjson.values import MAX_NUMBER, Inline, Key, Real
from formats.fastjson.write import dumps
from tests.amounts import by_turns, every
from tests.formats.fastjson_samples import COMPACT, GOLDEN, PRETTY, named


def test_the_golden_files_are_there() -> None:
    assert len(PRETTY) >= 21
    assert len(COMPACT) == 2


@pytest.mark.parametrize("path", PRETTY, ids=named)
def test_a_file_that_java_wrote_reads_and_rebuilds_byte_for_byte(path: Path) -> None:
    raw = path.read_bytes()
    assert dumps(loads(raw)) == raw


@pytest.mark.parametrize("path", COMPACT, ids=named)
def test_a_compact_file_that_java_wrote_reads_and_rebuilds_byte_for_byte(path: Path) -> None:
    raw = path.read_bytes()
    assert dumps(loads(raw), BROWSER) == raw
    assert b"\n" not in raw


def test_compact_writing_agrees_with_java_on_every_layout() -> None:
    folder = GOLDEN / "fastjson-1.2.83"
    value = loads((folder / "dialect.json").read_bytes())
    assert dumps(value, BROWSER) == (folder / "dialect-compact.json").read_bytes()


@by_turns(3)
@pytest.mark.parametrize("path", PRETTY + COMPACT, ids=named)
def test_a_file_cut_anywhere_is_refused_at_a_byte_of_it(path: Path) -> None:
    raw = path.read_bytes()
    for length in every(1 + len(raw) // 2000, range(len(raw))):
        with pytest.raises(BadText) as caught:
            loads(raw[:length])
        assert 0 <= caught.value.at <= length


def test_the_layout_of_an_offset_table() -> None:
    raw = b'{\n\t"offsetTable":{\n\t\t"TopicA@GroupA":{0:12,1:5\n\t\t},\n\t\t"%RETRY%GroupA@GroupA":{0:7\n\t\t}\n\t}\n}'
    value: Any = {"offsetTable": {"TopicA@GroupA": {0: 12, 1: 5}, "%RETRY%GroupA@GroupA": {0: 7}}}
    assert loads(raw) == value
    assert dumps(value) == raw


LAYOUTS: list[tuple[str, Any, str, str]] = [
    ("empty object", {}, "{}", "{}"),
    ("empty list", [], "[]", "[]"),
    ("empty one-line list", Inline(), "[]", "[]"),
    ("text keys", {"b": 1, "a": None}, '{\n\t"b":1,\n\t"a":null\n}', '{"b":1,"a":null}'),
    ("integer keys", {0: 1, -2: True}, "{0:1,-2:true\n}", '{"0":1,"-2":true}'),
    ("mixed keys", {"a": 1, 2: 3, "b": 4}, '{\n\t"a":1,2:3,\n\t"b":4\n}', '{"a":1,"2":3,"b":4}'),
    ("integer key to object", {2: {"a": 1}}, '{2:{\n\t\t"a":1\n\t}\n}', '{"2":{"a":1}}'),
    ("integer key to empty", {0: {}, 1: []}, "{0:{},1:[]\n}", '{"0":{},"1":[]}'),
    ("integer key to list", {0: [1, 2]}, "{0:[\n\t\t1,\n\t\t2\n\t]\n}", '{"0":[1,2]}'),
    ("list of objects", [{"a": 1}], '[\n\t{\n\t\t"a":1\n\t}\n]', '[{"a":1}]'),
    ("one-line list", {"p": Inline([3, 77])}, '{\n\t"p":[3,77]\n}', '{"p":[3,77]}'),
    (
        "objects in a set",
        {"s": Inline([{"a": 1}, {"b": 2}])},
        '{\n\t"s":[{\n\t\t"a":1\n\t},{\n\t\t"b":2\n\t}]\n}',
        '{"s":[{"a":1},{"b":2}]}',
    ),
    (
        "escapes",
        '"\\/\b\f\n\r\t\x00\x1f\x7f\x9f',
        r'"\"\\/\b\f\n\r\t\u0000\u001F\u007F\u009F"',
        r'"\"\\\/\b\f\n\r\t\u0000\u001F\u007F\u009F"',
    ),
    ("not ASCII", "é订\U0001f600\xa0\u2027", '"é订\U0001f600\xa0\u2027"', r'"\u00E9\u8BA2\uD83D\uDE00\u00A0\u2027"'),
    ("line separators", "\u2028\u2029", r'"\u2028\u2029"', r'"\u2028\u2029"'),
    ("lone surrogate", "\ud800", r'"\uD800"', r'"\uD800"'),
    (
        "widest a browser has",
        [2**53 - 1, 1 - 2**53],
        "[\n\t9007199254740991,\n\t-9007199254740991\n]",
        "[9007199254740991,-9007199254740991]",
    ),
    (
        "wider than a browser has",
        Inline([2**53, -(2**53)]),
        "[9007199254740992,-9007199254740992]",
        '["9007199254740992","-9007199254740992"]',
    ),
    ("number as it was written", Inline([Real("1.10"), Real("1E+400")]), "[1.10,1E+400]", "[1.10,1E+400]"),
]


@pytest.mark.parametrize(
    ("value", "pretty", "compact"), [case[1:] for case in LAYOUTS], ids=[case[0] for case in LAYOUTS]
)
def test_layout(value: Any, pretty: str, compact: str) -> None:
    assert dumps(value).decode() == pretty
    assert dumps(value, BROWSER).decode() == compact


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (120.0, "120.0"),
        (123456.789, "123456.789"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e21, "1.0E21"),
        (0.001, "0.001"),
        (0.0123, "0.0123"),
        (0.000999, "9.99E-4"),
        (1.5e-7, "1.5E-7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_double_is_written_as_java_writes_it(number: float, text: str) -> None:
    assert dumps(number).decode() == text


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**4000, {10**4000: 1}])
def test_a_number_that_no_reader_takes_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError):
        dumps(value)


@pytest.mark.parametrize("value", [b"bytes", {True: 1}, {None: 1}, (1,), {"a": {1.5: 2}}, [object()]])
def test_what_json_does_not_have_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


ACCEPTED: list[tuple[str, bytes, Any]] = [
    ("bare integer keys", b"{0:1,-5:2}", {0: 1, -5: 2}),
    ("bare and quoted keys differ", b'{0:1,"0":2}', {0: 1, "0": 2}),
    ("leading zeroes", b"{007:08}", {7: 8}),
    (
        "bare identifiers",
        b"{a:1,_b$9:2,\xe8\xae\xa2:3,null:4,true:5}",
        {"a": 1, "_b$9": 2, "订": 3, "null": 4, "true": 5},
    ),
    ("single quotes", b"{'a':'it\"s'}", {"a": 'it"s'}),
    ("comma before brace", b"{0:1,}", {0: 1}),
    ("comma before bracket", b"[1,2 , ]", [1, 2]),
    ("block comments", b"/*{*/{/**/a/***/:/* * / */1/*,*/}/*\n*/", {"a": 1}),
    ("line comments", b"//x\n{//y\r\n0//}\n:1//\n}//", {0: 1}),
    ("blanks", b" \t\r\n\f\b[ \f1\b]\f", [1]),
    ("byte-order mark", b"\xef\xbb\xbf{}", {}),
    ("control characters behind", b"{}\x00\x1a\x7f \n\x00", {}),
    ("words", b"[true,false,null]", [True, False, None]),
    ("integers", b"[0,-0,9223372036854775808,-9223372036854775809]", [0, 0, 2**63, -(2**63) - 1]),
    ("reals", b"[1.0,-1.5E3,1e-7,1E+400]", [1.0, -1500.0, 1e-7, math.inf]),
    ("named escapes", rb'"\b\t\n\f\F\r\v\"\'\\\/"', "\b\t\n\f\f\r\v\"'\\/"),
    ("numbered escapes", rb'"\u00e9\u8BA2\x41\0\7\101"', "é订A\0\a\x0101"),
    ("surrogate pair", rb'"\ud83d\ude00"', "\U0001f600"),
    ("half a pair", rb'"\ud83d\ud83d\ude00\ude00"', "\ud83d\U0001f600\ude00"),
    ("escaped backslash before u", rb'"\\u0041"', "\\u0041"),
    ("raw control characters", b'"a\nb\x00c\td"', "a\nb\0c\td"),
    ("the last of equal keys", b'{"a":1,0:2,"a":3,0:4}', {"a": 3, 0: 4}),
    ("other roots", b"'x'", "x"),
    ("not a path", b'{"a":{"$ref":"somewhere"}}', {"a": {"$ref": "somewhere"}}),
    ("a member called $ref", b'{"$ref":"$.a","b":1}', {"$ref": "$.a", "b": 1}),
    ("a $ref that is not text", b'{"$ref":5}', {"$ref": 5}),
]


@pytest.mark.parametrize(("raw", "value"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_reading_accepts(raw: bytes, value: Any) -> None:
    assert repr(loads(raw)) == repr(value)  # repr tells 1 from True and 1.0, and shows the order of keys


def test_the_last_of_equal_keys_stands_where_it_was_written() -> None:
    assert list(loads(b'{"a":1,"b":2,"a":3}').items()) == [("b", 2), ("a", 3)]  # type: ignore[union-attr]


def test_a_list_remembers_that_it_was_written_on_one_line() -> None:
    value: Any = loads(b'{"inline":[1,\n2], "lines":[\n1], "commented":[//\n1], "empty":[]}')
    assert [type(item) for item in value.values()] == [Inline, list, list, list]


def test_a_real_keeps_its_characters() -> None:
    value: Any = loads(b"1.50E+2")
    assert value == 150.0
    assert isinstance(value, Real)
    assert value.text == "1.50E+2"
    assert dumps(copy.deepcopy(value)) == b"1.50E+2"


@pytest.mark.parametrize(
    "raw", [b'"\xff"', b'"\xe8\xae"', b'"\xd6\xd0 GBK"', b'{"\xed\xa0\x80":"\xc0\x80"}', b'"\xc3\\u00e9\xa9"']
)
def test_bytes_that_are_not_utf8_survive(raw: bytes) -> None:
    assert b"".join(dumps(loads(raw)).split()) == b"".join(raw.replace(b"\\u00e9", "é".encode()).split())


def test_an_escape_cannot_forge_a_byte_that_is_not_utf8() -> None:
    assert loads(rb'"\udcff\udc80\udbff"') == "\ufffd\ufffd\udbff"


REFUSED: list[tuple[bytes, int, str]] = [
    (b"", 0, "ends where a value"),
    (b" \n\t", 3, "ends where a value"),
    (b"\xef\xbb\xbf", 3, "ends where a value"),
    (b"\x00\x00", 0, "'\\x00' where a value"),
    (b"{", 1, "ends where a key"),
    (b'{"a"', 4, "ends where ':'"),
    (b'{"a":', 5, "ends where a value"),
    (b'{"a":1', 6, "ends where ',' or '}'"),
    (b'{"a":1,', 7, "ends where a key"),
    (b"[", 1, "ends where a value"),
    (b"[1", 2, "ends where ',' or ']'"),
    (b'{"a', 1, "closing quote"),
    (b"['a\"]", 1, "closing quote"),
    (b'["a\\"]', 1, "closing quote"),
    (b"{}x", 2, "follow the end"),
    (b'{"a":1} }', 8, "follow the end"),
    (b"{}{}", 2, "follow the end"),
    (b"\xef\xbb\xbf{}\xef\xbb\xbf", 5, "follow the end"),
    (b'{"\xe8\xae\xa2":1}x', 9, "follow the end"),
    (b'"\xff"x', 3, "follow the end"),
    (b"{}/*", 2, "follow the end"),
    (b"{/*", 1, "'/' where a key"),
    (b"/", 0, "'/' where a value"),
    (b"{0 1}", 3, "'1' where ':'"),
    (b"{1.5:1}", 2, "'.' where ':'"),
    (b"{-:1}", 1, "'-' where a key"),
    (b"{,}", 1, "',' where a key"),
    (b"[,]", 1, "',' where a value"),
    (b"[1,,2]", 3, "',' where a value"),
    (b"[1 2]", 3, "'2' where ',' or ']'"),
    (b"{0:1 1:2}", 5, "'1' where ',' or '}'"),
    (b"[1}", 2, "'}' where ',' or ']'"),
    (b"{0:1]", 4, "']' where ',' or '}'"),
    (b"[}", 1, "'}' where a value"),
    (b"truth", 0, "'t' where a value"),
    (b"True", 0, "'T' where a value"),
    (b"NaN", 0, "'N' where a value"),
    (b"+1", 0, "'+' where a value"),
    (b".5", 0, "'.' where a value"),
    (b"[1.]", 2, "'.' where ',' or ']'"),
    (b"[1e]", 2, "'e' where ',' or ']'"),
    (b"[0x10]", 2, "'x' where ',' or ']'"),
    (rb'"ab\q"', 3, "an escape"),
    (rb'"\u12G4"', 1, "an escape"),
    (rb'"\x4"', 1, "an escape"),
    (b"[" + b"9" * (MAX_NUMBER + 1) + b"]", 1, "a number of 601 characters"),
    (b"{" + b"9" * 10**5 + b":1}", 1, "a number of 100000 characters"),
    (b"1." + b"9" * 10**5, 0, "a number of 100002 characters"),
    (b"[" * (FILE.depth + 1), FILE.depth, "nested deeper"),
    (b"[" * 10**5, FILE.depth, "nested deeper"),
    (b'{"a":' * 10**5, 5 * FILE.depth, "nested deeper"),
]


@pytest.mark.parametrize(("raw", "at", "reason"), REFUSED, ids=[repr(case[0][:24]) for case in REFUSED])
def test_reading_refuses(raw: bytes, at: int, reason: str) -> None:
    with pytest.raises(BadText) as caught:
        loads(raw)
    assert (caught.value.at, reason in caught.value.reason) == (at, True), caught.value


def test_the_deepest_value_reads_and_is_written() -> None:
    raw = b"[" * FILE.depth + b"]" * FILE.depth
    value = loads(raw)
    assert dumps(value, BROWSER) == raw
    with pytest.raises(ValueError, match="nested deeper"):
        dumps([value])


def test_the_longest_number_reads_and_is_written() -> None:
    raw = b"-" + b"9" * 500
    assert loads(raw) == 1 - 10**500
    assert dumps(loads(raw)) == raw


LARGE = 200_000


@by_turns(3)
@pytest.mark.parametrize(
    "raw",
    [
        b'"' + b"\\n" * LARGE,
        b"{" + b"a" * LARGE,
        b"/**/" * LARGE,
        b"/*" + b"*" * LARGE,
        b"[" + b"/*" * LARGE,
        b"//\n" * LARGE,
        b"[" + b"0," * LARGE,
        b"{" + b'"a":{},' * LARGE,
        b'{"a":{},"b":[' + b'{"$ref":"$.a"},' * (LARGE // 10),
        b'{"$ref":"$' + b".a" * LARGE + b'"}',
        b'{"$ref":"$.' + b"\\\\" * LARGE + b'"}',
        b"{}" + b"\x00" * LARGE + b"x",
        b"\xff" * LARGE,
    ],
    ids=lambda raw: repr(raw[:16]),
)
def test_large_damage_is_refused_in_linear_time(raw: bytes) -> None:
    with pytest.raises(BadText):  # in fractions of a second; anything quadratic would be noticed
        loads(raw)


def test_a_stale_end_can_be_left_aside() -> None:
    short, long = dumps({"offsetTable": {"a@b": {0: 7}}}), dumps({"offsetTable": {"a@b": {0: 7}, "c@d": {0: 12345}}})
    stale = short + long[len(short) :]
    with pytest.raises(BadText, match="follow the end") as caught:
        loads(stale)
    assert caught.value.at == len(short) + len(long[len(short) :]) - len(long[len(short) :].lstrip())
    assert loads_prefix(stale) == ({"offsetTable": {"a@b": {0: 7}}}, len(short))


def test_the_end_of_a_prefix_is_counted_in_bytes() -> None:
    assert loads_prefix(b'\xef\xbb\xbf "\xe8\xae\xa2\xff" \n garbage') == ("订\udcff", 10)
    assert loads_prefix(b"12 ") == (12, 2)
    with pytest.raises(BadText):
        loads_prefix(b"[1")


def test_locate_finds_the_byte_of_a_value() -> None:
    raw = b'{"\xe8\xae\xa2": [1, {0:\t"x"}], /* */ "b" : {"$ref":"$.\xe8\xae\xa2[1]"}, "b2":{}}'
    assert locate(raw, []) == 0
    assert locate(raw, ["订"]) == raw.index(b"[1")
    assert locate(raw, ["订", 1]) == raw.index(b"{0")
    assert locate(raw, ["订", 1, 0]) == raw.index(b'"x"')
    assert locate(raw, ["b"]) == raw.index(b'{"$ref')
    assert locate(raw, ["b", 0]) == raw.index(b'"x"')
    absent: list[list[Key]] = [["c"], ["订", 2], ["订", 1, 0, 0], ["b", "$ref"], ["b2", 0]]
    for missing in absent:
        assert locate(raw, missing) == 0
    assert locate(b" " + raw, []) == 1


KEY = '{"brokerName":"a","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{{KEY}:{{"minOffset":0,"maxOffset":-5}},{{"queueId":1}}:{{"lag":9}}}}',
        f'{{{KEY}:{{"minOffset":1}},{KEY}:{{"minOffset":2}}}}',
        f'{{{KEY}:{{"a":1,"a":2}}}}',
        '{{"a":1,"a":2}:{"b":1}}',
        f'{{{KEY}:{{"minOffset":007}}}}',
        f'{{{KEY}:{{"minOffset":1}},"plain":1}}',
        f'{{{KEY}:{{"minOffset":1}},}}',
        f'{{{KEY}:{{"topic":"a}}:{{b","tab":"\t"}}}}',
        f'{{{KEY}:{{"topic":"a\\u0041"}}}}',
        f'{{{KEY}:{{"tps":1.5}}}}',
        f'{{{KEY}: {{"minOffset":1}}}}',
        f'{{"offsetTable":{{{KEY}:{{"minOffset":1}}}},"consumeTps":0.0}}',
        f'{{{KEY}:{{"minOffset":1}}',
    ],
)
def test_a_table_is_read_at_once_as_entry_by_entry(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> object:
        try:
            return repr(loads(text.encode(), BODY))
        except BadText as err:
            return err.at, err.reason

    at_once = outcome()
    monkeypatch.setattr(read._Reader, "_flat_table", lambda _self, _at: None)
    assert at_once == outcome()


def test_tables_of_queues_take_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read._Reader, "_object_key", lambda _self, at: pytest.fail(f"entry by entry from {at} on"))
    table = loads(f'{{"offsetTable":{{{KEY}:{{"minOffset":0}}}}}}'.encode(), BODY)
    assert table == {"offsetTable": {(("brokerName", "a"), ("queueId", 0), ("topic", "T")): {"minOffset": 0}}}


def test_the_depth_of_a_long_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame may be nothing but brackets; the standard parser gets what is flat, however much it is."""
    deep = b"[" * (1 << 20)
    with pytest.raises(BadText, match=f"nested deeper than {BODY.depth} levels at byte {BODY.depth}"):
        loads_plain(deep + deep.replace(b"[", b"]"))
    monkeypatch.setattr(read, "loads", None)
    assert loads_plain(b"[" + b"{}," * BODY.depth * 2 + b"{}]") == [{}] * (BODY.depth * 2 + 1)
