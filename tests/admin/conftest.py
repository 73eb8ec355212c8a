"""Fixtures of tests that query a broker."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import ROOT
from tests.interop.serving import Serving


@pytest.fixture(scope="module")
def example_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Our broker and name server on the example store, read-only."""
    folder = tmp_path_factory.mktemp("example") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--read-only") as running:
        yield running


def two_stores(folder: Path, read_queues: int) -> tuple[Path, Path]:
    """Two copies of the example store; in the second the topic Orders is read-only, with so many queues."""
    first, second = (shutil.copytree(ROOT / "examples" / "store", folder / name) for name in ("first", "second"))
    topics = second / "config" / "topics.json"
    table = json.loads(topics.read_text())
    table["topicConfigTable"]["Orders"] |= {"perm": 4, "readQueueNums": read_queues}
    topics.write_text(json.dumps(table))
    return first, second
