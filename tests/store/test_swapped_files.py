"""Two log files with swapped names: detected and named, and nothing is written without consent."""

from pathlib import Path

import pytest

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.true_names import find_misnamed
from rmqtool.store.recovery.command import plan
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.damage import log_files
from tests.store.findings import check_store
from tests.store.helpers import conf_of, content, tree

PAIRS = [(0, 1), (1, 2), (1, -2), (1, -1)]
MESSAGES = 500


def swap(store: Path, pair: tuple[int, int]) -> None:
    first, second = (log_files(store)[number] for number in pair)
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


@by_turns(7)
@pytest.mark.parametrize("case", ["clean", "crash"])
@pytest.mark.parametrize("pair", PAIRS)
def test_it_is_named_and_does_no_harm(
    pair: tuple[int, int], case: str, golden: Unpacked, golden_copy: Unpacked, tmp_path: Path
) -> None:
    store = golden_copy(case)
    swap(store, pair)
    before, layout = tree(store), StoreLayout(str(store), conf_of(case))
    first, second = (log_files(store)[number] for number in pair)
    assert "log-position" in {finding.code for finding in check_store(layout)}
    for exactly in (False, True):
        text = " ".join(plan(layout, exactly=exactly).warnings)
        assert f"{first}: its records say that it begins at {int(second.name)}" in text or not first.read_bytes().strip(
            b"\0"
        )
        assert f"{second}: its records say that it begins at {int(first.name)}" in text
    result = rmqtool("recover", store, "--yes")
    assert result.code == 4
    assert f"give it the name {first.name} again before anything is written" in result.err
    assert tree(store) == before

    assert rmqtool("salvage", store, tmp_path / "new").code == 0
    log = CommitLog(StoreLayout(str(tmp_path / "new"), conf_of(case)))
    assert sum(isinstance(item, LocatedRecord) for item in log.walk()) == MESSAGES

    assert rmqtool("recover", store, "--yes", "--accept-loss").code == 0
    assert rmqtool("undo", store, "--yes").code == 0
    assert tree(store) == before
    swap(store, pair)
    assert content(store) == content(golden(case))


def test_a_copy_of_a_file_is_none(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    first, *_, last = log_files(store)
    last.with_name(f"{int(last.name) + last.stat().st_size:020d}").write_bytes(first.read_bytes())
    log = CommitLog(StoreLayout(str(store), conf_of("clean")))
    assert find_misnamed(log.segments.files, log.file_size) == []
