"""Lag of groups as a file for the text collector of Prometheus' node exporter.

Names and labels are those that brokers of 5.x export themselves, and ``queue``.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from formats.topics import RETRY_PREFIX, SYSTEM_TOPICS
from rmqtool.services.consumers.groups import GroupLag
from rmqtool.services.consumers.watch import Place, place_of
from rmqtool.store.disk.durable import replace_file

_LABELS = ("cluster", "node_type", "node_id", "topic", "consumer_group", "is_retry", "is_system", "queue")


class _Lags(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def write_metrics(path: str, lags: Iterable[GroupLag], oldest: Mapping[Place, int], now: int, cluster: str) -> None:
    """Replace the file, as a whole.

    Args:
        oldest: store times (ms) of the oldest unread messages.
        now: ms.

    Raises:
        OSError: it cannot be written.
    """
    messages = GaugeMetricFamily(
        "rocketmq_consumer_lag_messages", "Messages that a group has not consumed.", labels=_LABELS
    )
    latency = GaugeMetricFamily(
        "rocketmq_consumer_lag_latency", "Age of the oldest message that a group has not consumed, ms.", labels=_LABELS
    )
    for lag in lags:
        place = place_of(lag)
        labels = (
            cluster, "broker", place[2] or "", lag.topic, lag.group, _flag(lag.topic.startswith(RETRY_PREFIX)),
            _flag(lag.topic in SYSTEM_TOPICS), str(lag.queueId),
        )  # fmt: skip
        if lag.diff is not None:
            messages.add_metric(labels, lag.behind)
            if lag.behind == 0 or place in oldest:
                latency.add_metric(labels, max(now - oldest[place], 0) if lag.behind else 0)
    registry = CollectorRegistry()
    registry.register(_Lags([messages, latency]))
    replace_file(path, generate_latest(registry), keep=False)


def _flag(value: bool) -> str:
    return "true" if value else "false"
