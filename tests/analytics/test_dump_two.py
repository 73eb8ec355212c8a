"""Two concurrent runs into one output, and stores that change between runs or during one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rmqtool.analytics.dump import dump as dump_module
from rmqtool.analytics.dump import tasks
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.lock import Busy, Claim
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.errors import Refused
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, rows_of, store_of
from tests.analytics.test_dump_again import (
    SIZE,
    Broker,
    a_store,
    killed_in_the_third_file,
    offsets_in,
    offsets_of,
)

ROOT = Path(__file__).parents[2]
# a file system that is not this machine's, as far as one can tell, in a process of its own
ELSEWHERE = """
    import sys
    from pyarrow import fs
    from rmqtool.analytics.remote import files
    opened = fs.SubTreeFileSystem({place!r}, fs.LocalFileSystem())
    files.open_uri = lambda uri: (opened, uri.removeprefix("elsewhere://").partition("?")[0])
"""


def run(code: str, *args: object) -> "subprocess.CompletedProcess[str]":
    call = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(call, env=environ, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def command(place: Path, *args: object) -> "subprocess.CompletedProcess[str]":
    """Run a command in a separate process."""
    code = textwrap.dedent(ELSEWHERE.format(place=str(place))) + "from rmqtool.main import main\nmain()\n"
    return run(code, *args)


def dump(layout: StoreLayout, out: object, **options: Any) -> DumpReport:
    return dump_to_parquet(layout, str(out), DumpOptions(runner="local", **options))


@by_turns(2)
@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("options", [(), ("--since-last",)])
def test_a_second_run_is_refused_whenever_it_comes(
    where: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run is paused after it has read the current state; then another process starts."""
    layout, place = a_store(tmp_path), tmp_path / "place"
    place.mkdir()
    from pyarrow import fs

    from rmqtool.analytics.remote import files

    opened = fs.SubTreeFileSystem(str(place), fs.LocalFileSystem())
    if where == "elsewhere":
        monkeypatch.setattr(files, "open_uri", lambda uri: (opened, uri.removeprefix("elsewhere://")))
    out = "elsewhere://out" if where == "elsewhere" else str(place / "out")
    others = []
    plan = dump_module.plan

    def held_up(*args: Any) -> Any:
        others.append(command(place, "dump-to-parquet", layout.root, out, "--engine", "local", *options))
        return plan(*args)

    monkeypatch.setattr(dump_module, "plan", held_up)
    report = dump(layout, out, since_last=bool(options))
    (other,) = others
    assert other.returncode == 4
    assert "another dump is being written there" in other.stderr
    assert report.rows == 40
    assert offsets_in(place / "out") == offsets_of(layout)
    assert sorted(name for name in os.listdir(place / "out") if name.startswith("_")) == ["_SUCCESS", "_rmqtool.json"]


@pytest.mark.parametrize("options", [{}, {"overwrite": True}])
def test_what_came_meanwhile_is_not_replaced(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain dump locks beside OUT, an incremental one locks OUT."""
    layout, out = a_store(tmp_path), tmp_path / "out"
    real = tasks.run_split
    told = []

    def held_up(job: Any, split: Any) -> Any:
        if not told:
            told.append(command(tmp_path, "dump-to-parquet", layout.root, out, "--engine", "local", "--since-last"))
        return real(job, split)

    monkeypatch.setattr(tasks, "run_split", held_up)
    with pytest.raises(Refused, match="Directory not empty"):
        dump(layout, out, **options)
    assert told[0].returncode == 0
    assert json.loads((out / "_rmqtool.json").read_text())["position"]["next"] > 0
    assert offsets_in(out) == offsets_of(layout)


def test_a_run_that_was_killed_elsewhere_does_not_lock_for_ever(tmp_path: Path) -> None:
    layout, place = a_store(tmp_path), tmp_path / "place"
    place.mkdir()
    code = textwrap.dedent(ELSEWHERE.format(place=str(place))) + textwrap.dedent("""
    import os, signal
    from rmqtool.analytics.dump import dump
    dump.plan = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
    from rmqtool.main import main
    main()
    """)
    args = ("dump-to-parquet", layout.root, "elsewhere://out", "--engine", "local", "--since-last")
    assert run(code, *args).returncode == -signal.SIGKILL
    (claim,) = (place / "out").glob("_rmqtool-claim-*")
    again = command(place, *args)
    assert again.returncode == 0, again.stderr
    assert not claim.exists()
    assert offsets_in(place / "out") == offsets_of(layout)


def test_claims_of_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqtool.analytics.dump import lock as output_lock
    from rmqtool.analytics.remote.files import Folder

    folder = Folder(str(tmp_path))
    claim = tmp_path / f"{output_lock.CLAIM}other.json"
    for text in ('{"host": "far", "machine": "x", "pid": 1, "renewed": 0}', "[]", "{", '{"machine": 7, "pid": "x"}'):
        claim.write_text(text)
        renewals = iter(range(1, 3))
        monkeypatch.setattr(output_lock, "EXPIRED", 1e9)
        monkeypatch.setattr(
            output_lock.time, "sleep", lambda _seconds, renewals=renewals: claim.write_text(str(next(renewals)))
        )
        with pytest.raises(Busy):  # it is seen to be renewed
            Claim(folder)
        assert os.listdir(tmp_path) == [claim.name]
        monkeypatch.setattr(output_lock, "EXPIRED", -1.0)
        ours = Claim(folder)  # it is not
        assert not claim.exists()
        claim.write_text(text)
        with pytest.raises(Busy):  # who was thought dead is not: neither goes on blindly
            ours.check()
        ours.release()
        claim.unlink()
    assert os.listdir(tmp_path) == []


# -- the store changes ------------------------------------------------------------------------------------------------


def test_a_killed_run_does_not_go_on_with_what_the_store_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, out = a_store(tmp_path), tmp_path / "out"
    with killed_in_the_third_file(monkeypatch):
        dump(layout, out)
    for number in range(2):  # the last of each file is another
        path = Path(layout.commit_log_paths[0]) / f"{SIZE * number:020d}"
        data = log_of(["A", "B"] * 5, base=SIZE * number, born_timestamp=5)
        path.write_bytes(data.ljust(SIZE, b"\0"))
    report = dump(layout, out)
    assert (report.resumed, report.rows) == (0, 40)
    rows = rows_of(out)
    assert {row["bornTimestamp"] for row in rows[:20]} == {5}


def test_a_log_that_is_cut_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is published, and the next run has everything."""
    broker, out = Broker(tmp_path), tmp_path / "out"
    for _message in range(40):
        broker.put()
    real = tasks.run_split
    path = sorted(Path(broker.layout.commit_log_paths[0]).iterdir())[-1]

    def cut(job: Any, split: Any) -> Any:
        done = real(job, split)
        if split.last:
            path.write_bytes(bytes(SIZE))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "run_split", cut)
        with pytest.raises(Refused, match="was changed while it was read"):
            dump(broker.layout, out, since_last=True)
    assert not out.exists()
    dump(broker.layout, out, since_last=True)
    assert offsets_in(out) == offsets_of(broker.layout)


def test_two_stores_into_one_output(tmp_path: Path) -> None:
    """Also if the second store begins after the first one's end, which looks like expired log."""
    layout, out = a_store(tmp_path / "a"), tmp_path / "out"
    dump(layout, out, since_last=True)
    far = store_of(
        tmp_path / "b", *(log_of(["C"] * 5, base=SIZE * number) for number in (7, 8)), size=SIZE, base=7 * SIZE
    )
    before = sorted(os.listdir(out))
    with pytest.raises(Refused, match="of another store"):
        dump(far, out, since_last=True)
    moved = tmp_path / "moved"
    shutil.copytree(layout.root, moved)
    assert dump(StoreLayout(str(moved)), out, since_last=True).rows == 0  # the same log at another place
    assert sorted(os.listdir(out)) == before


def test_messages_where_there_were_none(tmp_path: Path) -> None:
    """A log that began with damage was dumped, cut, and rewritten."""
    layout, out = store_of(tmp_path, b"x" * SIZE, b"", size=SIZE), tmp_path / "out"
    assert dump(layout, out, since_last=True).rows == 0
    (Path(layout.commit_log_paths[0]) / f"{0:020d}").write_bytes(log_of(["A"] * 5).ljust(SIZE, b"\0"))
    with pytest.raises(Refused, match="does not go on"):
        dump(layout, out, since_last=True)


def test_a_full_disk_leaves_the_output_as_it_was(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "none", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        layout = a_store(tmp_path)
        dump(layout, disk / "out", since_last=True)
        room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "full").write_bytes(bytes(room))
        before = offsets_in(disk / "out")
        path = Path(layout.commit_log_paths[0]) / f"{4 * SIZE:020d}"
        path.write_bytes(log_of(["A"] * 9, base=4 * SIZE).ljust(SIZE, b"\0"))
        told = command(tmp_path, "dump-to-parquet", layout.root, disk / "out", "--engine", "local", "--since-last")
        assert told.returncode != 0
        assert "No space left on device" in told.stderr
        assert offsets_in(disk / "out") == before
        (disk / "full").unlink()
        assert dump(layout, disk / "out", since_last=True).rows == 9
        assert offsets_in(disk / "out") == offsets_of(layout)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)  # Spark may still be closing its files
