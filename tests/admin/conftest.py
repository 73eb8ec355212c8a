"""Fixtures of tests that query a broker."""

import shutil
from collections.abc import Iterator

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
