"""README's examples: run them, compare their output, or write it (``python -m tests.readme --update``).

A block that begins with three backticks and ``console`` holds commands after ``$`` and what they print, stdout and
stderr together.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_PLACES = "store|crashed|torn|garbled|messages|rescued|again|payments|feed|orders|waiting"
# What differs from run to run: clock, process ids, figures of time, directories.
VOLATILE = [
    (re.compile(r"\d{8}T\d{6}Z"), "20261121T081230Z"),
    (re.compile(r"(index/)20\d{15}(?= *$)", re.MULTILINE), r"\g<1>20261121081230123"),
    (re.compile(rf"/\S*/(?=(?:{_PLACES})\b)"), "/data/"),
    (re.compile(r"\d+\.\d+ s\b"), "1.0 s"),
    (re.compile(r'("status":"PUT_OK".*"storeTimestamp":)\d+'), r"\g<1>1795250000000"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]


def prepare(folder: Path) -> None:
    """The stores that the examples name."""
    for name in ("store", "crashed", "torn", "garbled"):
        shutil.copytree(ROOT / "examples" / "store", folder / name)
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
    """Text without what differs from run to run."""
    for pattern, stand_in in VOLATILE:
        text = pattern.sub(stand_in, text)
    return text


def loose(text: str) -> str:
    """Text without the widths of columns, which follow the length of paths."""
    return re.sub(r" {2,}", "  ", text)


def run(command: str, folder: Path) -> str:
    """Output of one command line in a folder, stderr after stdout."""
    path = sysconfig.get_path("scripts")
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={"PATH": f"{path}:/usr/bin:/bin", "HOME": str(Path.home()), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    return normal(done.stdout + done.stderr)


def commands(block: str) -> list[str]:
    """The command lines of a block."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def blocks() -> Iterator[str]:
    """Every console block of README."""
    return (match[1] for match in BLOCK.finditer(README.read_text(encoding="utf-8")))


def rendered(block: str, folder: Path) -> str:
    """The block as it should stand in README."""
    return "".join(f"$ {command}\n{run(command, folder)}" for command in commands(block))


def update(folder: Path) -> None:
    """Write README's outputs anew."""
    prepare(folder)
    text = BLOCK.sub(lambda match: f"```console\n{rendered(match[1], folder)}```", README.read_text(encoding="utf-8"))
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    if sys.argv[1:] != ["--update"]:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        update(Path(directory))
