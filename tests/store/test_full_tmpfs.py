"""A store on a full tmpfs: holes in its files can be read, though not mapped."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.cli.running import process
from tests.sources import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux mounts it")
_ROOM = 2 << 20


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tmpfs"
    place.mkdir()
    args = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(args, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def copy_with_holes(store: Path, to: Path) -> None:
    """Copy a file with its zero pages as holes."""
    for path in store.rglob("*"):
        target = to / path.relative_to(store)
        if path.is_dir():
            target.mkdir(parents=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes()
        with target.open("wb") as file:
            file.truncate(len(data))
            for at in range(0, len(data), 4096):
                if data[at : at + 4096].strip(b"\0"):
                    file.seek(at)
                    file.write(data[at : at + 4096])


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    assert not os.statvfs(place).f_bavail


@by_turns(3)
@pytest.mark.parametrize(
    "command", [["check"], ["commitlog", "dump", "-o", "ndjson"], ["recover", "--dry-run"], ["topic", "list"]]
)
def test_holes_are_read_where_they_cannot_be_mapped(command: list[str], tmpfs: Path) -> None:
    source, store = ROOT / "examples" / "store", tmpfs / "store"
    copy_with_holes(source, store)
    fill(tmpfs)
    expected, actual = process(*command, source), process(*command, store)
    assert (actual.code, actual.err) == (expected.code, expected.err)
    assert actual.out.replace(str(store), "") == expected.out.replace(str(source), "")
