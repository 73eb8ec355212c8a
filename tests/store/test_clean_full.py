"""``clean`` without free space, and with the log on another file system."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from tests.cli.running import rmqtool
from tests.store.dying import killed
from tests.store.helpers import tree
from tests.store.test_change_between import SIZES, conf

__all__ = ["conf"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A separate small file system."""
    place = tmp_path / "small"
    place.mkdir()
    result = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)], check=False, capture_output=True
    )
    if result.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(store: Path) -> None:
    with Store.create(store, broker_conf=SIZES) as opened:
        opened.append_many([NewMessage(topic="t", body=b"x" * 1000) for _ in range(500)])


def expired(store: Path) -> int:
    return len(list((store / "commitlog").iterdir())) - 1


def test_for_good_on_a_full_disk(small: Path, conf: Path) -> None:
    # the store is made elsewhere: while it is open it needs room to spare
    store = small / "store"
    fill(small.parent / "store")
    shutil.copytree(small.parent / "store", store)
    (store / "lock").touch()
    with open(small / "rest", "wb", buffering=0) as rest:
        try:
            while True:
                rest.write(bytes(4096))
        except OSError:
            pass
    args = ["clean", store, "--hours", "0", "--yes", "--broker-conf", conf]
    assert os.statvfs(small).f_bavail == 0
    assert rmqtool(*args).code == 4
    files = expired(store)
    killed(-3, *args, "--delete")
    assert expired(store) == files - 1 or expired(store) == files - 2
    result = rmqtool(*args, "--delete")
    assert result.code == 0, result
    assert expired(store) == 0
    assert os.statvfs(small).f_bavail * os.statvfs(small).f_frsize > 400_000
    assert sorted(os.listdir(small)) == ["rest", "store"]
    assert rmqtool("check", store, "--broker-conf", conf).code == 0


def test_the_log_on_another_file_system(small: Path, tmp_path: Path, conf: Path) -> None:
    store = tmp_path / "store"
    fill(store)
    (store / "commitlog").rename(tmp_path / "log")
    shutil.copytree(tmp_path / "log", small / "log")
    (store / "commitlog").symlink_to(small / "log")
    first = small / "log" / f"{0:020d}"
    first.write_bytes(b"")
    os.truncate(first, 1 << 16)  # nothing but a hole
    before = tree(small)
    args = ["clean", store, "--hours", "0", "--files", "3", "--yes", "--broker-conf", conf]
    assert rmqtool(*args).code == 0
    assert len(tree(small)) == len(before) - 3
    (kept,) = Path(f"{store}.rmqtool").glob(f"*/before/commitlog/{0:020d}")
    assert kept.stat().st_blocks == 0
    assert rmqtool("undo", store, "--yes").code == 0
    assert tree(small) == before
    assert first.stat().st_blocks == 0
