"""What brokers remove when asked to clean up; none of it can be put back."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from formats.remoting.codes import RequestCode as C
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.live.cleaning import fetch_expired_queues, fetch_log_start, find_unsettled_topics
from rmqtool.admin.live.questions import Node, Questions
from rmqtool.words import counted

FILES = 10
"""Files that a broker removes every 10 s."""


class _Cleaning(ValueKind):
    """What a broker removes by a request without arguments."""

    undone = False
    code: ClassVar[C]

    def __init__(self) -> None:
        self._asked: set[Node] = set()

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        if node not in self._asked:  # one request for all of it
            self._asked.add(node)
            await questions.send(node, self.code)

    @classmethod
    def tell_apart(cls, now: Value, wanted: Value) -> str:
        return "the broker has kept it"


class LogStarts(_Cleaning):
    """The physical offset at which a broker's log begins; the name is ``commitlog``."""

    name, code = "log-start", C.DELETE_EXPIRED_COMMITLOG

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        return dict.fromkeys(names, await fetch_log_start(questions, node))

    @classmethod
    def went_on(cls, change: ValueChange, now: Value) -> bool:
        return now is not None and bool(now > change.after)

    @classmethod
    def tell_apart(cls, now: Value, wanted: Value) -> str:
        pace = f"brokers remove at most {counted(FILES, 'file')} every 10 s, by the times of the files"
        return f"the log begins at {now}; {pace}"


class ExpiredQueues(_Cleaning):
    """Queues whose messages are no longer in the log: the next offset; the name is topic and queue id."""

    name, code = "queue", C.CLEAN_EXPIRED_CONSUMEQUEUE

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        expired = await fetch_expired_queues(questions, node, {topic for topic, _queue_id in names})
        ends = {(topic, str(queue_id)): end for (topic, queue_id), end in expired.items()}
        return {name: ends[name] for name in names if name in ends}


class UnusedQueues(_Cleaning):
    """Queues of topics without settings: the number of messages; the name is the topic's."""

    name, code = "queues", C.CLEAN_UNUSED_TOPIC

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        masters = [other for other in await questions.masters() if other.cluster == node.cluster]
        counts = await find_unsettled_topics(questions, masters)
        return {name: counts[node, name[0]] for name in names if (node, name[0]) in counts}
