"""Requests of a question are in flight together: what counts is how often it waits, not how much it asks for."""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from rmqtool.cli.commands import COMMANDS
from rmqtool.client.cluster.peers import Peers
from tests.cli.running import ROOT, rmqtool
from tests.interop.serving import Serving

HALF = "FD0000000000000000000000000000020FB630946E0966434BAF01EA"
ONE = "FD0000000000000000000000000000020FB630946E09664343CD0000"
# how often each waits for answers, at most, on a store with 60 half messages, retries and dead letters
MOST = {
    "info": 7, "topic list": 5, "topic show Orders": 6, "group list": 6, "group lag": 6, "offsets": 4, "doctor": 13,
    "retry list": 11, "dlq list": 13, "delay list": 8, "delay due --all": 9, "transaction list": 9,
    f"transaction show {HALF}": 9, f"trace {ONE}": 14, f"query-id {HALF}": 5, "rebalance plan Orders --consumer one": 3,
    "client list": 5,
}  # fmt: skip
_SECONDS = 0.02  # that each answer takes longer


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("flight") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--read-only") as served:
        yield f"rocketmq://{served.namesrv}"


@pytest.mark.parametrize("line", MOST)
def test_how_often_a_question_waits(line: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, words = next(
        (name, line.split()[len(name.split()) :])
        for name in (" ".join(line.split()[:2]), line.split()[0])
        if name in COMMANDS
    )
    waits = in_flight = 0
    call = Peers.call

    async def counted(*words: Any, **more: Any) -> Any:
        nonlocal waits, in_flight
        waits += not in_flight
        in_flight += 1
        try:
            await asyncio.sleep(_SECONDS)
            return await call(*words, **more)
        finally:
            in_flight -= 1

    monkeypatch.setattr(Peers, "call", counted)
    done = rmqtool(*name.split(), target, *words, "-o", "ndjson")
    assert done.code in (0, 1), done.err
    assert done.out or name in ("client list", "doctor")
    assert 0 < waits <= MOST[line]
