"""The output directory: what is refused, what is replaced, and what survives a failure."""

import os
from pathlib import Path

import pytest

from rmqtool.analytics import output
from rmqtool.analytics.output import MANIFEST, SUCCESS, OutputDir, is_output
from rmqtool.errors import Refused


def fill(folder: Path, name: str = "part-0.parquet", text: str = "old") -> Path:
    (folder / "day=1").mkdir(parents=True)
    (folder / "day=1" / name).write_text(text)
    (folder / SUCCESS).touch()
    return folder


def put(target: OutputDir, text: str = "new") -> None:
    target.create()
    Path(target.staging, "day=2").mkdir()
    Path(target.staging, "day=2", "part-1.parquet").write_text(text)
    Path(target.staging, MANIFEST).write_text("{}")
    Path(target.staging, SUCCESS).touch()


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


NEW = [SUCCESS, MANIFEST, "day=2/part-1.parquet"]


@pytest.fixture(params=["beside", "inside"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output directory, where the parent may be written to or, as for a mount point, not."""
    path = tmp_path / "parent" / "out"
    path.mkdir(parents=True)
    if request.param == "inside":
        monkeypatch.setattr(os.path, "ismount", lambda name: name == str(path))
    return path


def test_nothing_shows_before_it_is_published(place: Path) -> None:
    target = OutputDir(str(place), [])
    put(target)
    assert [path for path in place.iterdir() if not path.name.startswith("_")] == []
    target.publish()
    target.discard()
    assert tree(place) == sorted(NEW)
    assert os.listdir(place.parent) == ["out"]


def test_discard_takes_everything_back(place: Path) -> None:
    target = OutputDir(str(place), [])
    put(target)
    target.discard()
    assert tree(place.parent) == []


def test_a_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    target = OutputDir(str(tmp_path / "a" / "b" / "out"), [])
    put(target)
    target.publish()
    assert tree(tmp_path / "a" / "b" / "out") == sorted(NEW)


def test_an_older_output_is_replaced_when_told_so(place: Path) -> None:
    fill(place)
    with pytest.raises(Refused, match="not empty"):
        OutputDir(str(place), [])
    target = OutputDir(str(place), [], overwrite=True)
    put(target)
    assert "day=1/part-0.parquet" in tree(place)
    target.publish()
    assert tree(place) == sorted(NEW)
    assert os.listdir(place.parent) == ["out"]


def test_an_older_output_survives_a_failed_run(place: Path) -> None:
    fill(place)
    before = tree(place)
    target = OutputDir(str(place), [], overwrite=True)
    put(target)
    target.discard()
    assert tree(place) == before


def test_an_older_output_survives_a_failed_swap(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place)
    before = tree(place)
    target = OutputDir(str(place), [], overwrite=True)
    put(target)
    rename = os.rename

    def failing(source: str, to: str) -> None:
        # the new output's last step
        if source in (target.staging, os.path.join(target.staging, SUCCESS)) and not os.path.exists(to):
            raise OSError(28, "No space left on device")
        rename(source, to)

    monkeypatch.setattr(output.os, "rename", failing)
    with pytest.raises(Refused, match="No space left"):
        target.publish()
    monkeypatch.undo()
    target.discard()
    assert tree(place) == before
    assert os.listdir(place.parent) == ["out"]


def test_the_store_is_never_written_to(tmp_path: Path) -> None:
    store, log = tmp_path / "data" / "store", tmp_path / "disk2" / "log"
    for folder in (store, log):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(store)
    for bad in (store, store / "out", tmp_path / "link" / "x" / "y", log / "out"):
        with pytest.raises(Refused, match="must not lie in the store"):
            OutputDir(str(bad), [str(store), str(log)], overwrite=True)
    with pytest.raises(Refused, match="lies in it"):
        OutputDir(str(tmp_path / "data"), [str(store), str(log)], overwrite=True)
    OutputDir(str(tmp_path / "data" / "store2"), [str(store)])


@pytest.mark.parametrize("foreign", ["notes.txt", "commitlog/0", ".bashrc", "day=1/x.csv", "src/a.parquet"])
def test_only_an_output_is_replaced(foreign: str, tmp_path: Path) -> None:
    place = fill(tmp_path / "out")
    (place / foreign).parent.mkdir(exist_ok=True)
    (place / foreign).touch()
    with pytest.raises(Refused, match="other things"):
        OutputDir(str(place), [], overwrite=True)


def test_what_counts_as_an_output(tmp_path: Path) -> None:
    assert is_output(fill(tmp_path / "a"))
    plain = tmp_path / "b"
    plain.mkdir()
    assert not is_output(plain)
    (plain / "x.parquet").touch()
    (plain / ".x.parquet.crc").touch()
    assert is_output(plain)
    (plain / "y.parquet").symlink_to(plain / "x.parquet")
    assert not is_output(plain)


def test_home_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(fill(tmp_path / "home")))
    with pytest.raises(Refused, match="other things"):
        OutputDir(str(tmp_path / "home"), [], overwrite=True)


def test_a_file_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(Refused, match="Not a directory"):
        OutputDir(str(tmp_path / "out"), [], overwrite=True)
    with pytest.raises(Refused):
        OutputDir(str(tmp_path / "out" / "deeper"), []).create()


def test_leftovers_of_a_failed_task_do_not_stay(tmp_path: Path) -> None:
    target = OutputDir(str(tmp_path / "out"), [])
    put(target)
    Path(target.staging, "day=3").mkdir()
    Path(target.staging, "day=3", "part-1-0001.parquet").touch()
    Path(target.staging, "_123.parquet").touch()
    target.keep_only(["day=2/part-1.parquet"])
    assert tree(Path(target.staging)) == ["day=2/part-1.parquet"]
    assert not Path(target.staging, "day=3").exists()
