"""What an import costs: the codecs must be had without the libraries that only some of their functions need."""

import subprocess
import sys
from pathlib import Path

import pytest

import formats

HEAVY = {"numpy", "construct", "lz4", "zstandard", "dataclasses"}
FOLDER = Path(formats.__file__).parent
LIGHT = [
    "batch_consume_queue",
    "bodies",
    "checkpoint",
    "compaction",
    "consume_queue",
    "consume_queue_ext",
    "derived",
    "dledger",
    "endings",
    "epoch",
    "errors",
    "flat",
    "ids",
    "index",
    "marks",
    "message",
    "message_build",
    "primitives",
    "properties",
    "rocksdb",
    "timer",
]


@pytest.mark.parametrize("name", LIGHT)
def test_a_codec_imports_nothing_heavy(name: str) -> None:
    code = f"import sys, formats.{name}; print(*sorted({HEAVY} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=FOLDER.parent, capture_output=True, text=True, check=True)

    assert run.stdout.split() == []
