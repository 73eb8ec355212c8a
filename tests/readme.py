"""Run the examples of README and of the manual, and compare or update their output.

``python -m tests.readme --update [PAGE ...]`` updates the outputs of these pages (``README`` or a topic; by default
all). A ``console`` block has commands after ``$`` and their output, stdout and stderr together. A backslash continues a
command on the next line; an arrow at the end of a line of output means that it continues on the next, as pages are
narrow. ``python`` blocks are scripts. Examples of a page run in order on the same stores. On the page ``recipes`` the
``sh`` blocks are run too if there is ``jq``; their output is in comments at their ends.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests import roles
from tests.interop.serving import Serving

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MANUAL = ROOT / "rmqtool" / "manual"
PAGES = {"README": README, **{path.stem: path for path in sorted(MANUAL.glob("*.md"))}}
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
WIDTH = 118
_GOES_ON = "↵\n  "
_COLUMN = re.compile(r" {2}(?=\S)")

_PLACES = "stores?|crashed|torn|garbled|messages|rescued|again|payments|feed|orders|waiting|newstore|n[012]"
# What differs from run to run: clock, process ids, durations, directories.
VOLATILE = [
    (re.compile(r"\d{8}T\d{6}Z"), "20261121T081230Z"),
    (re.compile(r"(index/)20\d{15}(?= *$)", re.MULTILINE), r"\g<1>20261121081230123"),
    (re.compile(rf"(?<![:/\w])/\S*/(?=(?:{_PLACES})\b)"), "/data/"),
    (re.compile(rf"file:///\S*/(?=(?:{_PLACES})\b)"), "file:///data/"),
    (re.compile(r"\d+\.\d+ s\b"), "1.0 s"),
    (re.compile(r'("status":"PUT_OK".*"storeTimestamp":)\d+'), r"\g<1>1795250000000"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]


def prepare(folder: Path) -> None:
    """Create the stores used in examples."""
    for name in ("store", "crashed", "torn", "garbled"):
        shutil.copytree(ROOT / "examples" / "store", folder / name)
    roles.unpack_all(roles.DLEDGER, folder)
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from quickstart import power_cut  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    power_cut(folder / "crashed")
    with open(folder / "torn" / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(60_000)
        log.write(b"\xaa" * 512)
    offsets = folder / "garbled" / "config" / "consumerOffset.json"
    offsets.write_bytes(offsets.read_bytes()[:200])


def normal(text: str) -> str:
    """Replace what differs from run to run."""
    for pattern, stand_in in VOLATILE:
        text = pattern.sub(stand_in, text)
    return text


def loose(text: str) -> str:
    """Text without folds and column widths, which depend on the length of paths."""
    return re.sub(r" {2,}", "  ", unfolded(text))


def folded(text: str) -> str:
    """Fold long lines: between two columns, at the same column as the line before, or after a space."""
    lines, last = [], 0
    for line in text.splitlines():
        first = True
        while len(line) > WIDTH:
            gap = max((match.end() for match in _COLUMN.finditer(line, WIDTH // 2, WIDTH)), default=0)
            if first and last and line[last - 2 : last] == "  ":
                at = last  # fold rows of a table at the same column
            elif first and gap:
                at = last = gap
            else:
                at = line.rfind(" ", WIDTH // 2, WIDTH - 1) + 1 or WIDTH - 1
            lines.append(line[:at] + _GOES_ON)
            line, first = line[at:], False
        lines.append(line + "\n")
    return "".join(lines)


def unfolded(text: str) -> str:
    """Undo :func:`folded`."""
    return text.replace(_GOES_ON, "")


def environment() -> dict[str, str]:
    """The environment of an example: only the commands of this installation."""
    path = sysconfig.get_path("scripts")
    result = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(Path.home()), "COLUMNS": "100"}
    return result | {name: os.environ[name] for name in ("PYTHONPATH", "SPARK_SUBMIT_OPTS") if name in os.environ}


@cache
def config_of_lab() -> str:
    """A config file with ``@lab``: a broker on the example store, running as long as this process."""
    serving = Serving(ROOT / "examples" / "store", "--read-only")
    atexit.register(serving.__exit__)
    folder = tempfile.mkdtemp(prefix="rmq-lab-")
    atexit.register(shutil.rmtree, folder)
    path = Path(folder, "config.toml")
    path.write_text(f'[target.lab]\nnamesrv = "{serving.namesrv}"\n', encoding="utf-8")
    return str(path)


def run(command: str, folder: Path) -> str:
    """Output of a command line run in a folder, stderr after stdout; ``@lab`` is available."""
    variables = environment()
    if "@lab" in command:
        variables["RMQTOOL_CONFIG"] = config_of_lab()
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    stderr = normal(result.stdout + result.stderr)
    return re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:10911", stderr) if "@lab" in command else stderr


def run_script(code: str, folder: Path) -> None:
    """Run Python in a folder, with a Java for Spark.

    Raises:
        AssertionError: it fails; has its output.
    """
    more = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if "pyspark" in code:
        from rmqtool.analytics.spark.java import find_java

        more["JAVA_HOME"] = find_java().home
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment() | more, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def commands(block: str) -> list[str]:
    """The command lines of a block, unchanged."""
    return COMMAND.findall(unfolded(block))


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(kind, text) of every executable block of a page."""
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield match[1], match[2]


def rendered(block: str, folder: Path) -> str:
    """Run a console block; returns it with current output."""
    return "".join(f"$ {command}\n{folded(run(command, folder))}" for command in commands(block))


def with_answer(recipe: str, folder: Path) -> str:
    """Run a recipe; returns it with its current stdout in comments at its end.

    Raises:
        AssertionError: a command writes to stderr or fails.
    """
    lines = recipe.splitlines()
    while lines[-1].startswith("# "):
        lines.pop()
    result = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "error" not in result.stderr.replace("errors, ", ""), result.stderr
    return "\n".join([*lines, *(f"# {line}" for line in result.stdout.splitlines())]) + "\n"


@contextmanager
def room() -> Iterator[Path]:
    """A directory with a path of fixed length, because folding depends on it."""
    with tempfile.TemporaryDirectory(prefix="rmq", dir="/tmp") as directory:
        yield Path(directory)


def update(page: Path, folder: Path) -> None:
    """Update the outputs of a page."""
    prepare(folder)

    def replaced(match: re.Match[str]) -> str:
        if match[1] == "python":
            run_script(match[2], folder)
            return match[0]
        return f"```console\n{rendered(match[2], folder)}```"

    text = BLOCK.sub(replaced, page.read_text(encoding="utf-8"))
    if page == PAGES["recipes"]:
        text = RECIPE.sub(lambda match: f"```sh\n{with_answer(match[1], folder)}```", text)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--update"]:
        sys.exit(__doc__)
    for name in sys.argv[2:] or PAGES:
        with room() as folder:
            update(PAGES[name], folder)
