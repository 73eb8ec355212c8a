"""Cost of the first command after an installation: the first run of each command compared with its second.

Run as ``python -m tests.bench.first_use``. The project is installed into a new virtual environment for each command
(pip compiles its modules), so that the first run finds nothing left by an earlier one. Both runs use the same store,
whose files are in the page cache. CPU time is printed too, as it depends less on other load.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.bench.make_log import write_log
from tests.bench.measure import ROOT
from tests.bench.recover import crash

LIMIT = 1.3
COMMANDS = {
    "recover": ("recover", "{store}", "--yes"),
    "check": ("check", "{store}"),
    "salvage": ("salvage", "{store}", "{out}"),
    "dump-to-parquet": ("dump-to-parquet", "{store}", "{out}", "--engine", "local"),
}


def install(folder: Path, wheel: Path, command: str) -> Path:
    """Install the command into a new environment that shares this one's libraries, but not the project itself."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(pip, check=True)
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "libraries.pth").write_text(libraries + "\n")
    run = folder / "bin" / command
    run.write_text(f"#!{folder}/bin/python\nimport sys\nfrom rmqtool.main import main\nsys.exit(main())\n")
    run.chmod(0o755)
    return run


def report(
    work: Path, messages: int, body: int, file_size: int, rounds: int, names: Iterable[str] = tuple(COMMANDS)
) -> dict[str, tuple[float, float]]:
    """Measure and print.

    Returns:
        For each command, the first run's time as a multiple of the second's, each the best of its rounds, and the same
            for CPU time.
    """
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(work / "wheel"), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = (work / "wheel").iterdir()
    store, out = work / "store", work / "out"
    made = write_log(store / "commitlog", body=body, file_size=file_size, messages=messages)
    print(f"{made} messages of {body} B, queues and index lost")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["XDG_CACHE_HOME"] = str(work / "cache")
    ratios: dict[str, tuple[float, float]] = {}
    for name in names:
        args = COMMANDS[name]
        taken: list[tuple[float, float, float, float]] = []
        for _ in range(rounds):
            folder = work / "environment"
            rmqtool = install(folder, wheel, "rmqtool")
            figures: list[float] = []
            for _ in range(2):
                crash(store)
                shutil.rmtree(out, ignore_errors=True)
                if name == "check":
                    (store / "abort").unlink()
                line = [str(rmqtool), *(word.format(store=store, out=out) for word in args)]
                begun, used = time.perf_counter(), _processor()
                result = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
                figures += time.perf_counter() - begun, _processor() - used
                if result.returncode not in (0, 1):
                    raise RuntimeError(f"{' '.join(line)}: {result.returncode}: {result.stderr}")
            taken.append((figures[0], figures[1], figures[2], figures[3]))
            shutil.rmtree(folder)
            shutil.rmtree(work / "cache", ignore_errors=True)
        first, first_used, second, second_used = (min(values) for values in zip(*taken, strict=True))
        ratios[name] = first / second, first_used / second_used
        print(
            f"{name:16} first {first:6.2f} s, second {second:6.2f} s, {ratios[name][0]:4.2f} times  (limit {LIMIT}); "
            f"processor {first_used:6.2f} s and {second_used:6.2f} s, {ratios[name][1]:4.2f} times",
            flush=True,
        )
    return ratios


def _processor() -> float:
    """CPU seconds of this process's ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print first and second runs of each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commands", nargs="*", choices=list(COMMANDS), default=list(COMMANDS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        report(Path(work), args.messages, args.body, 1 << 30, args.rounds, args.commands)


if __name__ == "__main__":
    main()
