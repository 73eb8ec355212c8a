"""The topics of brokers (namesrv.routeinfo.RouteInfoManager)."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from enum import IntFlag

from formats.model.topics import TopicConfig
from formats.remoting.shapes import MappingInfo, QueueData
from rmqtool.errors import Refused

MOST_ROWS = 1_000_000
"""Topics of all brokers that are kept, a topic of two brokers counted twice."""


class UnitFlag(IntFlag):
    """Bits of a topic's flag about units (common.sysflag.TopicSysFlag)."""

    NONE = 0
    UNIT = 1
    SUBSCRIBED = 2


class TopicRoutes:
    """Queues by topic and broker.

    Attributes:
        queues: by topic, then by broker name.
        mappings: of static topics, by topic, then by broker name.
    """

    def __init__(self) -> None:
        self.queues: dict[str, dict[str, QueueData]] = {}
        self.mappings: dict[str, dict[str, MappingInfo]] = {}
        self._rows = 0

    def has(self, topic: str, broker: str) -> bool:
        """Whether a broker has registered a topic."""
        return broker in self.queues.get(topic, ())

    def check_room(self, topics: Collection[str], broker: str) -> None:
        """Check that more topics of a broker can be entered.

        Raises:
            Refused: there are too many.
        """
        if self._rows + len(topics) > MOST_ROWS:
            new = sum(not self.has(topic, broker) for topic in topics)
            if self._rows + new > MOST_ROWS:
                raise Refused(f"more than {MOST_ROWS} topics of brokers are not kept")

    def put(self, topic: str, queues: QueueData) -> None:
        """Set a broker's queues of a topic."""
        of_topic = self.queues.setdefault(topic, {})
        self._rows += queues.broker_name not in of_topic
        of_topic[queues.broker_name] = queues

    def put_config(self, topic: str, broker: str, config: TopicConfig, perm: int) -> None:
        """The same, from a broker's settings of the topic."""
        queues = QueueData(broker, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)
        self.put(topic, queues)

    def remove(self, topic: str, brokers: Iterable[str] | None = None) -> None:
        """Remove a topic from these brokers, by default from all."""
        of_topic = self.queues.get(topic, {})
        for broker in list(of_topic) if brokers is None else brokers:
            self._rows -= of_topic.pop(broker, None) is not None
            self._forget_mapping(topic, broker)
        if not of_topic:
            self.queues.pop(topic, None)
            self.mappings.pop(topic, None)

    def _forget_mapping(self, topic: str, broker: str) -> None:
        infos = self.mappings.get(topic, {})
        infos.pop(broker, None)
        if not infos:
            self.mappings.pop(topic, None)

    def leave(self, broker: str) -> None:
        """Remove all topics of a broker."""
        for topic in [topic for topic, of_topic in self.queues.items() if broker in of_topic]:
            self.remove(topic, (broker,))
        for topic in [topic for topic, infos in self.mappings.items() if broker in infos]:
            self._forget_mapping(topic, broker)

    def change_perm(self, broker: str, change: Callable[[int], int]) -> int:
        """Change the permissions of a broker's topics; returns their number."""
        count = 0
        for of_topic in self.queues.values():
            if broker in of_topic:
                of_topic[broker] = replace(of_topic[broker], perm=change(of_topic[broker].perm))
                count += 1
        return count

    def of_brokers(self, brokers: Collection[str]) -> list[str]:
        """Topics of these brokers."""
        return [topic for topic, of_topic in self.queues.items() if any(broker in of_topic for broker in brokers)]

    def of_units(self, wanted: UnitFlag, unwanted: UnitFlag = UnitFlag.NONE) -> list[str]:
        """Topics by their flag; if brokers disagree, that of the first by name counts."""
        flags = {topic: of_topic[min(of_topic)].topic_sys_flag for topic, of_topic in self.queues.items()}
        return [topic for topic, flag in flags.items() if flag & wanted == wanted and not flag & unwanted]
