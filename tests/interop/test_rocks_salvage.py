"""RocksDB stores converted to files: 5.3.3 starts on the result, and serves the same messages."""

from pathlib import Path
from typing import Any

import pytest

from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.interop.engine import Engine
from tests.interop.rocks_recovery import CONFIG, log_files, stopped_store

pytestmark = [pytest.mark.interop]
IN_FILES = {name: value for name, value in CONFIG.items() if name != "storeType"}


def conf_file(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "broker.conf"
    path.write_text("".join(f"{name}={str(value).lower()}\n" for name, value in config.items()))
    return path


def ranges(state: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """Ranges of non-empty queues."""
    rows = state["queues"]
    return {
        (r["topic"], r["queueId"]): (r["minOffset"], r["maxOffset"]) for r in rows if r["minOffset"] < r["maxOffset"]
    }


def given(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Messages served by a queue, in order, without compression flags, which depend on the decoder."""
    units = ("cqTopic", "cqQueueId", "cqOffset", "cqPhysicalOffset", "cqSize", "cqTagsCode")
    same = ("queueOffset", "storeTimestamp", "bornHost", "reconsumeTimes", "properties", "bodyCrc", "offsetMsgId")
    return sorted(
        ((*(row[name] for name in units), *(row["message"][name] for name in same)) for row in rows),
        key=lambda row: row[:3],
    )


@pytest.mark.parametrize("command", ["salvage", "export"])
def test_every_message_of_a_whole_broker(command: str, engine_5: Engine, golden: Unpacked, tmp_path: Path) -> None:
    case = "rocksdb-5.3.3"
    config = {**goldens.about(case)["config"], "enableLmq": True, "enableMultiDispatch": True}
    config["messageDelayLevel"] = "1s 2s 3s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    conf = conf_file(tmp_path, {**config, "storeType": "defaultRocksDB"})
    assert rmqtool(command, golden(case), tmp_path / "new", "--broker-conf", conf).code == 0
    expected = list(goldens.messages(case))
    keys = sorted(
        {
            (row["message"]["topic"], key)
            for row in expected
            for key in row["message"]["properties"].get("KEYS", "").split()
        }
    )
    answer = engine_5.open(tmp_path / "new", config, keys=keys)
    assert "error" not in answer
    assert given(answer["messages"]) == given(expected)
    assert all(row["physicalOffsets"] for row in answer["queries"])


@by_turns(2)
@pytest.mark.parametrize(("command", "head_gone"), [("salvage", False), ("salvage", True), ("export", True)])
def test_queues_go_on_where_they_were(command: str, engine_5: Engine, head_gone: bool, tmp_path: Path) -> None:
    store, new, conf = tmp_path / "store", tmp_path / "new", conf_file(tmp_path, CONFIG)
    stopped_store(engine_5, store)
    for path in log_files(store)[: 2 if head_gone else 0]:
        path.unlink()
    result = rmqtool(command, store, new, "--broker-conf", conf)
    assert result.code == 0, result.err
    theirs = engine_5.open(store, CONFIG)
    ours = engine_5.open(new, IN_FILES)
    assert ranges(ours["afterStart"]) == ranges(theirs["afterStart"])
    assert ours["messages"] == theirs["messages"]
