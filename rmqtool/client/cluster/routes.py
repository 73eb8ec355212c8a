"""Routes: where the queues of a topic are (impl.factory.MQClientInstance, producer.TopicPublishInfo). Pure rules."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from formats.errors import BadText
from formats.remoting.bodies import TopicRouteData
from formats.remoting.codes import MASTER_ID
from formats.remoting.shapes import MessageQueue, QueueData
from formats.topics import Perm
from rmqtool.rules.static_topics import NO_LEADER, mock_broker_name

_MOST_QUEUES = 1 << 16  # most queues of a topic; a route with more is damaged, and would fill the memory


@dataclass(frozen=True)
class Route:
    """The queues of a topic, in the order of the Java client.

    Attributes:
        writable: queues for producers: of brokers with a master and write permission.
        readable: queues that consumers read.
        brokers: broker name to the addresses of master (0) and slaves by broker id.
        write_queues: broker name to its number of write queues; empty for a static topic.
        ordered: fixed queues of a globally ordered topic.
        inherited: new topics inherit its permission: the template, or the name of a broker or a cluster.
        assumed: no name server knows the topic yet; its first message will create these queues.
        shared_as: the broker name by which Java's clients know the queues of a static topic; here they have their
            leader's. None for an ordinary topic.
    """

    topic: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    write_queues: Mapping[str, int]
    ordered: bool = False
    inherited: bool = False
    assumed: bool = False
    shared_as: str | None = None

    @classmethod
    def of(cls, topic: str, data: TopicRouteData, *, queue_nums: int | None = None) -> "Route":
        """The route in a name server's answer.

        Args:
            queue_nums: for the template's route, the number of queues that the client asks for.

        Raises:
            BadText: too many queues, or an invalid order.
        """
        brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
        if data.topic_queue_mapping_by_broker and queue_nums is None:
            return cls._of_static(topic, data, brokers)
        queues = sorted(data.queue_datas, key=lambda item: item.broker_name)
        if queue_nums is not None:
            counts = [min(queue_nums, item.read_queue_nums) for item in queues]
            queues = [
                QueueData(item.broker_name, count, count, item.perm, item.topic_sys_flag)
                for item, count in zip(queues, counts, strict=True)
            ]
        most = max(
            sum(max(item.read_queue_nums, 0) for item in queues), sum(max(item.write_queue_nums, 0) for item in queues)
        )
        if most > _MOST_QUEUES:
            raise BadText(0, f"a route of {most} queues; {_MOST_QUEUES} are allowed")
        writes = {
            item.broker_name: item.write_queue_nums
            for item in queues
            if item.perm & Perm.WRITE and MASTER_ID in brokers.get(item.broker_name, {})
        }
        written = writes if not data.order_topic_conf else dict(_parse_order(data.order_topic_conf))
        reads = {item.broker_name: item.read_queue_nums for item in queues if item.perm & Perm.READ}
        return cls(
            topic,
            tuple(_queues(topic, written)),
            tuple(_queues(topic, reads)),
            brokers,
            writes,
            ordered=bool(data.order_topic_conf),
            inherited=any(item.perm & Perm.INHERIT for item in queues),
            assumed=queue_nums is not None,
        )

    @classmethod
    def _of_static(cls, topic: str, data: TopicRouteData, brokers: Mapping[str, Mapping[int, str]]) -> "Route":
        """The route of a static topic: each queue at the broker that leads it by the newest mapping."""
        infos = data.topic_queue_mapping_by_broker or {}
        total = max(info.total_queues for info in infos.values())
        if total > _MOST_QUEUES:
            raise BadText(0, f"a route of {total} queues; {_MOST_QUEUES} are allowed")
        leaders: dict[int, str] = {}
        for name, info in sorted(infos.items(), key=lambda item: item[1].epoch):
            leaders |= dict.fromkeys(info.curr_id_map or {}, name)
        perms = {item.broker_name: item.perm for item in data.queue_datas}
        writes, reads = [], []
        for queue_id in range(total):
            leader = leaders.get(queue_id, NO_LEADER)
            perm = perms.get(leader, Perm.READ)  # a queue without a leader is missed, not passed over
            if perm & Perm.READ:
                reads.append(MessageQueue(topic, leader, queue_id))
            if perm & Perm.WRITE and MASTER_ID in brokers.get(leader, {}):
                writes.append(MessageQueue(topic, leader, queue_id))
        scope = next(iter(infos.values())).scope
        return cls(topic, tuple(writes), tuple(reads), brokers, {}, shared_as=mock_broker_name(scope))


def _queues(topic: str, counts: Mapping[str, int]) -> Iterator[MessageQueue]:
    for broker_name, count in counts.items():
        for queue_id in range(count):
            yield MessageQueue(topic, broker_name, queue_id)


def _parse_order(text: str) -> Iterator[tuple[str, int]]:
    """Broker name and number of queues from ``brokerA:4;brokerB:2``."""
    total = 0
    for part in text.split(";"):
        name, _, count = part.partition(":")
        if not name or not count.isdecimal() or len(count) > 9:
            raise BadText(0, f"an order of queues that cannot be read: {text[:100]!r}")
        total += int(count)
        if total > _MOST_QUEUES:
            raise BadText(0, f"a route of {total} queues; {_MOST_QUEUES} are allowed")
        yield name, int(count)
