"""Metrics under the names and labels of the RocketMQ exporter, so that its dashboards and alerts work.

Left out are metrics that the exporter gets from consumers (``rocketmq_client_*``), and those of Java's thread pools,
latencies and page cache (the rest of ``rocketmq_brokeruntime_*``).

Source: exporter.collector.RMQMetricsCollector, exporter.task.MetricsCollectTask (apache/rocketmq-exporter 0.0.3).
"""

import os
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from formats.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqtool.server.broker.broker import Broker
from rmqtool.server.broker.context import counts
from rmqtool.server.metrics.figures import Figures, GroupFigures, pace

_BROKER = ("cluster", "brokerIP", "broker")
_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_TOPIC = ("cluster", "broker", "topic")
_GROUP = ("cluster", "broker", "topic", "group")
_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
# from the runtime information: metric, name there, description
_OF_RUNTIME = (
    ("commitlog_disk_ratio", "commitLogDiskRatio", "Share of the commit log's file system that is used."),
    ("consumequeue_disk_ratio", "consumeQueueDiskRatio", "Share of the queues' file system that is used."),
    ("commitlog_maxoffset", "commitLogMaxOffset", "Physical offset after the newest message."),
    ("commitlog_minoffset", "commitLogMinOffset", "Physical offset of the oldest message."),
    ("earliest_message_timestamp", "earliestMessageTimeStamp", "Store time of the oldest message in ms."),
    ("putmessage_times_total", "putMessageTimesTotal", "Messages that were stored since the start."),
    ("put_message_size_total", "putMessageSizeTotal", "Bytes of messages that were stored since the start."),
    ("put_message_average_size", "putMessageAverageSize", "Bytes of a message, on average."),
)
_MODELS = ("0", "1")  # broadcast, clustering: the order of Java's MessageModel

Sample = tuple[tuple[str, ...], float]


async def _family(name: str, description: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, description, labels=labels)
    async for values, number in pace(samples):
        # client ids may contain anything, even lone surrogates
        family.add_metric([value.encode("utf-8", "replace").decode() for value in values], number)
    return family


class MetricsSnapshot(Collector):
    """Families of one moment, as a registry collects them."""

    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> list[GaugeMetricFamily]:
        """All of them."""
        return self._families

    def registry(self) -> CollectorRegistry:
        """A registry that has them alone."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry


class Families:
    """The metrics of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._context = broker, broker.context
        self._figures = Figures(broker.context)

    async def snapshot(self) -> MetricsSnapshot:
        """A snapshot of all metrics, collected in slices between which requests are served."""
        return MetricsSnapshot(
            [*await self._of_broker(), *await self._of_topics(), *await self._of_groups(), *await self._of_clients()]
        )

    async def _of_broker(self) -> list[GaugeMetricFamily]:
        context, settings = self._context, self._context.settings
        names = (settings.cluster, settings.address, settings.name)
        table = self._broker.status.runtime_table()
        about = (table["brokerVersionDesc"], table["bootTimestamp"], str(context.release.mq_version))
        labels = (settings.cluster, settings.address, "", *about)

        def rate(name: str) -> list[Sample]:
            return [(names, context.counts.rate(name, settings.cluster))]

        async def runtime(name: str, description: str, number: float) -> GaugeMetricFamily:
            return await _family(f"rocketmq_brokeruntime_{name}", description, _RUNTIME, [(labels, number)])

        families = [
            await _family("rocketmq_broker_tps", "Messages stored per second.", _BROKER, rate(counts.BROKER_PUT)),
            await _family("rocketmq_broker_qps", "Messages handed out per second.", _BROKER, rate(counts.BROKER_GET)),
        ]
        families += [await runtime(name, description, float(table[key])) for name, key, description in _OF_RUNTIME]
        try:
            disk = os.statvfs(context.store.layout.commit_log_paths[0])
        except OSError:
            return families
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize
        families.append(await runtime("commitlogdir_capacity_total", "Bytes of the commit log's file system.", total))
        families.append(await runtime("commitlogdir_capacity_free", "Bytes that are free there.", free))
        return families

    async def _of_topics(self) -> list[GaugeMetricFamily]:
        settings = self._context.settings
        where = (settings.cluster, settings.name)
        plain, retry, dead = [], [], []
        put: list[Sample] = []
        put_bytes: list[Sample] = []
        async for figures in pace(await self._figures.topics()):
            labels, newest = (*where, figures.topic), float(figures.newest)
            if figures.topic.startswith(RETRY_PREFIX):
                retry.append((labels, newest))
                continue
            if figures.topic.startswith(DLQ_PREFIX):
                dead.append(((*where, figures.topic.removeprefix(DLQ_PREFIX)), newest))
                continue
            plain.append((labels, newest))
            put.append((labels, figures.put))
            put_bytes.append((labels, figures.put_bytes))
        in_dead = ("cluster", "broker", "group")
        return [
            await _family("rocketmq_producer_offset", "Max offsets of a topic's queues, added up.", _TOPIC, plain),
            await _family("rocketmq_topic_retry_offset", "The same of topics for retries.", _TOPIC, retry),
            await _family("rocketmq_topic_dlq_offset", "The same of dead letters.", in_dead, dead),
            await _family("rocketmq_producer_tps", "Messages per second that a topic gets.", _TOPIC, put),
            await _family("rocketmq_producer_message_size", "Bytes per second that a topic gets.", _TOPIC, put_bytes),
        ]

    async def _of_groups(self) -> list[GaugeMetricFamily]:
        settings = self._context.settings
        diff: list[Sample] = []
        retry_diff: list[Sample] = []
        known: list[tuple[tuple[str, ...], GroupFigures]] = []
        async for figures in pace(await self._figures.groups()):
            known.append(((settings.cluster, settings.name, figures.topic, figures.group), figures))
            if not figures.broadcast:
                labels = (figures.group, figures.topic, str(figures.members), _MODELS[not figures.broadcast])
                (retry_diff if figures.topic.startswith(RETRY_PREFIX) else diff).append((labels, float(figures.behind)))
        shared = [(labels, figures) for labels, figures in known if not figures.broadcast]
        first = [(labels, figures) for labels, figures in known if not figures.topic.startswith(RETRY_PREFIX)]
        waiting = [(labels, float(figures.behind)) for labels, figures in first if not figures.broadcast]
        return [
            await _family("rocketmq_group_diff", "Messages that a group has not consumed.", _DIFF, diff),
            await _family("rocketmq_group_retrydiff", "The same of its retries.", _DIFF, retry_diff),
            await _family("rocketmq_message_accumulation", "Messages that a group has not consumed.", _GROUP, waiting),
            await _family(
                "rocketmq_consumer_offset", "Offsets of a group, added up.", _GROUP,
                ((labels, float(figures.consumed)) for labels, figures in known),
            ),
            await _family(
                "rocketmq_group_get_latency_by_storetime", "Age in ms of the oldest message not consumed.", _GROUP,
                ((labels, float(figures.late)) for labels, figures in shared),
            ),
            await _family(
                "rocketmq_consumer_tps", "Messages per second that a group gets.", _GROUP,
                ((labels, figures.got) for labels, figures in first),
            ),
            await _family(
                "rocketmq_consumer_message_size", "Bytes per second that a group gets.", _GROUP,
                ((labels, figures.got_bytes) for labels, figures in first),
            ),
            await _family(
                "rocketmq_send_back_nums", "Messages that a group gave back in the last minute.", _GROUP,
                ((labels, float(figures.sent_back)) for labels, figures in first),
            ),
        ]  # fmt: skip

    async def _of_clients(self) -> list[GaugeMetricFamily]:
        clients, settings = self._context.clients, self._context.settings
        consumers: list[Sample] = []
        for name, group in clients.consumers.items():
            members = list(group.clients.values())
            peers, ids = (",".join(c.connection.peer for c in members), ",".join(c.client_id for c in members))
            consumers.append(((peers, ids, name), float(len(members))))
        producers = [
            ((settings.cluster, settings.name, name), float(len(members)))
            for name, members in clients.producers.items()
        ]
        text = "Producers of a group that are online."
        return [
            await _family(
                "rocketmq_group_count", "Consumers that are online.", ("caddr", "localaddr", "group"), consumers
            ),
            await _family("rocketmq_producer_count", text, ("cluster", "broker", "group"), producers),
        ]
