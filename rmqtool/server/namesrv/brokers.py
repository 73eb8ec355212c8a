"""Registered brokers and their liveness (namesrv.routeinfo.RouteInfoManager)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from formats.model.topics import DataVersion
from formats.remoting.codes import MASTER_ID
from formats.remoting.shapes import BrokerData

HEARTBEAT_TIMEOUT = 120_000
"""ms without a word of a broker until it counts as gone, where it does not name another time itself."""

MOST_BROKERS = 10_000


class Address(NamedTuple):
    """Where a broker listens; clusters do not see each other's brokers."""

    cluster: str
    address: str


@dataclass
class Live:
    """A broker that has registered.

    Attributes:
        seen: time of its last heartbeat, ms of the table's clock.
        timeout: ms without a heartbeat until it counts as gone.
        version: of its topics.
        connection: of its registration; any object with an identity.
        ha_address: where slaves copy from it.
        filters: addresses of its filter servers.
    """

    seen: int
    timeout: int
    version: DataVersion
    connection: object
    ha_address: str
    filters: list[str] = field(default_factory=list)


def differs(left: DataVersion, right: DataVersion) -> bool:
    """Whether two versions differ (DataVersion.equals); 4.x has no state version."""
    return (left.timestamp, left.counter, left.state_version or 0) != (
        (right.timestamp, right.counter, right.state_version or 0)
    )


class Brokers:
    """Names, clusters and addresses.

    Attributes:
        named: by name, a broker and its slaves.
        clusters: the names of each cluster, in the order of registration.
        live: by address.
    """

    def __init__(self) -> None:
        self.named: dict[str, BrokerData] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        self.live: dict[Address, Live] = {}

    def version(self, at: Address) -> DataVersion | None:
        """The version of the topics that a broker registered, or None."""
        live = self.live.get(at)
        return None if live is None else live.version

    def refresh(self, at: Address, now: int) -> None:
        """Note a heartbeat of a broker."""
        if at in self.live:
            self.live[at].seen = now

    def enter(self, cluster: str, name: str) -> BrokerData:
        """The entry of a broker, created if missing."""
        self.clusters.setdefault(cluster, {})[name] = None
        return self.named.setdefault(name, BrokerData(cluster, name, {}))

    def leave(self, at: Address, name: str) -> bool:
        """Remove a broker; returns whether it was the last of its name."""
        self.live.pop(at, None)
        data = self.named.get(name)
        if data is None:
            return False
        for id, address in list(data.broker_addrs.items()):
            if address == at.address:
                del data.broker_addrs[id]
        if data.broker_addrs:
            return False
        del self.named[name]
        for cluster in {at.cluster, data.cluster}:
            names = self.clusters.get(cluster, {})
            names.pop(name, None)
            if not names:
                self.clusters.pop(cluster, None)
        return True

    def name_at(self, at: Address) -> str | None:
        """The name of the broker at an address."""
        for name, data in self.named.items():
            if data.cluster == at.cluster and at.address in data.broker_addrs.values():
                return name
        return None

    def find_expired(self, now: int) -> list[Address]:
        """Brokers whose heartbeats are overdue."""
        return [at for at, live in self.live.items() if live.seen + live.timeout < now]

    def over(self, connection: object) -> list[Address]:
        """Brokers that registered over a connection."""
        return [at for at, live in self.live.items() if live.connection is connection]

    def master_of(self, data: BrokerData) -> tuple[str, Live] | None:
        """(address, entry) of a broker's master, if there is one."""
        address = data.broker_addrs.get(MASTER_ID)
        if address is None:
            return None
        live = self.live.get(Address(data.cluster, address))
        return None if live is None else (address, live)
