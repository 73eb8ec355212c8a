"""Messages by a text: those that a plain look at every row of the log gives."""

import re
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from formats.primitives import COMPRESSED
from rmqtool.contract import message_row
from rmqtool.errors import BadValue
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.search import pattern as pattern_module
from rmqtool.services.search.grep import PLACES, Match, grep
from rmqtool.services.search.pattern import BadPattern, Pattern, excerpt
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from tests import roles
from tests.conftest import Unpacked
from tests.services.build import TIME, Builder, log_of

STORES = ("broker", "ipv6", "broker-crash", "broker-5.3.3", "broker-5.5.0", "size-field-negative", "head-file-deleted")
PATTERNS = (
    ("order-1", False, False), ("ORDER-1", False, True), (r"order-\d5\b", False, False), ("ab", True, False),
    ("127.0.0.1", True, False), ("WAIT=true", True, False), ("TAGS=vip|^user-7$", False, False), (".", True, False),
    ("nowhere at all", False, False), ("", False, False), ("Größe", False, True),
)  # fmt: skip


def texts_of(row: dict[str, Any]) -> dict[str, list[str]]:
    properties = {n: v for n, v in row["properties"].items() if n not in ("KEYS", "UNIQ_KEY")}
    unique = row["properties"].get("UNIQ_KEY")
    return {
        "body": [row["body"]],
        "key": [*row["keys"], *([unique] if unique else [])],
        "property": [f"{name}={value}" for name, value in properties.items()],
        "host": [row["bornHost"], row["storeHost"]],
    }


def plain(log: CommitLog, text: str, fixed: bool, ignore_case: bool) -> dict[tuple[int, int], tuple[str, ...]]:
    """Places of the text, by physical offset and queue offset of every message."""
    regex = re.compile(re.escape(text) if fixed else text, re.IGNORECASE if ignore_case else 0)
    places: dict[tuple[int, int], tuple[str, ...]] = {}
    for item in log.walk():
        for message in item.messages() if isinstance(item, LocatedRecord) else ():
            texts = texts_of(message_row(message.record, message.physical_offset, "utf8"))
            at = message.physical_offset, message.record.queue_offset
            places[at] = tuple(name for name in PLACES if any(regex.search(each) for each in texts[name]))
    return places


def found_by(log: CommitLog, pattern: Pattern, **more: Any) -> dict[tuple[int, int], tuple[str, ...]]:
    matches = grep(log, pattern, Selection(), **more)
    return {
        (match.message.physical_offset, match.message.record.queue_offset): match.places
        for match in matches
        if isinstance(match, Match)
    }


@pytest.mark.parametrize("case", STORES)
def test_it_is_what_a_look_at_every_row_gives(case: str, golden: Unpacked) -> None:
    log = log_of(golden(case))
    for text, fixed, ignore_case in PATTERNS:
        pattern = Pattern(text, fixed=fixed, ignore_case=ignore_case)
        places = plain(log, text, fixed, ignore_case)
        assert found_by(log, pattern) == {at: names for at, names in places.items() if names}, text
        inverted = found_by(log, pattern, invert=True)
        assert inverted == {at: () for at, names in places.items() if not names}, text
        for place in PLACES:
            alone = found_by(log, pattern, places=(place,))
            assert alone == {at: (place,) for at, names in places.items() if place in names}, (text, place)


@pytest.mark.parametrize("case", ["size-field-negative", "magic-broken-last-file"])
def test_damage_is_that_of_a_walk(case: str, golden: Unpacked) -> None:
    log = log_of(golden(case))
    wanted = [item for item in log.walk() if isinstance(item, Damage)]
    assert [item for item in grep(log, Pattern("order"), Selection()) if isinstance(item, Damage)] == wanted != []


def lines_of(log: CommitLog, text: str, **more: Any) -> Iterator[tuple[str, tuple[str, ...], str | None]]:
    for match in grep(log, Pattern(text, **more), Selection()):
        assert isinstance(match, Match)
        yield match.message.record.topic.decode(), match.places, match.excerpt


def test_compressed_bodies_are_searched_inflated(tmp_path: Path) -> None:
    builder, body = Builder(), b"a needle in here " + b"." * 500
    for topic, packed, kind in (
        ("zlib", zlib.compress(body), 0x300),
        ("lz4", lz4.frame.compress(body), 0x100),
        ("zstd", zstandard.compress(body), 0x200),
        ("broken", b"a needle that does not inflate", 0x300),
    ):
        builder.put(topic, body=packed, sys_flag=COMPRESSED | kind)
    builder.put("plain", body=body)
    log = log_of(builder.write(tmp_path / "store"))
    assert [(topic, places) for topic, places, _text in lines_of(log, "needle")] == [
        (topic, ("body",)) for topic in ("zlib", "lz4", "zstd", "broken", "plain")
    ]


def test_bodies_that_are_no_text_are_searched_byte_by_byte(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("Latin", body="Größe needle".encode("latin-1"))
    builder.put("Bytes", body=b"\x00\xff\xfe needle \x80")
    log = log_of(builder.write(tmp_path / "store"))
    assert [*lines_of(log, "needle")] == [
        ("Latin", ("body",), "Gr\\xf6\\xdfe needle"), ("Bytes", ("body",), "\x00\\xff\\xfe needle \\x80"),
    ]  # fmt: skip
    assert [*lines_of(log, r"\xff\xfe n")] == [("Bytes", ("body",), "\x00\\xff\\xfe needle \\x80")]


def test_a_property_is_name_equals_value(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("A", properties={"formula": "a=b=c", "KEYS": "k=1 k=2"})
    builder.put("B", properties={"formul": "a"})
    builder.put("C", body=b"formula=a=b=c")
    log = log_of(builder.write(tmp_path / "store"))
    assert [*lines_of(log, "formula=a=b", fixed=True)] == [
        ("A", ("property",), "formula=a=b=c"), ("C", ("body",), "formula=a=b=c"),
    ]  # fmt: skip
    assert [*lines_of(log, "^formul=")] == [("B", ("property",), "formul=a")]
    assert [*lines_of(log, "^k=2$")] == [("A", ("key",), "k=2")]


def test_a_literal_that_only_bytes_which_are_no_text_would_show(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("A", properties={"name": "caf\udce9 au lait".encode("utf-8", "surrogateescape").decode("latin-1")})
    at = builder.log.index("café".encode())
    builder.log[at + 3 : at + 5] = b"\xe9e"  # not UTF-8: read as U+FFFD
    log = log_of(builder.write(tmp_path / "store"))
    [item] = log.walk()
    assert isinstance(item, LocatedRecord)
    value = message_row(item.record, 0)["properties"]["name"]
    assert [places for _topic, places, _text in lines_of(log, value, fixed=True)] == [("property",)]


def test_only_messages_of_the_selection(tmp_path: Path) -> None:
    builder = Builder()
    places = [builder.put("Orders", queue_id=number % 2, body=b"needle %d" % number) for number in range(8)]
    log = log_of(builder.write(tmp_path / "store"))

    def bodies(**chosen: Any) -> list[bytes]:
        matches = grep(log, Pattern("needle"), Selection(**chosen))
        return [bytes(match.message.record.body) for match in matches if isinstance(match, Match)]

    assert bodies(queue_ids=(1,)) == [b"needle %d" % number for number in (1, 3, 5, 7)]
    assert bodies(physical=(places[2], places[4])) == [b"needle 2", b"needle 3"]
    assert bodies(since=TIME + 3, until=TIME + 5) == [b"needle 2", b"needle 3"]
    assert bodies(topics=("None",)) == []


def test_what_the_tier_alone_has_is_searched(tmp_path: Path) -> None:
    node = roles.unpack(roles.TIERED, "a", tmp_path)
    log = CommitLog(StoreLayout(str(node.store), load(str(node.conf))))
    stored = sum(1 for item in log.walk() if isinstance(item, LocatedRecord))
    assert len([*grep(log, Pattern(""), Selection())]) == stored + 229


@pytest.mark.parametrize("text", ["(", "[a", "*", "a{99999999999999}", "(?P<a>b)(?P<a>c)"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(text)
    assert Pattern(text, fixed=True).find(f"--{text}") == (2, 2 + len(text))


def test_an_excerpt_shows_what_matched() -> None:
    text = "x" * 50 + "needle" + "y" * 50
    assert excerpt(text, (50, 56)) == "..." + "x" * 30 + "needle" + "y" * 30 + "..."
    assert excerpt("needle", (0, 6)) == "needle"
    assert len(excerpt("z" * 9999, (0, 9999))) < 200


@pytest.mark.parametrize("body", [b"a" * 60 + b"b", b"a" * 60 + b"\xff"])
def test_a_search_that_takes_forever_ends(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_module, "PATIENCE", 0.05)
    builder = Builder()
    builder.put("T", body=b"aaa")
    builder.put("T", body=body)
    log, before = log_of(builder.write(tmp_path)), signal.getsignal(signal.SIGVTALRM)
    matches = grep(log, Pattern("(a+)+$"), Selection(), places=("body",))
    assert isinstance(next(matches), Match)
    with pytest.raises(BadValue, match="takes too long on the message at physical offset"):
        next(matches)
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
