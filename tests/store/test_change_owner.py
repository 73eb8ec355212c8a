"""Root changes another user's store under a restrictive umask: that user can still open everything."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.store.changes.undo import undo
from rmqtool.store.disk.durable import link_aside, move
from tests.cli.running import RMQTOOL, ROOT
from tests.store.helpers import tree
from tests.store.test_change_between import conf, torn

__all__ = ["conf", "torn"]
USER, GROUP = 12_345, 54_321
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def theirs(torn: Path) -> Iterator[Path]:
    """A store of another user, accessible to that user."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    store = Path(shutil.move(torn, place / "store"))
    for path in (store, *store.rglob("*")):
        os.chown(path, USER, GROUP)
        path.chmod(0o2750 if path.is_dir() else 0o640)
    yield store
    shutil.rmtree(place)


def undone_by_them(store: Path) -> int:
    """Undo in a process of that user; returns its exit code."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(GROUP)
            os.setuid(USER)
            code = 0 if undo(str(store)).applied else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def narrow() -> Iterator[None]:
    old = os.umask(0o077)
    yield
    os.umask(old)


def wrong(*roots: Path) -> list[str]:
    """Files and directories with a wrong owner or mode."""
    result = []
    for path in (path for root in roots for path in (root, *root.rglob("*"))):
        about = path.lstat()
        mode = about.st_mode & 0o777
        wanted = (0o750,) if path.is_dir() else (0o640,)
        if (about.st_uid, about.st_gid) != (USER, GROUP) or mode not in wanted:
            result.append(f"{path} {about.st_uid}:{about.st_gid} {mode:o}")
    return result


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("lost", [False, True])
def test_all_stays_theirs(lost: bool, theirs: Path, conf: Path, tmp_path: Path) -> None:
    if lost:
        shutil.rmtree(theirs / "consumequeue")
        shutil.rmtree(theirs / "index")
    before = tree(theirs)
    result = subprocess.run(
        [*RMQTOOL, "recover", str(theirs), "--yes", "--broker-conf", str(conf)],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    home = Path(f"{theirs}.rmqtool")
    assert [text for text in wrong(theirs, home) if not text.startswith(f"{theirs}/lock ")] == []
    # and the user puts it back without root
    (theirs / "lock").unlink()
    assert undone_by_them(theirs) == 0
    assert {**tree(theirs), "lock": None} == {**before, "lock": None}


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("known", [False, True])
def test_what_run_writes_is_theirs(known: bool, theirs: Path, conf: Path, tmp_path: Path) -> None:
    """The files with delay offsets: a broker's, and new ones in a new directory."""
    shutil.rmtree(theirs / "config", ignore_errors=True)
    if known:
        (theirs / "config").mkdir()
        (theirs / "config").chmod(0o750)
        (theirs / "config/delayOffset.json").write_text('{"offsetTable":{}}')
        (theirs / "config/delayOffset.json").chmod(0o640)
        for path in (theirs / "config", theirs / "config/delayOffset.json"):
            os.chown(path, USER, GROUP)
    (tmp_path / "lines").write_text(json.dumps({"topic": "Late", "body": "x", "properties": {"DELAY": "1"}}))
    for arguments in (("recover", "--yes"), ("append", str(tmp_path / "lines")), ("run", "--until", "delivered")):
        command = [*RMQTOOL, arguments[0], str(theirs), *arguments[1:], "--broker-conf", str(conf)]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        assert result.returncode == 0, result.stderr
    assert (theirs / "config/delayOffset.json").stat().st_size > 20
    assert (theirs / "config/delayOffset.json.bak").exists() == known
    assert wrong(theirs) == []


@pytest.mark.usefixtures("narrow")
def test_attributes_and_holes_go_where_files_go(theirs: Path, tmp_path: Path) -> None:
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no other file system")
    other = Path("/dev/shm") / f"rmqtool-{os.getpid()}"
    other.mkdir()
    try:
        if other.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("no other file system")
        file = theirs / "commitlog" / "00000000000000065536"
        with open(file, "wb") as out:
            out.seek(1 << 20)
            out.write(b"x")
            out.truncate(64 << 20)
        os.chown(file, USER, GROUP)
        file.chmod(0o604)
        os.utime(file, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
        try:
            os.setxattr(file, "user.backup", b"weekly")
        except OSError:
            attributes = False
        else:
            attributes = True
        for source, target in ((file, other / "a"), (other / "a", tmp_path / "back")):
            move(str(source), str(target))
            status = target.stat()
            assert not source.exists()
            assert status.st_size == 64 << 20
            assert status.st_blocks * 512 < 1 << 20
            assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (USER, GROUP, 0o604)
            assert status.st_mtime_ns == 1_600_000_000_123_456_789
        if attributes and b"user.backup" in map(os.fsencode, os.listxattr(tmp_path / "back")):
            assert os.getxattr(tmp_path / "back", "user.backup") == b"weekly"
        (tmp_path / "link").symlink_to("nowhere")
        link_aside(str(tmp_path / "link"), str(other / "link"))
        assert os.readlink(other / "link") == "nowhere"
    finally:
        shutil.rmtree(other)


def test_undo_from_another_file_system_keeps_the_owner(theirs: Path, conf: Path) -> None:
    from rmqtool.store.recovery.command import recover
    from tests.store.test_change_between import layout_of

    other = Path("/dev/shm") / f"rmqtool-undo-{os.getpid()}"
    before = tree(theirs)
    try:
        recover(layout_of(theirs), backup=str(other))
        assert undo(str(theirs), str(other)).applied
        assert {**tree(theirs), "lock": None} == {**before, "lock": None}
        assert [text for text in wrong(theirs, other) if not text.startswith(f"{theirs}/lock ")] == []
    finally:
        shutil.rmtree(other, ignore_errors=True)
