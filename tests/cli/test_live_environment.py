"""Commands with a live broker: the name server in the environment."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import RMQTOOL, ROOT
from tests.interop.serving import Serving

pytestmark = pytest.mark.slow


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A broker on a new store."""
    with Serving(tmp_path / "served", "--create") as served:
        yield served


def run(*args: object, data: str = "", namesrv: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    if namesrv is not None:
        environment["NAMESRV_ADDR"] = namesrv
    return subprocess.run(
        [*RMQTOOL, *map(str, args)], cwd=ROOT, env=environment, input=data, capture_output=True, text=True, timeout=120
    )


def test_the_environment_names_the_name_server(serving: Serving) -> None:
    assert run("send", "T", data='{"body":"x"}\n', namesrv=serving.namesrv).returncode == 0
    result = run("consume", "T", namesrv=serving.namesrv)
    assert (result.returncode, "x" in result.stdout) == (0, True), result.stderr
    # what is given counts for more
    assert run("send", "T", "--namesrv", serving.namesrv, data='{"body":"x"}\n', namesrv="127.0.0.1:1").returncode == 0
