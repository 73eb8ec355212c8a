"""``info`` of a store with many topics: the largest ones and totals as text, everything in machine output."""

import json
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from tests.cli.running import rmqtool


def written(path: Path, topics: int) -> Path:
    """A store in which topic number n has n + 1 messages in two queues."""
    with Store.create(path) as store:
        store.append_many(
            [NewMessage(topic=f"T{n:03d}", queue_id=k % 2, body=b"x") for n in range(topics) for k in range(n + 1)]
        )
    return path


@pytest.mark.parametrize(("topics", "shown"), [(40, 40), (41, 20)])
def test_the_largest_are_shown_and_all_are_counted(tmp_path: Path, topics: int, shown: int) -> None:
    store = written(tmp_path / "store", topics)
    result = rmqtool("info", store)
    rows = [line.split() for line in result.out.splitlines() if line.startswith("T0")]
    assert len(rows) == shown
    if shown == topics:
        assert "largest of" not in result.out
    else:
        assert [row[0] for row in rows] == [f"T{n:03d}" for n in range(topics - 1, topics - 1 - shown, -1)]
        assert (
            f"the 20 largest of 41 topics, which have {sum(range(1, 42))} messages in 81 queues; "
            f"all: rmqtool topic list {store}"
        ) in result.out
    assert len(json.loads(rmqtool("info", store, "-o", "json").out)["topics"]) == topics
