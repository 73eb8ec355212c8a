"""The journals of changes of a live cluster, without a cluster."""

import time
from pathlib import Path

import pytest

from rmqtool.admin.changes import journal
from rmqtool.admin.target import Target


def test_the_newest_journal_is_the_last_even_if_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(text="rocketmq://127.0.0.1:9876", namesrv=("127.0.0.1:9876",))
    now = 1_795_916_156_854_000_000
    for hours, command in enumerate(("topic create", "topic perm", "topic delete")):
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: now - hours * 3_600_000_000_000)
        journal.begin(str(tmp_path), target, command, ())
    names = journal.find_journals(str(tmp_path), target)
    assert [journaled.command for journaled in names] == ["topic create", "topic perm", "topic delete"]
    assert names[2].timestamp == now // 1_000_000 - 2 * 3_600_000
