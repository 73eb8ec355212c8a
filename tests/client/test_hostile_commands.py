"""Commands with peers that send nonsense: one clear error, no traceback, no hang."""

import faulthandler
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.client.cluster import attempts
from tests.cli.running import rmqtool
from tests.client.peers import peer, raw_peer, route, serving, tells
from tests.client.test_replay import made

BYTES = {
    "a length of 1 GB": (1 << 30).to_bytes(4, "big") * 2,
    "a header longer than its frame": b"\0\0\0\x10\0\0\xff\xff" + b"x" * 12,
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(64),
}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSES", (0.01, 0.01))


@asynccontextmanager
async def in_front_of(answer: bytes) -> AsyncIterator[str]:
    """A correct name server in front of a misbehaving broker."""
    async with peer() as namesrv, raw_peer(answer) as address:
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", address), queues=1)})
        yield namesrv.address


@asynccontextmanager
async def around_and_around() -> AsyncIterator[str]:
    """A broker that has nothing at any offset, and always redirects to another one."""
    async with peer() as namesrv, peer() as broker:
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", broker.address), queues=1)})
        broker.replies[C.GET_MIN_OFFSET] = lambda request: request.response(fields={"offset": "0"})
        broker.replies[C.GET_MAX_OFFSET] = lambda request: request.response(fields={"offset": str(2**62)})

        def moved(request: Command) -> Command:
            asked = int((request.fields or {})["queueOffset"])
            fields = {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(asked ^ 1),
                "minOffset": "0",
                "maxOffset": "9",
            }
            return request.response(21, "moved", fields=fields)

        broker.replies[C.PULL_MESSAGE] = moved
        yield namesrv.address


def words_of(command: str, namesrv: str, tmp_path: Path) -> list[str]:
    lines = tmp_path / "lines"
    lines.write_text("one\n")
    return {
        "consume": ["consume", "--namesrv", namesrv, "T"],
        "acknowledge": ["consume", "--namesrv", namesrv, "T", "--group", "g", "--ack"],
        "send": ["send", "--namesrv", namesrv, "T", str(lines), "--lines"],
        "replay": ["replay", str(tmp_path / "origin"), "--namesrv", namesrv],
        "mirror": ["mirror", "--namesrv", namesrv, "T", str(tmp_path / "copy")],
    }[command]


def fails_well(command: str, namesrv: str, tmp_path: Path) -> None:
    made(tmp_path / "origin", "T", 2)
    faulthandler.dump_traceback_later(120, exit=True)  # a command that hangs says where
    try:
        result = rmqtool(*words_of(command, namesrv, tmp_path))
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert result.code == 3, result
    assert "Traceback" not in result.err
    assert result.err.splitlines()[-1].startswith("error: "), result.err


@pytest.mark.parametrize("answer", BYTES.values(), ids=list(BYTES))
@pytest.mark.parametrize("command", ["consume", "acknowledge", "send", "replay", "mirror"])
def test_a_broker_that_sends_nonsense(command: str, answer: bytes, tmp_path: Path) -> None:
    with serving(in_front_of(answer)) as namesrv:
        fails_well(command, namesrv, tmp_path)


@pytest.mark.parametrize("answer", BYTES.values(), ids=list(BYTES))
@pytest.mark.parametrize("command", ["consume", "acknowledge", "send", "replay", "mirror"])
def test_a_name_server_that_sends_nonsense(command: str, answer: bytes, tmp_path: Path) -> None:
    with serving(raw_peer(answer)) as namesrv:
        fails_well(command, namesrv, tmp_path)


@pytest.mark.parametrize("command", ["consume", "acknowledge", "mirror"])
def test_redirects_without_end(command: str, tmp_path: Path) -> None:
    with serving(around_and_around()) as namesrv:
        fails_well(command, namesrv, tmp_path)
