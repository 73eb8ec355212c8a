"""Queues whose messages have all expired, by the rules of the release that wrote the store."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.rules.releases import RELEASES
from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.info import store_info
from rmqtool.services.lookup.topics import StoreTopics
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import open_queue
from tests.cli.running import rmqtool

CONF = {"mappedFileSizeCommitLog": "4096", "mappedFileSizeConsumeQueue": "400"}
ENGINES = ("4.9", "5.3")


def rows(*args: object) -> list[dict[str, Any]]:
    """The rows of a command."""
    return [json.loads(line) for line in rmqtool(*args).out.splitlines()]


@pytest.fixture(params=ENGINES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, int]:
    """(release, store, a group's queue offset); messages 0 to 4 of ``Gone`` are before the log."""
    root = tmp_path / "store"
    with Store.create(root, broker_conf=CONF, release=RELEASES[request.param]) as store:
        for n in range(5):
            store.append(NewMessage(topic="Gone", body=n.to_bytes(2, "big")))
        for _ in range(60):
            store.append(NewMessage(topic="Here", body=bytes(200)))
    (root / "commitlog" / f"{0:020d}").unlink()
    if request.param == "5.3":
        (root / "abort.bak").touch()  # nothing else shows who wrote it
    offsets = {"offsetTable": {"Gone@readers": {"0": 3}}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config/consumerOffset.json").write_text(json.dumps(offsets))
    return request.param, root, 3


def test_where_they_begin(written: tuple[str, Path, int]) -> None:
    engine, root, _offset = written
    layout = StoreLayout(str(root))
    log, queue = CommitLog(layout), open_queue(layout, "Gone", 0)
    assert queue is not None
    lowest = 0 if engine == "4.9" else 5
    assert (queue.min_offset(log.min_offset), queue.max_offset) == (lowest, 5)
    answer = get_message(log, queue, 0, 1)
    expected = ("MESSAGE_WAS_REMOVING" if engine == "4.9" else "OFFSET_TOO_SMALL", lowest, 5)
    assert (answer.status, answer.min_offset, answer.max_offset) == expected
    details = StoreTopics(log, print).details("Gone")
    assert details is not None
    assert (details.queues[0].minOffset, details.summary.messages) == (lowest, 5 - lowest)
    assert {row["topic"]: row["messages"] for row in store_info(layout).to_dict()["topics"]}["Gone"] == 5 - lowest
    for arguments in (["consumequeue", "dump", root, "--topic", "Gone"], ["consumequeue", "dump", root, "--all"]):
        dumped = [row for row in rows(*arguments, "-o", "ndjson") if row["topic"] == "Gone"]
        assert len(dumped) == (5 if "--all" in arguments else 5 - lowest)
    (row,) = rows("offsets", root, "-o", "ndjson")
    assert (row["minOffset"], row["brokerOffset"], row["diff"]) == (lowest, 5, 2)
    pull = rows("query-offset", root, "Gone", "0", "0", "--status", "-o", "ndjson")[0]
    assert (pull["minOffset"], pull["status"]) == (lowest, expected[0])
    for asked, lowest in (("4.9", 0), ("5.3", 5)):
        command = ("query-offset", root, "Gone", "0", "0", "--status", "--engine", asked, "-o", "ndjson")
        assert rows(*command)[0]["minOffset"] == lowest
