"""The manual's page on formats matches the layouts."""

from pathlib import Path

import pytest
from construct import Bytes, Int8ub, Int32sb, Struct

from formats.explain import page
from formats.explain.page_text import FILES
from formats.layouts import derive
from formats.layouts.docs import leaf_of, since

COMMITTED = Path(__file__).parents[2] / "rmqtool" / "manual" / "formats.md"


def test_the_committed_page_is_what_the_layouts_give() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == page.page()


def test_every_layout_is_shown_and_every_field_explained() -> None:
    shown = {unit.layout for file in FILES for unit in file.units}
    assert shown == set(page._UNITS)
    flat = [[named.name for named in layout.subcons] for _name, layout in derive.LAYOUTS.values()]
    for names in flat:  # the fixed part of a unit stands at its beginning
        assert any([n.name for n in unit.subcons][: len(names)] == names for unit in page._UNITS.values()), names
    for layout in page._UNITS.values():
        for named in layout.subcons:
            assert named.docs or named.name == "computed_size", named.name


def test_offsets_follow_what_comes_before() -> None:
    record = {row.name: row for row in page.rows(page._UNITS["record 1"], "4.x")}
    assert (record["`body_length`"].offset, record["`body_length`"].size) == ("84", "4")
    assert record["`body_length`"].meaning.startswith("B: ")
    assert (record["`body`"].offset, record["`body`"].size, record["`body`"].type) == ("88", "B", "bytes")
    assert record["`properties`"].offset == "91+B+T"
    newer = {row.name: row for row in page.rows(page._UNITS["record 2"], "4.x")}
    assert (newer["`topic_length`"].type, newer["`properties`"].offset) == ("int16", "92+B+T")


def test_a_field_may_be_younger_than_its_file() -> None:
    told = {row.name: row.since for row in page.rows(page._UNITS["checkpoint"], "4.x")}
    assert (told["`physic_msg_timestamp`"], told["`confirm_phy_offset`"]) == ("4.x", "5.1.1")
    (row,) = page.rows(Struct("x" / Int32sb * since("9.9", "meaning")), "4.x")
    assert (row.since, row.meaning) == ("9.9", "meaning")


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(TypeError, match="neither"):
        page.rows(Struct("a" / Struct("b" / Int8ub)), "4.x")
    with pytest.raises(TypeError, match="length that a says"):
        page.rows(Struct("a" / Int8ub, "b" / Bytes(lambda ctx: ctx.a + 1)), "4.x")


def test_names_and_meanings_are_no_part_of_a_type() -> None:
    assert leaf_of("x" / Int32sb * "meaning") is Int32sb
