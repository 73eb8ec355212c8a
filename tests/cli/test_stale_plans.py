"""A plan is confirmed after the store has changed: nothing is done that the plan did not show."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.cli.framework import planning
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

GROUP = "lab-consumer"


@pytest.fixture
def store(golden_copy: Unpacked) -> Path:
    return golden_copy("clean")


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Run something before the answer yes."""

    def set_up(act: Callable[[], object]) -> None:
        def answer(_question: str) -> bool:
            act()
            return True

        monkeypatch.setattr(planning, "confirm", answer)
        monkeypatch.setattr(planning.Consent, "need", lambda _consent, _command: None)

    return set_up


def append(store: Path, count: int) -> None:
    with Store(store, write=True) as opened:
        opened.append_many([NewMessage(topic="TopicA", body=b"in between") for _ in range(count)])


def middle(store: Path) -> int:
    """The physical offset of a message in the middle of the log."""
    rows = rmqtool("commitlog", "dump", store, "-o", "ndjson").out.splitlines()
    return int(json.loads(rows[len(rows) // 2])["physicalOffset"])


def test_truncate_cuts_no_message_that_came_after_the_plan(
    store: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    at = middle(store)
    between(lambda: append(store, 3))
    result = rmqtool("truncate", store, at)
    assert result.code == 4
    assert "has changed since the plan was shown: nothing of it was done" in result.err
    rows = rmqtool("commitlog", "dump", store, "-o", "ndjson", "--offset", f"{at}:").out
    assert rows.count('"in between"') == 3


def test_undo_undoes_only_the_command_it_showed(store: Path, between: Callable[[Callable[[], object]], None]) -> None:
    rebuilt: list[str] = []

    def rebuild(part: str) -> None:
        assert rmqtool("rebuild", store, part, "--yes").code == 0
        rebuilt.append(rmqtool("undo", store, "--dry-run", "-o", "json").out)

    rebuild("index")
    between(lambda: rebuild("consumequeue"))
    result = rmqtool("undo", store)
    assert result.code == 4
    assert "has changed since the plan was shown" in result.err
    assert rmqtool("undo", store, "--dry-run", "-o", "json").out == rebuilt[-1]


def test_a_reset_sets_only_the_offsets_it_showed(
    golden_copy: Unpacked, between: Callable[[Callable[[], object]], None]
) -> None:
    store = golden_copy("broker")
    args = ("group", "reset", store, GROUP, "--topic", "Orders")
    between(lambda: rmqtool(*args, "--to-offset", "1", "--yes"))
    result = rmqtool(*args, "--to-earliest")
    assert result.code == 4
    assert "has changed since the plan was shown" in result.err
    rows = rmqtool("group", "offsets", store, GROUP, "-o", "ndjson").out.splitlines()
    offsets = {row["consumerOffset"] for row in map(json.loads, rows) if row["topic"] == "Orders"}
    assert offsets == {1}


def test_requeue_gives_back_only_the_dead_letters_it_showed(
    golden_copy: Unpacked, between: Callable[[Callable[[], object]], None]
) -> None:
    store = golden_copy("broker")
    shown = rmqtool("dlq", "requeue", store, GROUP, "--dry-run", "-o", "ndjson").out.splitlines()

    def die_again() -> None:
        properties = {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "0" * 32}
        with Store(store, write=True) as opened:
            opened.append(NewMessage(topic=f"%DLQ%{GROUP}", body=b"in between", properties=properties))

    between(die_again)
    result = rmqtool("dlq", "requeue", store, GROUP, "-o", "ndjson")
    rows = [json.loads(row) for row in result.out.splitlines()]
    assert result.code == 0, result.err
    assert {row["deadLetterId"] for row in rows} == {json.loads(row)["deadLetterId"] for row in shown}
    left = rmqtool("dlq", "requeue", store, GROUP, "--dry-run", "-o", "ndjson").out.splitlines()
    assert [json.loads(row)["state"] for row in left].count("to-do") == 1
