"""``clean`` lists messages that would be lost unread, by group, before it asks; --yes then needs --accept-loss."""

import json
import os
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.cli.framework import planning
from tests.cli.running import rmqtool

CONF = {"mappedFileSizeCommitLog": "8192", "mappedFileSizeConsumeQueue": "2000"}


def make(path: Path, delay: dict[str, str]) -> Path:
    """A store with 40 messages and 10 delayed ones in several files; all but the last are old."""
    with Store.create(path, broker_conf=CONF) as made:
        for number in range(50):
            delayed = delay if number % 5 == 4 else {}
            made.append(NewMessage(topic="Orders", body=b"x" * 500, properties=delayed))
    files = sorted((path / "commitlog").iterdir())
    assert len(files) > 3
    for file in files[:-1]:
        os.utime(file, (1, 1))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "store", {"DELAY": "3"})


def consumed(store: Path, **offsets: int) -> None:
    table = {f"Orders@{group}": {"0": offset} for group, offset in offsets.items()}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def test_the_number_by_group_is_said(store: Path) -> None:
    consumed(store, behind=3, done=40)
    planned = rmqtool("clean", store, "--dry-run", "-o", "json")
    assert planned.code == 1
    plan = json.loads(planned.out)
    low = plan["newMinPhyOffset"]
    before = list(Store(store).messages(0, low))
    orders = sum(message.topic == "Orders" for message in before)
    assert {(row["group"], row["topic"], row["messages"]) for row in plan["unread"]} == {
        ("behind", "Orders", orders - 3),
        (None, "SCHEDULE_TOPIC_XXXX", len(before) - orders),
    }
    assert f"LOSS: {orders - 3} messages of Orders that group behind has not consumed" in planned.err
    assert f"LOSS: {len(before) - orders} delayed messages wait to be delivered" in planned.err


def test_a_loss_needs_consent(store: Path) -> None:
    consumed(store, behind=3)
    refused = rmqtool("clean", store, "--yes")
    assert refused.code == 4
    assert "that group behind has not consumed" in refused.err
    assert "--accept-loss" in refused.err
    assert len(list((store / "commitlog").iterdir())) > 3
    result = rmqtool("clean", store, "--yes", "--accept-loss")
    assert result.code == 0, result.err
    assert len(list((store / "commitlog").iterdir())) == 1


def test_what_all_have_consumed_goes_without_a_word(store: Path) -> None:
    consumed(store, done=40)
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{3:10}}')
    result = rmqtool("clean", store, "--yes", "-o", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["unread"] == []


def test_no_more_is_lost_than_the_plan_showed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is set back before the answer."""

    def answer(_question: str) -> bool:
        consumed(store, behind=2)
        return True

    consumed(store, behind=30)
    monkeypatch.setattr(planning, "confirm", answer)
    monkeypatch.setattr(planning.Consent, "need", lambda _consent, _command: None)
    result = rmqtool("clean", store)
    assert result.code == 4
    assert "has changed since the plan was shown: nothing of it was done" in result.err
    assert len(list((store / "commitlog").iterdir())) > 3


def test_messages_that_wait_for_the_timer_are_counted(tmp_path: Path) -> None:
    """They are in the log as messages of the timer's topic until they are due."""
    path = make(tmp_path / "store", {"TIMER_DELAY_SEC": "3600"})
    planned = rmqtool("clean", path, "--dry-run", "-o", "json")
    plan = json.loads(planned.out)
    before = list(Store(path).messages(0, plan["newMinPhyOffset"]))
    waiting = sum(message.topic != "Orders" for message in before)
    assert waiting > 5
    assert plan["unread"] == [{"group": None, "topic": "rmq_sys_wheel_timer", "messages": waiting}]
    assert f"LOSS: {waiting} delayed messages wait to be delivered" in planned.err
    assert rmqtool("clean", path, "--yes").code == 4
