"""Names that no broker uses, and dangling links: reported or ignored, never a crash or a hang."""

import os
from pathlib import Path

import pytest

from rmqtool.store.disk.directories import list_dir
from rmqtool.store.disk.segments import Segments, offset_name
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.index.reader import BadIndex, open_index
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import conf_of


@pytest.mark.parametrize("name", ["9223372036854775807", "9223372036854775808", "99999999999999999999", "x", "", "-1"])
def test_names_that_are_no_offset(name: str, golden_copy: Unpacked) -> None:
    assert offset_name(name) is None
    if not name:
        return
    store = golden_copy("clean")
    first = store / "commitlog" / f"{0:020d}"
    first.rename(first.with_name(name))
    layout = StoreLayout(str(store))
    assert [os.path.basename(path) for path in layout.commit_log().foreign] == [name]
    assert "file-foreign" in {finding.code for finding in check_store(layout)}
    assert not plan(layout, exactly=True).loadOk


def test_links_that_lead_in_a_circle(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    for folder in ("commitlog", "index", "config", "consumequeue", "consumequeue/TopicA/0"):
        (store / folder / "20261120000000000").symlink_to("20261120000000000")
    (entry,) = (entry for entry in list_dir(str(store / "index")) if entry.name == "20261120000000000")
    assert not entry.is_file()
    assert not entry.is_dir()
    layout = StoreLayout(str(store))
    assert [path.rsplit("/", 1)[1] for path in Segments.of(layout.commit_log_paths).foreign] == ["20261120000000000"]
    assert {finding.file for finding in check_store(layout) if finding.code == "file-foreign"} == {
        "commitlog/20261120000000000", "consumequeue/TopicA/0/20261120000000000",
    }  # fmt: skip
    assert not plan(layout, exactly=True).loadOk


def test_an_index_file_too_short_for_its_slots(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    path = next((store / "index").iterdir())
    os.truncate(path, 100)
    (result,) = (f for f in open_index(StoreLayout(str(store), conf_of("clean"))) if f.path == str(path))
    assert isinstance(result, BadIndex)
    assert "100 bytes long: too short for 112 hash slots" in result.reason


def test_new_index_names_are_later_than_all_where_that_can_be(tmp_path: Path) -> None:
    builder = IndexBuilder([], (10, 20), lambda: str(tmp_path / "staged"))
    name = builder.new_name("")
    assert len(name) == 17
    for _ in range(50):
        later = builder.new_name(name)
        assert later > name
        assert int(later) - int(name) < 1_000_000_000
        name = later
    for strange in ("٣", "9" * 30, "99999999999999999", "20991231235959999", "x"):
        made = builder.new_name(strange)
        assert made.isdecimal()
        assert len(made) == 17
    assert builder.new_name("20991231235959999") > "20991231235959999"
