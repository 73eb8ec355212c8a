"""Clients in other languages produce to a served store and consume from it."""

import asyncio
import signal
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import connected
from tests.interop import engine, languages
from tests.interop.serving import Serving

pytestmark = pytest.mark.interop
_TOPIC = {
    "topic": "Spoken", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip


async def _make_topic(address: str) -> None:
    host, _, port = address.rpartition(":")
    async with connected(host, int(port)) as connection:
        answer = await connection.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=_TOPIC), 30)
        assert answer.code == 0


@pytest.mark.parametrize(("language", "release"), [("go", "4.9"), ("node", "5.3")])
def test_a_client_in_another_language(language: str, release: str, tmp_path: Path) -> None:
    try:
        languages.folder(language)
    except engine.Unavailable as err:
        pytest.skip(str(err))
    with Serving(tmp_path / "store", "--create", "--engine", release) as serving:
        asyncio.run(_make_topic(serving.broker))
        said, logged = languages.run(language, serving.namesrv)
        assert said == languages.LANGUAGES[language].wanted, logged[-3000:]
        code, told = serving.end(signal.SIGTERM)
    assert code == 0
    assert "ERROR" not in told
