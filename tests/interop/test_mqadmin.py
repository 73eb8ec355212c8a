"""Commands of ``mqadmin`` print the same for a real broker and ours.

``python -m tests.interop.mqadmin`` runs all of them.
"""

import re
from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import ALL
from tests.interop.mqadmin import COMMANDS, on_ours, on_real, told
from tests.readme import PAGES

pytestmark = pytest.mark.interop
# some of each kind that take no time
NAMES = {
    "brokerConsumeStats", "brokerStatus", "cloneGroupOffset", "clusterList", "consumerConnection", "deleteSubGroup",
    "deleteTopic", "exportConfigs", "exportMetrics", "getConsumerConfig", "producerConnection", "queryCq",
    "queryMsgById", "queryMsgByKey", "resetOffsetByTime", "topicList", "topicStatus", "updateSubGroup",
    "updateSubGroupList", "updateTopic", "updateTopicList", "updateTopicPerm",
}  # fmt: skip


@by_turns(11)
def test_mqadmin_says_the_same_of_both(broker: Broker, tmp_path: Path) -> None:
    known = set(broker.ask("admins"))
    assert known <= {command.name for command in COMMANDS}
    chosen = [value for value in COMMANDS if value.name in known & NAMES and "NoSuch" not in value.line]
    real = on_real(broker, tmp_path / "real", chosen)
    ours = on_ours(broker, tmp_path / "ours", chosen)
    for command, wanted, got in zip(chosen, real, ours, strict=True):
        assert told(command, got) == told(command, wanted), command.line


@by_turns(11)
@pytest.mark.parametrize("version", ALL)
def test_each_command_has_a_row_in_the_page(version: str) -> None:
    if reason := brokers.available(version):
        pytest.skip(reason)
    with Broker(version) as judge:
        known = set(judge.ask("admins"))
    text = PAGES["mqadmin"].read_text(encoding="utf-8")
    assert known <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
