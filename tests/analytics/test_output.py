"""The output directory: what is refused, what is replaced, and what survives a failure."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.analytics.dump import output
from rmqtool.analytics.dump.output import MANIFEST, SUCCESS, DumpOutput, is_output, manifest_of, open_output
from rmqtool.analytics.remote.files import Folder
from rmqtool.errors import BadValue, Refused


def fill(folder: Path, name: str = "part-0.parquet", text: str = "old") -> Path:
    (folder / "day=1").mkdir(parents=True)
    (folder / "day=1" / name).write_text(text)
    (folder / SUCCESS).touch()
    return folder


def put(target: DumpOutput, text: str = "new", name: str = "part-1") -> dict[str, Any]:
    """Write a file like a task; returns its description."""
    assert not target.begin(RUN)
    staging = Path(target.staging.path)
    (staging / "day=2").mkdir()
    (staging / "day=2" / f"{name}.parquet").write_text(text)
    return {"files": [{"path": f"day=2/{name}.parquet"}]}


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


RUN = {"run": 1}
NEW = [SUCCESS, MANIFEST, "day=2/part-1.parquet"]


@pytest.fixture(params=["beside", "inside"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output directory, with a writable parent or, as for a mount point, a read-only one."""
    path = tmp_path / "parent" / "out"
    path.mkdir(parents=True)
    if request.param == "inside":
        monkeypatch.setattr(os.path, "ismount", lambda name: os.path.basename(name) == "out")
    return path


def test_nothing_shows_before_it_is_published(place: Path) -> None:
    target = open_output(str(place), [])
    manifest = put(target)
    assert [path for path in place.iterdir() if not path.name.startswith("_")] == []
    target.publish(manifest)
    target.discard()
    assert tree(place) == sorted(NEW)
    assert os.listdir(place.parent) == ["out"]


def test_discard_takes_everything_back(place: Path) -> None:
    target = open_output(str(place), [])
    put(target)
    target.discard()
    assert tree(place.parent) == []


def test_a_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    target = open_output(str(tmp_path / "a" / "b" / "out"), [])
    target.publish(put(target))
    assert tree(tmp_path / "a" / "b" / "out") == sorted(NEW)


def test_an_older_output_is_replaced_when_told_so(place: Path) -> None:
    fill(place)
    with pytest.raises(Refused, match="not empty"):
        open_output(str(place), [])
    target = open_output(str(place), [], overwrite=True)
    manifest = put(target)
    assert "day=1/part-0.parquet" in tree(place)
    target.publish(manifest)
    assert tree(place) == sorted(NEW)
    assert os.listdir(place.parent) == ["out"]


def test_an_older_output_survives_a_failed_run(place: Path) -> None:
    fill(place)
    before = tree(place)
    target = open_output(str(place), [], overwrite=True)
    put(target)
    target.discard()
    assert tree(place) == before


def test_an_older_output_survives_a_failed_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fill(tmp_path / "parent" / "out")
    before = tree(place)
    target = open_output(str(place), [], overwrite=True)
    manifest = put(target)
    rename = os.rename

    def failing(source: str, to: str) -> None:
        # the new output's last step
        if source == target.staging.path and not os.path.exists(to):
            raise OSError(28, "No space left on device")
        rename(source, to)

    monkeypatch.setattr(output.os, "rename", failing)
    with pytest.raises(Refused, match="No space left"):
        target.publish(manifest)
    monkeypatch.undo()
    target.discard()
    assert tree(place) == before
    assert os.listdir(place.parent) == ["out"]


class Killed(BaseException):
    """Raised to simulate a kill."""


STEPS = ("move", "write", "delete", "delete_dir")


def publish_killed_at(target: DumpOutput, manifest: dict[str, Any], step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Publish, with a kill before a step; returns whether it was reached."""
    left = step

    def killing(real: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return real(*args, **options)

        return run

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(Folder, name, killing(getattr(Folder, name)))
        for name in ("rename", "rmdir"):
            patch.setattr(output.os, name, killing(getattr(os, name)))
        patch.setattr(output.shutil, "rmtree", killing(shutil.rmtree))
        try:
            target.publish(manifest)
        except Killed:
            target.leave()
            return True
    return False


@pytest.mark.parametrize("grow", [False, True])
def test_killed_anywhere_it_is_the_old_or_the_new_output(
    grow: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "day=2/part-1.parquet"
    new = sorted([*NEW, "day=1/part-0.parquet"] if grow else NEW)
    for step in range(60):
        out = place.parent / str(step) / "out"
        old = tree(fill(out))
        target = open_output(str(out), [], overwrite=not grow, grow=grow)
        killed = publish_killed_at(target, put(target), step, monkeypatch)
        seen = tree(out) if out.exists() else []
        if SUCCESS in seen:  # what looks whole is whole
            assert [name for name in seen if name.endswith(".parquet") and not name.startswith("_")] in (
                [name for name in old if name.endswith(".parquet")],
                [name for name in new if name.endswith(".parquet")],
            )
        again = open_output(str(out), [], overwrite=not grow, grow=grow)
        resumed = again.begin(RUN)
        kept = [name for name in tree(out) if not name.startswith("_rmqtool-")]
        assert kept in (old, new)
        if resumed:
            assert kept == old
            assert (Path(again.staging.path) / file).exists()
            again.publish({"files": [{"path": file}]})
            assert tree(out) == new
        again.discard()
        again.leave()
        assert os.listdir(out.parent) == ["out"]
        if not killed:
            assert kept == new
            assert manifest_of(str(out)) == {"files": [{"path": file}]}
            return
    raise AssertionError("it never came to its end")


def test_a_file_system_that_cannot_sync_directories(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    target = open_output(str(place), [])
    target.publish(put(target))
    assert tree(place) == sorted(NEW)
    monkeypatch.setattr(os, "fsync", lambda fd: os.close(-1))
    target = open_output(str(place), [], overwrite=True)
    with pytest.raises(Refused, match="Bad file descriptor"):
        target.begin(RUN)
    assert tree(place) == sorted(NEW)


def test_two_runs_do_not_share_a_place(place: Path) -> None:
    target = open_output(str(place), [])
    put(target)
    other = open_output(str(place), [])
    with pytest.raises(Refused, match="another dump is being written"):
        other.begin(RUN)
    other.discard()
    target.leave()
    assert other.begin(RUN)
    assert (Path(other.staging.path) / "day=2" / "part-1.parquet").exists()
    other.leave()
    assert not open_output(str(place), []).begin({"run": 2})
    assert list(Path(other.staging.path).rglob("*.parquet")) == []


def test_a_uri_of_this_machine_is_a_path(tmp_path: Path) -> None:
    target = open_output(f"file://{tmp_path}/out", [])
    target.publish(put(target))
    assert tree(tmp_path / "out") == sorted(NEW)
    with pytest.raises(Refused, match="must not lie in the store"):
        open_output(f"file://{tmp_path}/out/x", [str(tmp_path)])
    for bad in ("nosuch://host/path", f"{tmp_path}/\udcff", "file:///x\0"):
        with pytest.raises(BadValue):
            open_output(bad, [])


def test_the_store_is_never_written_to(tmp_path: Path) -> None:
    store, log = tmp_path / "data" / "store", tmp_path / "disk2" / "log"
    for folder in (store, log):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(store)
    for bad in (store, store / "out", tmp_path / "link" / "x" / "y", log / "out"):
        with pytest.raises(Refused, match="must not lie in the store"):
            open_output(str(bad), [str(store), str(log)], overwrite=True)
    with pytest.raises(Refused, match="lies in it"):
        open_output(str(tmp_path / "data"), [str(store), str(log)], overwrite=True)
    open_output(str(tmp_path / "data" / "store2"), [str(store)])


@pytest.mark.parametrize("foreign", ["notes.txt", "commitlog/0", ".bashrc", "day=1/x.csv", "src/a.parquet"])
def test_only_an_output_is_replaced(foreign: str, tmp_path: Path) -> None:
    place = fill(tmp_path / "out")
    (place / foreign).parent.mkdir(exist_ok=True)
    (place / foreign).touch()
    with pytest.raises(Refused, match="files that are not"):
        open_output(str(place), [], overwrite=True)


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
    with pytest.raises(Refused, match="files that are not"):
        open_output(str(tmp_path / "home"), [], overwrite=True)


def test_a_file_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(Refused, match="Not a directory"):
        open_output(str(tmp_path / "out"), [], overwrite=True)
    with pytest.raises(Refused):
        open_output(str(tmp_path / "out" / "deeper"), []).begin(RUN)


def test_leftovers_of_a_failed_task_do_not_stay(tmp_path: Path) -> None:
    target = open_output(str(tmp_path / "out"), [])
    manifest = put(target)
    staging = Path(target.staging.path)
    (staging / "day=3").mkdir()
    (staging / "day=3" / "part-1-0001.parquet").touch()
    (staging / "_123.parquet").touch()
    target.publish(manifest)
    assert tree(tmp_path / "out") == sorted(NEW)
    assert not (tmp_path / "out" / "day=3").exists()
