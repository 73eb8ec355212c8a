"""What groups have beside their settings: whether they pull or pop, and how much cold data they may read (5.x)."""

from collections.abc import Mapping, Sequence

from formats.config.files_of_5 import MessageRequestModes
from formats.fastjson.declare import body_of
from formats.remoting.bodies import SetRequestMode
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.live.cold_data import fetch_cold_tables
from rmqtool.admin.live.questions import Node, Questions

_NONE = "No message request mode"


class Modes(ValueKind):
    """How a group reads a topic; the name is group and topic. A broker that has no entry lets it pull."""

    name, fields = "mode", True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        read = MessageRequestModes.parse
        answer = await questions.fetch(
            node, C.GET_ALL_MESSAGE_REQUEST_MODE, read, what="modes of groups are", absent=(_NONE,)
        )
        modes = {} if answer is None else answer.modes
        values: dict[Name, Value] = {}
        for group, topic in names:
            mode = modes.get(topic, {}).get(group)
            values[group, topic] = {
                "mode": "PULL" if mode is None else mode.mode,
                "popShareQueueNum": 0 if mode is None else mode.pop_share_queue_num,
            }
        return values

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        group, topic = change.place.name
        body = SetRequestMode(topic, group, change.after["mode"], change.after["popShareQueueNum"])
        await questions.send(node, C.SET_MESSAGE_REQUEST_MODE, None, body_of(body))


class ColdThresholds(ValueKind):
    """How many bytes of cold data a group may read; the name is the group's."""

    name = "cold-data"

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        thresholds = (await fetch_cold_tables(questions, node)).thresholds
        return {name: thresholds[name[0]] for name in names if name[0] in thresholds}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        (group,) = change.place.name
        if change.after is None:
            await questions.send(node, C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, group.encode())
        else:
            body = f"{group}={change.after}\n".encode()
            await questions.send(node, C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, body)
