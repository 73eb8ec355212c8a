"""Temporary directories are removed by the process that created them, or, after a kill, by the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from rmqtool.analytics.local.scratch import Scratch, scratch_dir

HOLD = "import sys, time\nfrom rmqtool.analytics.local.scratch import Scratch\n"
HOLD += "print(Scratch('sql', sys.argv[1]).path, flush=True)\ntime.sleep(600)"


def holder(above: Path) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(above)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        return process, output.readline().strip()


def test_what_a_killed_process_leaves_goes_and_nothing_else(tmp_path: Path) -> None:
    dead, left = holder(tmp_path)
    alive, kept = holder(tmp_path)
    others = ["rmqtool-abcdefgh", "rmqtool-spark-abcdefgh", "rmqtool-sql-1-abcdefgh.d", "other-sql-1-abcdefgh"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / "rmqtool-sql-1-aaaaaaaa").mkdir()
    (tmp_path / "rmqtool-sql-1-aaaaaaaa").chmod(0o755)  # of another mode than ours have
    (tmp_path / "rmqtool-sql-1-bbbbbbbb").symlink_to(tmp_path / "other-sql-1-abcdefgh")
    os.makedirs(f"{left}/below/more")
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    try:
        with scratch_dir("sort", str(tmp_path)) as made:
            assert os.path.isdir(made)
            assert not os.path.exists(left)
            assert os.path.isdir(kept)
        assert not os.path.exists(made)
    finally:
        alive.kill()
        alive.wait()
    there = {*others, "rmqtool-sql-1-aaaaaaaa", "rmqtool-sql-1-bbbbbbbb", os.path.basename(kept)}
    assert {path.name for path in tmp_path.iterdir()} == there


def test_another_users_are_left(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        return
    dead, left = holder(tmp_path)
    dead.kill()
    dead.wait()
    os.chown(left, 12345, 12345)
    Scratch("sql", str(tmp_path)).remove()
    assert os.path.isdir(left)


def test_few_open_files() -> None:
    script = "import resource\nfrom rmqtool.store.disk.mapping import raise_open_files\nraise_open_files(1024)\n"
    script += "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    for option, wanted in (("-S", 1024), ("", 256)):
        command = f'ulimit {option} -n 256 && exec "$0" -c "$1"'
        result = subprocess.run(
            ["bash", "-c", command, sys.executable, script], capture_output=True, text=True, check=True
        )
        assert int(result.stdout) == wanted
