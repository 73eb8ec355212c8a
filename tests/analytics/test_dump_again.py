"""Dumps that continue: after a killed run, and from the end of the last one, while a broker writes."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as pafs

from formats.message.build import build_blank
from rmqtool.analytics.dump import tasks
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.remote import files
from rmqtool.errors import BadValue, Refused, RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, record, rows_of, store_of

ROOT = Path(__file__).parents[2]
SIZE = 3000  # of a commit-log file


def dump(layout: StoreLayout, out: Path, **options: Any) -> DumpReport:
    return dump_to_parquet(layout, str(out), DumpOptions(runner="local", **options))


def offsets_in(out: Path) -> list[int]:
    return [row["physicalOffset"] for row in rows_of(out)]


def offsets_of(layout: StoreLayout) -> list[int]:
    return [item.physical_offset for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]


def a_store(folder: Path, files: int = 4) -> StoreLayout:
    return store_of(folder, *(log_of(["A", "B"] * 5, base=SIZE * number) for number in range(files)), size=SIZE)


class Broker:
    """Appends to a log like a broker."""

    def __init__(self, folder: Path) -> None:
        self.layout = store_of(folder, b"", size=SIZE)
        self.number = 0
        self.offsets: list[int] = []  # of whole messages
        self._base = self._at = 0

    def _write(self, data: bytes, at: int | None = None) -> None:
        path = Path(self.layout.commit_log_paths[0]) / f"{self._base:020d}"
        with path.open("r+b") as file:
            file.seek(self._at if at is None else at)
            file.write(data)

    def put(self, parts: tuple[float, ...] = ()) -> None:
        """Append a message, or parts of a damaged one."""
        data = record("T", self._at, base=self._base, number=self.number, body=b"b" * (self.number * 37 % 400))
        if self._at + len(data) + 8 > SIZE:
            self._write(build_blank(SIZE - self._at))
            self._base, self._at = self._base + SIZE, 0
            (Path(self.layout.commit_log_paths[0]) / f"{self._base:020d}").write_bytes(bytes(SIZE))
            return self.put(parts)
        for part in parts:
            self._write(data[: int(len(data) * part)])
        if not parts:
            self._write(data)
            self.offsets.append(self._base + self._at)
            self._at += len(data)
            self.number += 1
        return None


# -- what a run that was killed leaves --------------------------------------------------------------------------------


class Killed(BaseException):
    """Raised to simulate a kill."""


@contextmanager
def killed_in_the_third_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The run in the ``with`` block is killed when it comes to the third file of the log."""
    real = tasks.run_split

    def run_split(job: Any, split: Any) -> Any:
        if split.base == 2 * SIZE:
            raise Killed
        return real(job, split)

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "run_split", run_split)
        with pytest.raises(Killed):
            yield


@pytest.mark.parametrize("partition_by", [(), ("topic",)])
def test_a_killed_run_is_gone_on_with(
    partition_by: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = a_store(tmp_path)
    out = tmp_path / "out"
    real, read = tasks.run_split, []

    def run(job: Any, split: Any) -> Any:
        read.append(split.base + split.start)
        if len(read) == 3:
            (Path(job.folder) / "part-half.parquet").write_bytes(b"half")
            raise Killed
        return real(job, split)

    monkeypatch.setattr(tasks, "run_split", run)
    with pytest.raises(Killed):
        dump(layout, out, partition_by=partition_by)
    assert not out.exists()
    monkeypatch.setattr(tasks, "run_split", real)
    report = dump(layout, out, partition_by=partition_by)
    assert (report.resumed, report.rows) == (2, 40)
    assert offsets_in(out) == offsets_of(layout)
    assert sorted(os.listdir(tmp_path)) == ["out", "store"]
    assert not [name for name in os.listdir(out) if name.startswith("_") and name not in ("_SUCCESS", "_rmqtool.json")]


def test_what_is_left_of_another_run_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = a_store(tmp_path)
    for name in ("other", "damaged"):
        with killed_in_the_third_file(monkeypatch):
            dump(layout, tmp_path / name)
    assert dump(layout, tmp_path / "other", topics=("A",)).resumed == 0
    assert len(rows_of(tmp_path / "other")) == 20
    staging = tmp_path / ".damaged.rmqtool-new"
    (part,) = staging.glob(f"part-{SIZE:020d}*")
    part.write_bytes(b"cut")
    min((staging / "_done").iterdir()).write_text("{")
    assert dump(layout, tmp_path / "damaged").resumed == 0
    assert offsets_in(tmp_path / "damaged") == offsets_of(layout)


def test_the_last_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path)
    for _message in range(3):
        broker.put()
    real = tasks.run_splits

    def run(*args: Any) -> Any:
        real(*args)
        raise Killed

    monkeypatch.setattr(tasks, "run_splits", run)
    with pytest.raises(Killed):
        dump(broker.layout, tmp_path / "out")
    monkeypatch.setattr(tasks, "run_splits", real)
    broker.put()
    assert dump(broker.layout, tmp_path / "out").rows == 4


@by_turns(3)
@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_finishes(tmp_path: Path) -> None:
    layout = a_store(tmp_path, 12)
    random.seed(5)
    call = [sys.executable, "-m", "rmqtool.main", "dump-to-parquet", layout.root, str(tmp_path / "out")]
    call += ["--engine", "local", "--since-last", "--partition-by", "topic"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = 0
    for _time in range(12):
        process = subprocess.Popen(call, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.25, 0.7))
        killed += process.poll() is None
        process.kill()
        process.wait()
        if (tmp_path / "out" / "_SUCCESS").exists():
            assert offsets_in(tmp_path / "out") == offsets_of(layout)
    result = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, killed > 0) == (0, True), result.stderr
    assert offsets_in(tmp_path / "out") == offsets_of(layout)


# -- from where the last one ended ------------------------------------------------------------------------------------


def test_each_message_once_while_a_broker_writes(tmp_path: Path) -> None:
    broker, out = Broker(tmp_path), tmp_path / "out"
    random.seed(3)
    expected = 0
    for _run in range(25):
        for _message in range(random.randrange(6)):
            broker.put()
        if random.random() < 0.6:
            broker.put((random.choice([0.03, 0.1, 0.5, 0.97]),))  # a record that is half there
        report = dump(broker.layout, out, since_last=True, partition_by=("topic",), split_bytes=700)
        assert report.rows == broker.number - expected
        assert (report.damaged, report.expired_bytes) == (0, 0)
        expected = broker.number
        assert offsets_in(out) == broker.offsets
    assert expected > 40
    manifest = json.loads((out / "_rmqtool.json").read_text())
    assert {file["path"] for file in manifest["files"]} == {str(p.relative_to(out)) for p in out.rglob("*.parquet")}
    assert manifest["position"]["next"] == report.position


def test_a_record_that_is_written_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, parts in enumerate([(0.5,), (0.1,), (0.99,)]):
        broker, out = Broker(tmp_path / str(number)), tmp_path / f"out{number}"
        broker.put()
        broker.put(parts)
        real = tasks.run_split
        left = 1

        def run(job: Any, split: Any, real: Any = real, broker: Broker = broker) -> Any:
            nonlocal left
            done = real(job, split)
            if left:
                left = 0
                broker.put()
                broker.put()
            return done

        monkeypatch.setattr(tasks, "run_split", run)
        report = dump(broker.layout, out)
        monkeypatch.setattr(tasks, "run_split", real)
        rows = rows_of(out)
        assert (report.damaged, report.rows) == (0, 3)
        assert [row["physicalOffset"] for row in rows] == offsets_of(broker.layout)
        assert [row["tags"] for row in rows] == ["t0", "t1", "t2"]


def test_damage_is_told_once(tmp_path: Path) -> None:
    broker, out = Broker(tmp_path), tmp_path / "out"
    broker.put()
    broker.put((0.5,))
    assert dump(broker.layout, out, since_last=True).damaged == 0
    commitlog = Path(broker.layout.commit_log_paths[0])
    (commitlog / f"{SIZE:020d}").write_bytes(log_of(["A"] * 3, base=SIZE).ljust(SIZE, b"\0"))
    report = dump(broker.layout, out, since_last=True)
    assert (report.rows, report.damaged) == (3, 1)
    assert dump(broker.layout, out, since_last=True).damaged == 0
    assert offsets_in(out) == offsets_of(broker.layout)


def test_expired_log_is_told(tmp_path: Path) -> None:
    layout, out = a_store(tmp_path, 2), tmp_path / "out"
    assert dump(layout, out, since_last=True).rows == 20
    commitlog = Path(layout.commit_log_paths[0])
    for number in (2, 3, 4):
        (commitlog / f"{number * SIZE:020d}").write_bytes(log_of(["C"] * 4, base=number * SIZE).ljust(SIZE, b"\0"))
    for number in (0, 1, 2):
        (commitlog / f"{number * SIZE:020d}").unlink()
    report = dump(layout, out, since_last=True)
    end = len(log_of(["A", "B"] * 5, base=SIZE))
    assert (report.rows, report.expired_bytes) == (8, 2 * SIZE - end)
    assert dump(layout, out, since_last=True).expired_bytes == 0


def test_another_log_is_refused(tmp_path: Path) -> None:
    layout, out = a_store(tmp_path), tmp_path / "out"
    dump(layout, out, since_last=True)
    before = sorted(os.listdir(out))
    shorter = a_store(tmp_path / "shorter", 2)
    other = store_of(tmp_path / "other", *(log_of(["A", "X"] * 5, base=SIZE * n) for n in range(4)), size=SIZE)
    empty = store_of(tmp_path / "empty")
    for bad in (shorter, other, empty):
        with pytest.raises(Refused, match="does not go on"):
            dump(bad, out, since_last=True)
    for options in ({"topics": ("A",)}, {"partition_by": ("day",)}):
        with pytest.raises(Refused, match="was begun with"):
            dump(layout, out, since_last=True, **options)
    with pytest.raises(Refused, match="not empty"):
        dump(layout, out)
    dump(layout, tmp_path / "plain")
    with pytest.raises(Refused, match="no position"):
        dump(layout, tmp_path / "plain", since_last=True)
    assert sorted(os.listdir(out)) == before


@pytest.mark.parametrize("options", [{"overwrite": True}, {"since": 5}, {"stop_offset": 9}])
def test_what_does_not_go_together(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadValue):
        dump(a_store(tmp_path), tmp_path / "out", since_last=True, **options)


def test_a_failure_leaves_the_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, out = Broker(tmp_path), tmp_path / "out"
    broker.put()

    def full(self: Any, batch: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tasks.PartWriter, "write", full)
        with pytest.raises(RmqError, match="No space left"):
            dump(broker.layout, out, since_last=True)
    assert os.listdir(tmp_path) == ["store"]
    dump(broker.layout, out, since_last=True)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    broker.put()
    with monkeypatch.context() as patch:
        patch.setattr(tasks.PartWriter, "write", full)
        with pytest.raises(RmqError, match="No space left"):
            dump(broker.layout, out, since_last=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert dump(broker.layout, out, since_last=True).rows == 1


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_files_of_a_size(tmp_path: Path) -> None:
    layout, out = a_store(tmp_path, 1), tmp_path / "out"
    report = dump(layout, out, row_group_bytes=1, file_bytes=1, partition_by=("hour", "topic"))
    assert report.files == 2  # one batch, two topics
    assert offsets_in(out) == offsets_of(layout)
    assert {row["hour"] for row in rows_of(out)} == {"2023-11-14-22"}


def test_progress_is_told(tmp_path: Path) -> None:
    layout, seen = a_store(tmp_path), []
    dump_to_parquet(layout, str(tmp_path / "out"), DumpOptions(runner="local"), lambda *told: seen.append(told))
    assert seen == [(SIZE * number, 4 * SIZE) for number in (1, 2, 3, 4)]


# -- elsewhere --------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of ``elsewhere://``, a file system that looks remote."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    opened = pafs.SubTreeFileSystem(str(place), pafs.LocalFileSystem())
    monkeypatch.setattr(files, "open_uri", lambda uri: (opened, uri.removeprefix("elsewhere://").partition("?")[0]))
    return place


def test_an_output_elsewhere(elsewhere: Path, tmp_path: Path) -> None:
    layout, uri, out = a_store(tmp_path), "elsewhere://a/out?option=1", elsewhere / "a" / "out"

    def run(**options: Any) -> DumpReport:
        return dump_to_parquet(layout, uri, DumpOptions(runner="local", **options))

    report = run(partition_by=("topic",))
    assert report.out == "elsewhere://a/out"  # options may be secrets
    assert offsets_in(out) == offsets_of(layout)
    assert sorted(os.listdir(out)) == ["_SUCCESS", "_rmqtool.json", "topicDir=A", "topicDir=B"]
    with pytest.raises(Refused, match="not empty"):
        run()
    run(topics=("A",), overwrite=True)
    assert {row["topic"] for row in rows_of(out)} == {"A"}
    (out / "notes.txt").write_text("mine")
    with pytest.raises(Refused, match="files that are not"):
        run(overwrite=True)
    assert sorted(os.listdir(elsewhere)) == ["a"]


def test_an_output_elsewhere_grows_and_is_gone_on_with(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, out = Broker(tmp_path), elsewhere / "out"

    def run() -> DumpReport:
        return dump_to_parquet(broker.layout, "elsewhere://out", DumpOptions(runner="local", since_last=True))

    for _message in range(30):
        broker.put()
    with killed_in_the_third_file(monkeypatch):
        run()
    assert run().resumed == 2
    assert offsets_in(out) == broker.offsets
    broker.put()
    assert (run().rows, run().rows) == (1, 0)
    assert offsets_in(out) == broker.offsets
