"""The table of routes: registrations of brokers, and the routes for clients. No I/O, and no clock.

Source: namesrv.routeinfo.RouteInfoManager of 5.3.3. Brokers of 4.9 get the same answers as from a name server of 4.9.
"""

from collections.abc import Collection

from formats.model.topics import DataVersion
from formats.remoting.bodies import ClusterInfo, MemberGroup, TopicList, TopicRouteData, TopicTable
from formats.remoting.codes import MASTER_ID
from formats.remoting.namesrv import BrokerAddress, RegisterBroker, Registered
from formats.remoting.shapes import BrokerData, QueueData
from formats.topics import SYNC_PREFIX, Perm
from rmqtool.errors import Refused
from rmqtool.server.namesrv.brokers import HEARTBEAT_TIMEOUT, MOST_BROKERS, Address, Brokers, Live, differs
from rmqtool.server.namesrv.topics import TopicRoutes, UnitFlag

_SYNC_GROUP = SYNC_PREFIX
"""Topics of these names are the brokers' own; their slaves are not shown as masters."""


class RouteTable:
    """Brokers, clusters and topics. Times are ms of a monotonic clock.

    Attributes:
        brokers: the brokers.
        topics: their topics.
    """

    def __init__(self) -> None:
        self.brokers, self.topics = Brokers(), TopicRoutes()

    # -- what brokers say ---------------------------------------------------------------------------------------------

    def register(
        self,
        who: RegisterBroker,
        table: TopicTable,
        filters: list[str] | None,
        *,
        zone: str | None,
        connection: object,
        now: int,
    ) -> Registered | None:
        """Register a broker and topics; topics that it registered before stay.

        Returns:
            For a slave, its master. None if another broker of this name and id has newer data, and stays.

        Raises:
            Refused: a single topic is registered before all were, or there are too many brokers or topics; nothing has
                changed.
        """
        at = Address(who.cluster_name, who.broker_addr)
        if self._is_outdated(who, table):
            self.brokers.live.pop(at, None)
            return None
        self._check(who, table)
        data = self.brokers.enter(who.cluster_name, who.broker_name)
        first = who.broker_id not in data.broker_addrs
        data.enable_acting_master, data.zone_name = who.enable_acting_master, zone
        for id, address in list(data.broker_addrs.items()):
            if address == who.broker_addr and id != who.broker_id:
                del data.broker_addrs[id]  # a slave that became master, or the reverse
        data.broker_addrs[who.broker_id] = who.broker_addr
        self._enter_topics(who, data, table, at, first)
        known = self.brokers.live.get(at)
        self.brokers.live[at] = Live(
            now,
            HEARTBEAT_TIMEOUT if who.heartbeat_timeout_millis is None else who.heartbeat_timeout_millis,
            table.data_version,
            connection,
            who.ha_server_addr,
            filters if filters is not None else known.filters if known else [],
        )
        master = self.brokers.master_of(data) if who.broker_id != MASTER_ID else None
        return (
            Registered() if master is None else Registered(ha_server_addr=master[1].ha_address, master_addr=master[0])
        )

    def _is_outdated(self, who: RegisterBroker, table: TopicTable) -> bool:
        data = self.brokers.named.get(who.broker_name)
        old = data.broker_addrs.get(who.broker_id) if data else None
        if old is None or old == who.broker_addr:
            return False
        version = self.brokers.version(Address(who.cluster_name, old))
        return version is not None and (version.state_version or 0) > (table.data_version.state_version or 0)

    def _check(self, who: RegisterBroker, table: TopicTable) -> None:
        data = self.brokers.named.get(who.broker_name)
        if data is None and len(self.brokers.named) >= MOST_BROKERS:
            raise Refused(f"more than {MOST_BROKERS} brokers are not kept")
        known = data is not None and who.broker_id in data.broker_addrs
        if not known and len(table.topic_config_table) == 1:
            raise Refused("register broker failed")  # a change from a broker that has not registered all its topics yet
        self.topics.check_room(table.topic_config_table.keys(), who.broker_name)

    def _enter_topics(self, who: RegisterBroker, data: BrokerData, table: TopicTable, at: Address, first: bool) -> None:
        """Enter topics registered by a master, or by a slave acting as master."""
        stands_in = (
            who.enable_acting_master is not None
            and who.broker_id != MASTER_ID
            and who.broker_id == min(data.broker_addrs)
        )
        if who.broker_id != MASTER_ID and not stands_in:
            return
        version = self.brokers.version(at)
        changed = first or version is None or differs(version, table.data_version)
        for name, config in table.topic_config_table.items():
            topic = config.topic_name or name
            if changed or not self.topics.has(topic, who.broker_name):
                read_only = stands_in and who.enable_acting_master
                perm = config.perm & ~Perm.WRITE if read_only else config.perm
                self.topics.put_config(topic, who.broker_name, config, perm)
        if changed:
            for topic, info in (table.topic_queue_mapping_info_map or {}).items():
                self.topics.mappings.setdefault(topic, {})[who.broker_name] = info

    def compare_version(self, who: BrokerAddress, version: DataVersion, now: int) -> tuple[bool, DataVersion | None]:
        """(whether a broker must register again, the known version of its topics)."""
        at = Address(who.cluster_name, who.broker_addr)
        self.brokers.refresh(at, now)
        known = self.brokers.version(at)
        return known is None or differs(known, version), known

    def heartbeat(self, cluster: str, address: str, now: int) -> None:
        """Note a heartbeat."""
        self.brokers.refresh(Address(cluster, address), now)

    def unregister(self, cluster: str, address: str, name: str) -> None:
        """Unregister a broker, and with the last of its name their topics."""
        if self.brokers.leave(Address(cluster, address), name):
            self.topics.leave(name)
            return
        data = self.brokers.named.get(name)
        if data is not None and data.enable_acting_master and MASTER_ID not in data.broker_addrs:
            self.topics.change_perm(name, lambda perm: perm & ~Perm.WRITE)

    def end_connection(self, connection: object) -> list[Address]:
        """Remove and return the brokers that registered over a closed connection."""
        return self._forget_lost(self.brokers.over(connection))

    def expire(self, now: int) -> list[Address]:
        """Remove and return brokers whose heartbeats are overdue."""
        return self._forget_lost(self.brokers.find_expired(now))

    def _forget_lost(self, addresses: Collection[Address]) -> list[Address]:
        for at in addresses:
            name = self.brokers.name_at(at)
            if name is None:
                self.brokers.live.pop(at, None)
            else:
                self.unregister(at.cluster, at.address, name)
        return list(addresses)

    # -- what administrators say --------------------------------------------------------------------------------------

    def wipe_write(self, broker: str) -> int:
        """Withdraw the write permission of a broker; returns its number of topics."""
        return self.topics.change_perm(broker, lambda perm: perm & ~Perm.WRITE)

    def add_write(self, broker: str) -> int:
        """Restore the write permission of a broker; returns its number of topics."""
        return self.topics.change_perm(broker, lambda perm: Perm.READ | Perm.WRITE)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Delete a topic, everywhere or in one cluster."""
        self.topics.remove(topic, self.brokers.clusters.get(cluster, ()) if cluster else None)

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Register a topic for brokers, if all of them are known."""
        if all(data.broker_name in self.brokers.named for data in queues):
            self.topics.check_room([topic] * len(queues), "")
            for data in queues:
                self.topics.put(topic, data)

    # -- what clients ask ---------------------------------------------------------------------------------------------

    def route(self, topic: str, *, acting_master: bool = False, zone: str | None = None) -> TopicRouteData | None:
        """The route of a topic; None if no known broker has it.

        Args:
            acting_master: show the first slave of a broker without a master as its master, if it permits that.
            zone: only brokers of this zone, and those without a master.
        """
        of_topic = self.topics.queues.get(topic, {})
        brokers = [_copy(self.brokers.named[name]) for name in of_topic if name in self.brokers.named]
        if not brokers:
            return None
        queues = list(of_topic.values())
        if acting_master and not topic.startswith(_SYNC_GROUP):
            for data in brokers:
                _stand_in(data, of_topic[data.broker_name])
        if zone:
            far = {data.broker_name for data in brokers if MASTER_ID in data.broker_addrs and not _is_in(data, zone)}
            brokers = [data for data in brokers if data.broker_name not in far]
            queues = [data for data in queues if data.broker_name not in far]
        filters = {
            address: list(self.brokers.live[at].filters)
            for data in brokers
            for address in data.broker_addrs.values()
            if (at := Address(data.cluster, address)) in self.brokers.live and self.brokers.live[at].filters
        }
        return TopicRouteData(brokers, queues, filters, None, self.topics.mappings.get(topic))

    def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        return ClusterInfo(
            dict(self.brokers.named), {cluster: list(names) for cluster, names in self.brokers.clusters.items()}
        )

    def members(self, cluster: str, name: str) -> MemberGroup:
        """A broker and its slaves."""
        data = self.brokers.named.get(name)
        return MemberGroup(cluster, name, dict(data.broker_addrs) if data else {})

    def all_topics(self) -> TopicList:
        """Every topic."""
        return TopicList(list(self.topics.queues))

    def cluster_topics(self, cluster: str) -> TopicList:
        """Topics of the brokers of a cluster."""
        return TopicList(self.topics.of_brokers(self.brokers.clusters.get(cluster, {})))

    def system_topics(self) -> TopicList:
        """(names of clusters and brokers, which are topics too, the address of one broker)."""
        names = [name for cluster, of in self.brokers.clusters.items() for name in (cluster, *of)]
        addresses = (address for data in self.brokers.named.values() for address in data.broker_addrs.values())
        return TopicList(list(dict.fromkeys(names)), next(addresses, None))

    def unit_topics(self, wanted: UnitFlag, unwanted: UnitFlag = UnitFlag.NONE) -> TopicList:
        """Topics by their unit flag."""
        return TopicList(self.topics.of_units(wanted, unwanted))


def _copy(data: BrokerData) -> BrokerData:
    addresses = dict(sorted(data.broker_addrs.items()))
    return BrokerData(data.cluster, data.broker_name, addresses, data.zone_name, data.enable_acting_master)


def _stand_in(data: BrokerData, queues: QueueData) -> None:
    if data.broker_addrs and MASTER_ID not in data.broker_addrs and data.enable_acting_master:
        if queues.perm & Perm.WRITE:
            return
        address = data.broker_addrs.pop(min(data.broker_addrs))
        data.broker_addrs = {MASTER_ID: address, **data.broker_addrs}


def _is_in(data: BrokerData, zone: str) -> bool:
    return (data.zone_name or "").lower() == zone.lower()
