"""``rebuild STORE files`` fixes files that a broker refuses to load, and can be undone."""

from pathlib import Path

from rmqtool.store.layout.paths import StoreLayout
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store


def contents(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def codes(store: Path) -> set[str]:
    return {finding.code for finding in check_store(StoreLayout(str(store)))}


def test_a_short_last_file_is_filled_up_and_cut_again(golden_copy: Unpacked) -> None:
    store = golden_copy("short-last-file")
    before = contents(store)
    *others, last = sorted((store / "commitlog").iterdir())
    length, had = others[0].stat().st_size, last.read_bytes()
    shown = rmqtool("rebuild", store, "files", "--dry-run")
    assert (shown.code, contents(store)) == (0, before)
    assert f"fill commitlog/{last.name} up with zeros from {len(had)} to {length} bytes" in shown.out
    modified = last.stat().st_mtime_ns
    result = rmqtool("rebuild", store, "files", "--yes")
    assert (result.code, result.err) == (0, "1 file put right\n")
    assert last.read_bytes() == had.ljust(length, b"\0")
    assert last.stat().st_mtime_ns == modified
    assert "file-size" not in codes(store)
    assert rmqtool("rebuild", store, "files", "--yes").err == "nothing to put right\n"
    assert rmqtool("undo", store, "--yes").code == 0
    assert contents(store) == before


def test_what_is_in_the_way_leaves_the_store_and_is_kept(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    queue = next(path for path in (store / "consumequeue").glob("*/*"))
    for folder in (store / "commitlog", queue):
        (folder / "notes.txt").write_text("who put this here?")
    (store / "abort").touch()  # in any state
    before = contents(store)
    assert "file-foreign" in codes(store)
    result = rmqtool("rebuild", store, "files", "--yes")
    assert (result.code, result.err) == (0, "2 files put right\n")
    assert "file-foreign" not in codes(store)
    assert [path.read_text() for path in Path(f"{store}.rmqtool").rglob("notes.txt")] == ["who put this here?"] * 2
    assert rmqtool("undo", store, "--yes").code == 0
    assert contents(store) == before


def test_an_empty_last_file_goes(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    last = max((store / "commitlog").iterdir())
    base = int(last.name) + last.stat().st_size
    (store / "commitlog" / f"{base:020d}").touch()
    assert rmqtool("rebuild", store, "files", "--yes").code == 0
    assert not (store / "commitlog" / f"{base:020d}").exists()


def test_a_short_file_before_the_last_one_is_put_right_as_by_recover(golden_copy: Unpacked) -> None:
    store, other = golden_copy("clean"), golden_copy("clean")
    first = min((store / "commitlog").iterdir())
    length = first.stat().st_size
    for path in (first, other / "commitlog" / first.name):
        with path.open("r+b") as file:
            file.truncate(1000)
    before = contents(store)
    result = rmqtool("rebuild", store, "files", "--yes")
    assert (result.code, result.err.splitlines()[-1]) == (0, "1 file put right")
    assert f"{first}: its last {length - 1000} bytes are missing" in result.err
    assert "file-size" not in codes(store)
    assert rmqtool("recover", other, "--yes", "--accept-loss").code == 0
    assert (other / "commitlog" / first.name).read_bytes() == first.read_bytes()
    assert rmqtool("undo", store, "--yes").code == 0
    assert contents(store) == before


def test_what_only_a_person_can_put_right_is_said(golden_copy: Unpacked) -> None:
    """A message beyond the length of the other files makes that length doubtful."""
    store = golden_copy("clean")
    first, second, *_ = sorted((store / "commitlog").iterdir())
    with first.open("ab") as file:
        file.write(second.read_bytes()[:2000])
    before = contents(store)
    result = rmqtool("rebuild", store, "files", "--yes")
    assert (result.code, contents(store)) == (1, before)
    assert f"warning: {first}: {first} is longer than the others" in result.err


def test_a_directory_in_the_way_is_not_touched(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    (store / "commitlog" / "old").mkdir()
    result = rmqtool("rebuild", store, "files", "--yes")
    assert (result.code, "move it away; nothing was changed" in result.err) == (4, True)
