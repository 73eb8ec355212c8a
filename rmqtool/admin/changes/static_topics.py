"""A broker's part of a static topic (5.x): how it is read and written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from formats.config.files_of_5 import LogicQueueMapping, TopicQueueMapping
from formats.fastjson.declare import body_of
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import AUTO_CREATE
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.live.questions import Node, Questions
from rmqtool.admin.live.static_topics import fetch_part
from rmqtool.admin.live.tables import fetch_ranges
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.rules.static_topics import (
    is_decided,
    static_offset,
)
from rmqtool.words import command_line

MAPPING = "mapping"


class StaticTopicParts(ValueKind):
    """A topic and a broker's part of its queues; the name is the topic's."""

    name, fields = "static-topic", True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        values: dict[Name, Value] = {}
        for name in names:
            part = await fetch_part(questions, node, name[0])
            if part is not None:
                mapping = part.mapping_detail
                values[name] = {
                    "readQueueNums": part.read_queue_nums,
                    "writeQueueNums": part.write_queue_nums,
                    "perm": part.perm,
                    MAPPING: None if mapping is None else plain(mapping),
                }
        return values

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        (topic,) = change.place.name
        if change.after is None:
            await questions.send(node, C.DELETE_TOPIC_IN_BROKER, h.Topic(topic=topic))
            return
        after: dict[str, Any] = change.after
        mapping = TopicQueueMapping.read(after[MAPPING])
        await _check_ends(questions, node, topic, mapping)
        header = h.CreateTopic(
            topic=topic,
            default_topic=AUTO_CREATE,
            read_queue_nums=after["readQueueNums"],
            write_queue_nums=after["writeQueueNums"],
            perm=after["perm"],
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            force=False,
        )
        await questions.send(node, C.UPDATE_AND_CREATE_STATIC_TOPIC, header, body_of(mapping))

    @classmethod
    def show(cls, value: Value) -> Value:
        """Settings, and each queue's ranges: ``lab-a/3@0,lab-b/0@10000`` are two; ``?`` if one's beginning is open."""
        if value is None:
            return None
        mapping = value[MAPPING]
        if mapping is None:
            return value
        part = TopicQueueMapping.read(mapping)
        shown = {name: number for name, number in value.items() if name != MAPPING}
        shown |= {"epoch": part.epoch, "totalQueues": part.total_queues}
        for queue_id, ranges in sorted(part.hosted_queues.items()):
            shown[f"queue {queue_id}"] = ",".join(map(_text, ranges))
        return shown

    @classmethod
    def why_stays(cls, change: ValueChange) -> str | None:
        """Queues of a static topic are never taken away, but with the topic; they can be moved once more."""
        if change.before is None or change.after is None:
            return None
        again = command_line("static-topic", "remap")
        return f"its queues cannot be taken back, as consumers have their offsets; {again} moves them once more"


async def _check_ends(questions: Questions, node: Node, topic: str, mapping: TopicQueueMapping) -> None:
    """Check that earlier ranges end before the ranges that begin on a broker.

    Raises:
        BrokerError: one has grown meanwhile. ClientError, Unanswered: its broker does not answer.
    """
    nodes = {each.name: each for each in await questions.nodes() if each.is_master}
    for queue_id, ranges in mapping.hosted_queues.items():
        if len(ranges) < 2 or ranges[-1].broker_name != node.name or not is_decided(ranges[-1]):
            continue
        before, last = ranges[-2:]
        other = nodes.get(before.broker_name or "")
        if other is None:
            continue  # it is known to have ended: nobody can have written to it
        end = await fetch_end(questions, other, topic, before)
        if static_offset(before, end) > last.logic_offset:
            remark = f"queue {queue_id} has grown to {static_offset(before, end)} meanwhile: run the same again"
            raise BrokerError(Command(ResponseCode.SYSTEM_ERROR, remark=remark), other.address)


async def fetch_end(questions: Questions, node: Node, topic: str, item: LogicQueueMapping) -> int:
    """The physical end of a range's queue.

    Raises:
        ClientError: its broker does not answer.
    """
    ranges = await fetch_ranges(questions, [(node, topic)])
    if ranges.missing:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed")
    queue = ranges.of(node, topic).get(item.queue_id)
    return 0 if queue is None else max(queue.max_offset, 0)


def plain(mapping: TopicQueueMapping) -> dict[str, Value]:
    """A mapping as JSON values. What a broker derives from its ranges is left out."""
    values: dict[str, Value] = json.loads(body_of(replace(mapping, current_ids={}), quote_numbers=True))
    return values


def _text(item: LogicQueueMapping) -> str:
    begin = item.logic_offset if is_decided(item) else "?"
    return f"{item.broker_name}/{item.queue_id}@{begin}"
