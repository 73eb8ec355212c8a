"""Commands of ``mqadmin`` print the same for a real broker and ours.

``python -m tests.interop.mqadmin`` runs all of them.
"""

from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.mqadmin import COMMANDS, on_ours, on_real, told

pytestmark = pytest.mark.interop
# some of each kind that take no time
NAMES = {
    "brokerConsumeStats", "brokerStatus", "cloneGroupOffset", "clusterList", "consumerConnection", "deleteSubGroup",
    "deleteTopic", "exportConfigs", "exportMetrics", "getConsumerConfig", "producerConnection", "queryCq",
    "queryMsgById", "queryMsgByKey", "resetOffsetByTime", "topicList", "topicStatus", "updateSubGroup",
    "updateSubGroupList", "updateTopic", "updateTopicList", "updateTopicPerm",
}  # fmt: skip


@by_turns(3)
def test_mqadmin_says_the_same_of_both(broker: Broker, tmp_path: Path) -> None:
    known = set(broker.ask("admins"))
    assert known <= {command.name for command in COMMANDS}
    chosen = [one for one in COMMANDS if one.name in known & NAMES and "NoSuch" not in one.line]
    real = on_real(broker, tmp_path / "real", chosen)
    ours = on_ours(broker, tmp_path / "ours", chosen)
    for command, wanted, got in zip(chosen, real, ours, strict=True):
        assert told(command, got) == told(command, wanted), command.line
