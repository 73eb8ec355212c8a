"""Configuration files written by brokers are read, and rebuilt byte for byte."""

import dataclasses
from pathlib import Path

import pytest

from formats.config.files import NAMES, Topics, kind_of, model_of
from formats.errors import BadText
from formats.fastjson.declare import Bean
from formats.versions import V5_3
from rmqtool.rules.releases import RELEASES
from tests.amounts import every
from tests.formats.config_samples import FILES, GOLDEN, WRITTEN_BY, model, named


def test_the_golden_files_have_every_kind() -> None:
    assert {kind_of(path.name) for path in FILES} == {model_of(name) for name in NAMES}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_that_a_broker_wrote_reads_and_rebuilds_byte_for_byte(path: Path) -> None:
    raw = path.read_bytes()
    assert model(path).parse(raw).build(RELEASES[WRITTEN_BY[path.parent.name]].version) == raw


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_keeps_its_meaning_in_the_newest_version(path: Path) -> None:
    read = model(path).parse(path.read_bytes())
    assert model(path).parse(read.build(V5_3)) == read


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_member_of_a_broker_file_is_known(path: Path) -> None:
    def unknown(value: object) -> list[object]:
        if isinstance(value, dict):
            return [member for item in value.values() for member in unknown(item)]
        if isinstance(value, tuple):
            return [member for item in value for member in unknown(item)]
        if isinstance(value, Bean):
            inner = (getattr(value, field.name) for field in dataclasses.fields(value) if field.name != "extra")
            return [*value.extra, *(member for item in inner for member in unknown(item))]
        return []

    assert set(unknown(model(path).parse(path.read_bytes()))) <= {"groupTopicMap"}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    raw = path.read_bytes()
    for length in every(1 + len(raw) // 2000, range(len(raw))):
        with pytest.raises(BadText):
            model(path).parse(raw[:length])


def test_a_shared_map_is_built_in_full() -> None:
    raw = (GOLDEN / "fastjson-1.2.83" / "references.json").read_bytes()
    topics = Topics.parse(raw)
    assert raw.count(b"$ref") == 2
    for name in ("%RETRY%copy-of_order", "Third", "OrderEvents"):
        assert topics.topics[name].attributes == {"message.type": "FIFO"}
    built = topics.build(V5_3)
    assert b"$ref" not in built  # a broker would read it as an attribute of that name
    assert built.count(b'"message.type":"FIFO"') == 3
    assert Topics.parse(built) == topics
