"""Brokers that say there is always more: commands end, in bounded time and memory."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.message.read import Record, read
from formats.remoting.bodies import TopicStats
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.admin.live import messages
from tests.admin.relaying import relay
from tests.amounts import by_turns
from tests.cli.running import ROOT, rmqtool
from tests.client.peers import serving
from tests.interop.serving import Serving

ENDLESS = 1 << 62
MOST = 60  # requests of a kind
SECONDS = 120  # of a busy machine


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("endless") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--engine", "5.3") as served:
        yield served.broker


class MorePages:
    """Each page of the index has other messages, of the same times."""

    def __init__(self) -> None:
        self.pages = 0

    def __call__(self, request: Command, answer: Command) -> Command:
        if request.code != C.QUERY_MESSAGE or answer.code:
            return answer
        self.pages += 1
        assert self.pages < MOST, "it goes on for ever"
        at, parts = 0, list[bytes]()
        while at < len(answer.body):
            record = read(answer.body, at, len(answer.body))
            assert isinstance(record, Record)
            data = answer.body[at : at + record.total_size]
            parts.append(data[:28] + (record.physical_offset + (self.pages << 32)).to_bytes(8, "big") + data[36:])
            at += record.total_size
        return replace(answer, body=b"".join(parts))


def test_pages_of_an_index(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_FEW", 1)
    with serving(relay(broker, lambda _request: False, changes=MorePages())) as namesrv:
        begin = time.monotonic()
        done = rmqtool("query-key", f"rocketmq://{namesrv}", "Orders", "order-65")
    assert time.monotonic() - begin < SECONDS
    assert done.out
    assert "Traceback" not in done.err


def longer(request: Command, answer: Command) -> Command:
    """Queues without end."""
    if request.code != C.GET_TOPIC_STATS_INFO or answer.code:
        return answer
    table = read_body(TopicStats, answer.body).offset_table
    return replace(
        answer,
        body=body_of(TopicStats({queue: replace(known, max_offset=ENDLESS) for queue, known in table.items()})),
    )


@by_turns(7)
@pytest.mark.parametrize(
    "line",
    [
        "group lag", "topic list", "topic show {} Orders", "delay list", "delay due {} --all", "retry list", "dlq list",
        "dlq requeue {} lab-consumer --dry-run", "transaction list", "doctor", "info",
        "group reset {} lab-consumer --to-latest --dry-run", "topic delete {} Orders --dry-run",
    ],
)  # fmt: skip
def test_queues_of_any_length(line: str, broker: str) -> None:
    with serving(relay(broker, lambda _request: False, changes=longer)) as namesrv:
        words = line.split() if "{}" in line else [*line.split(), "{}"]
        begin = time.monotonic()
        done = rmqtool(*(word.format(f"rocketmq://{namesrv}") for word in words))
    assert time.monotonic() - begin < SECONDS
    assert "Traceback" not in done.err, done.err
    assert done.code in (0, 1, 3, 4)
