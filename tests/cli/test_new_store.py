"""The release of a store created by init or serve."""

from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from rmqtool.store.config.release import release_of
from rmqtool.store.layout.paths import StoreLayout
from tests.cli.running import process
from tests.cli.test_namesrv import ask
from tests.interop.serving import Serving

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "release"), [((), "5.5"), (("--engine", "5.3"), "5.3"), (("--engine", "4.9"), "4.9")]
)
def test_a_new_store_is_of_the_newest_release(options: tuple[str, ...], release: str, tmp_path: Path) -> None:
    made, served = tmp_path / "made", tmp_path / "served"
    assert process("init", made, *options).code == 0
    with Serving(served, "--create", *options) as serving:
        known = ask(serving.broker, Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=b"{}")).code
        assert (known != ResponseCode.REQUEST_CODE_NOT_SUPPORTED) == (release != "4.9")
        assert serving.end()[0] == 0
    for store in (made, served):
        assert release_of(StoreLayout(str(store))).name == release
        assert process("check", store).out.startswith("Clean: nothing was found.\n")
    with Serving(served) as serving:  # and it stays of that release
        known = ask(serving.broker, Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=b"{}")).code
        assert (known != ResponseCode.REQUEST_CODE_NOT_SUPPORTED) == (release != "4.9")
