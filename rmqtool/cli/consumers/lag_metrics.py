"""Lag of groups for Prometheus: a file for the text collector of its node exporter, or a page.

Names and labels are those that brokers of 5.x export themselves, and ``queue``.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from formats.topics import RETRY_PREFIX, SYSTEM_TOPICS
from rmqtool.errors import BadValue, Refused
from rmqtool.services.consumers.groups import GroupLag
from rmqtool.services.consumers.watch import Place, place_of
from rmqtool.store.disk.durable import write_named

_LABELS = ("cluster", "node_type", "node_id", "topic", "consumer_group", "is_retry", "is_system", "queue")


class _Lags(Collector):
    def __init__(self) -> None:
        self.families: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        return self.families


class MetricsFile:
    """A file, replaced as a whole in each round. One that fails leaves it as it is: a collector sees its age."""

    def __init__(self, path: str) -> None:
        self._path = path

    def show(
        self, lags: Iterable[GroupLag], oldest: Mapping[Place, int], now: int, clusters: Mapping[str, str]
    ) -> None:
        """Replace it; for arguments see :func:`families_of`.

        Raises:
            OSError: it cannot be written.
        """
        registry, shown = CollectorRegistry(), _Lags()
        registry.register(shown)
        shown.families = families_of(lags, oldest, now, clusters)
        write_named(self._path, generate_latest(registry))

    def clear(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class LagMetricsPage:
    """A page with the newest round; without metrics after one that failed.

    Args:
        place: ``HOST:PORT``, or ``:PORT`` for all addresses of the machine.

    Attributes:
        address: HOST:PORT.

    Raises:
        BadValue: not a port.
        Refused: the address is in use, or not one of this machine.
    """

    def __init__(self, place: str) -> None:
        host, _, port = place.rpartition(":")
        if int(port) > 0xFFFF:
            raise BadValue(f"--prometheus {place}: not a port")
        self._shown, registry = _Lags(), CollectorRegistry()
        registry.register(self._shown)
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]") or "0.0.0.0", registry)
        except OSError as err:
            raise Refused(f"--prometheus {place}: {err.strerror or err}") from None
        self.address = f"{host or '0.0.0.0'}:{self._server.server_port}"

    def show(
        self, lags: Iterable[GroupLag], oldest: Mapping[Place, int], now: int, clusters: Mapping[str, str]
    ) -> None:
        """Replace the round; for arguments see :func:`families_of`."""
        self._shown.families = families_of(lags, oldest, now, clusters)

    def clear(self) -> None:
        """Show no metrics, after a round that failed."""
        self._shown.families = []

    def close(self) -> None:
        """End the page."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def families_of(
    lags: Iterable[GroupLag], oldest: Mapping[Place, int], now: int, clusters: Mapping[str, str]
) -> list[Metric]:
    """The metrics of a round.

    Args:
        oldest: store times (ms) of the oldest unread messages.
        now: ms.
        clusters: the cluster of each broker, by name; ``""`` for rows without a broker.
    """
    messages = GaugeMetricFamily(
        "rocketmq_consumer_lag_messages", "Messages that a group has not consumed.", labels=_LABELS
    )
    latency = GaugeMetricFamily(
        "rocketmq_consumer_lag_latency", "Age of the oldest message that a group has not consumed, ms.", labels=_LABELS
    )
    for lag in lags:
        place = place_of(lag)
        broker = place[2] or ""
        labels = (
            clusters.get(broker, ""), "broker", broker, lag.topic, lag.group, _flag(lag.topic.startswith(RETRY_PREFIX)),
            _flag(lag.topic in SYSTEM_TOPICS), str(lag.queueId),
        )  # fmt: skip
        if lag.diff is not None:
            messages.add_metric(labels, lag.behind)
            if lag.behind == 0 or place in oldest:
                latency.add_metric(labels, max(now - oldest[place], 0) if lag.behind else 0)
    return [messages, latency]


def _flag(value: bool) -> str:
    return "true" if value else "false"
