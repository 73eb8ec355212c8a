"""A mapped file that cannot be read: one line says which, and where."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the process ends wordless")

# a log's file is cut short when it has been mapped so many times; a bad sector has the same effect
CUT = """
import os, sys
from rmqtool.store.dispatch import batch as dispatch
from rmqtool.store.disk import segments
left, real = int(sys.argv.pop(1)), segments.map_file
if sys.argv.pop(1) == "compiled":
    dispatch.BULK_BYTES = 64
def map_file(path, **options):
    global left
    mapped = real(path, **options)
    left -= "commitlog" in path
    if left == 0 and "commitlog" in path:
        os.truncate(path, 8192)
    return mapped
segments.map_file = map_file
from rmqtool.main import main
main()
"""


@by_turns(13)
@pytest.mark.parametrize("way", ["plain", "compiled"])
@pytest.mark.parametrize("command", [["commitlog", "dump"], ["recover", "--yes"]])
def test_it_is_said_where_a_file_cannot_be_read(command: list[str], way: str, golden_copy: Unpacked) -> None:
    for times in range(1, 12):  # others look at its first bytes only
        store = golden_copy("consumequeue-deleted")
        args = [sys.executable, "-c", CUT, str(times), way, *command, str(store)]
        result = subprocess.run(args, capture_output=True, text=True, check=False, timeout=100)
        if result.returncode == 3:
            break
    stderr = re.fullmatch(
        r"(?:.*\n)?error: (.*): byte (\d+): cannot be read: the file was cut short meanwhile\n",
        result.stderr,
        re.DOTALL,
    )
    assert stderr, result.stderr
    assert Path(stderr[1]).parent == store / "commitlog"
    assert 8192 <= int(stderr[2]) < file_length("consumequeue-deleted")
    assert (store / "abort").exists()
    assert not (store / "consumequeue").exists()


def file_length(case: str) -> int:
    return int(goldens.about(case)["config"]["mappedFileSizeCommitLog"])
