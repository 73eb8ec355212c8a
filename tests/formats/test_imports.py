"""Import cost: codecs must be importable without libraries that only some of their functions need."""

import subprocess
import sys
from pathlib import Path

import pytest

import formats

HEAVY = {"numpy", "construct", "lz4", "zstandard", "dataclasses"}
FOLDER = Path(formats.__file__).parent
LIGHT = [
    "checkpoint",
    "endings",
    "errors",
    "index",
    "layouts.derived",
    "layouts.flat",
    "marks",
    "message.bodies",
    "message.build",
    "message.ids",
    "message.properties",
    "message.read",
    "primitives",
    "queues.batch",
    "queues.consume",
    "queues.extension",
    "queues.rocks",
    "variants.dledger",
    "variants.epoch",
    "variants.rocksdb",
    "variants.timer",
]


@pytest.mark.parametrize("name", LIGHT)
def test_a_codec_imports_nothing_heavy(name: str) -> None:
    code = f"import sys, formats.{name}; print(*sorted({HEAVY} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=FOLDER.parent, capture_output=True, text=True, check=True)

    assert run.stdout.split() == []
