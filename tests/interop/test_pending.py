"""A real engine starts on a store left half changed by a killed command: it ignores our files, and our next command
does not overwrite what it has written.
"""

import json
import signal
from itertools import count
from pathlib import Path

import pytest

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns
from tests.interop.engine import Engine, golden_config, unpack_golden
from tests.model.commands import Kill, run
from tests.store.helpers import conf_of

pytestmark = pytest.mark.interop
CASE = "torn-last-record"


def bodies(store: Path) -> set[bytes]:
    walked = CommitLog(StoreLayout(str(store), conf_of(CASE))).walk()
    return {bytes(located.record.body) for located in walked if isinstance(located, LocatedRecord)}


@by_turns(23)
def test_an_engine_between_a_kill_and_the_end(engine: Engine, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in golden_config(CASE).items()))
    for step in count(1):  # until one is killed where it had begun to apply; each anew, as they finish what they find
        (folder := tmp_path / str(step)).mkdir()
        store = unpack_golden(CASE, folder)
        before = bodies(store)
        done = run("recover", store, "--yes", "--broker-conf", conf, kill=Kill(signal.SIGKILL, step))
        assert done.killed, done
        if (store / ".rmqtool-pending").exists():
            break
    puts = [{"topic": "New", "queueId": 0, "body": b"taken %d" % number} for number in range(50)]
    answer = engine.write(store, puts, golden_config(CASE))
    assert [result["status"] for result in answer["results"]] == ["PUT_OK"] * 50
    assert (store / ".rmqtool-pending").exists()
    there = bodies(store)
    assert before | {put["body"] for put in puts} <= there  # type: ignore[operator]
    line = (json.dumps({"topic": "New", "body": "ours"}) + "\n").encode()
    for arguments in (["recover", store, "--yes"], ["rebuild", store, "index", "--yes"], ["append", store, "-"]):
        done = run(*arguments, "--broker-conf", conf, stdin=line)
        assert done.code == 4, done
        assert bodies(store) == there
    assert run("undo", store, "--forget", "--yes", "--broker-conf", conf).code == 0
    assert run("recover", store, "--yes", "--broker-conf", conf).code == 0
    assert bodies(store) == there
    assert run("append", store, "-", "--broker-conf", conf, stdin=line).code == 0
    engine_answer = engine.open(store, golden_config(CASE))
    mine = [row for row in engine_answer["messages"] if row["cqTopic"] == "New" and row["message"] is not None]
    assert len(mine) == 51
