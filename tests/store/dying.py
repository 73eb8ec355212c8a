"""Run commands as real processes that get a signal at a given step of changing a store."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.running import ROOT, Result

# steps count from the moment at which the change is written down: from then on the store is half done
_DRIVER = """
import os, signal, sys
number, at, times = (int(word) for word in sys.argv[1:4])
count, begun, at = 0, at < 0, abs(at)
def wrap(name):
    real = getattr(os, name)
    def step(*args, **kwargs):
        global count, begun
        if begun:
            count += 1
            if at <= count < at + times:
                os.kill(os.getpid(), number)
        done = real(*args, **kwargs)
        begun = begun or (name == "replace" and str(args[1]).endswith("manifest.json"))
        return done
    setattr(os, name, step)
for name in ("replace", "rename", "link", "unlink", "mkdir", "rmdir", "pwrite", "ftruncate", "utime", "fsync"):
    wrap(name)
from rmqtool.main import main
sys.argv[:] = ["rmqtool", *sys.argv[4:]]
main()
"""


def ended(
    number: signal.Signals, at: int, *args: object, times: int = 1, env: Mapping[str, str] | None = None
) -> Result:
    """Run a command and send it a signal before a step.

    Args:
        at: number of the step, counted from the writing of the manifest, or, if negative, from the beginning.
        times: number of consecutive steps that get it.
        env: additional environment variables.
    """
    result = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(int(number)), str(at), str(times), *map(str, args)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
    )
    return Result(result.returncode, result.stdout.decode(), result.stderr.decode())


def killed(at: int, *args: object) -> None:
    """Run a command and kill it before a step."""
    done = ended(signal.SIGKILL, at, *args)
    assert done.code == -signal.SIGKILL, done


def run_folder(home: Path) -> Path:
    """The only run in a backup directory."""
    (result,) = home.iterdir()
    return result
