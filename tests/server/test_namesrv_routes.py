"""The routing table by itself, with a clock set by the test."""

from typing import Any

import pytest

from formats.model.topics import DataVersion, TopicConfig
from formats.remoting.bodies import TopicTable
from formats.remoting.namesrv import BrokerAddress, RegisterBroker, Registered
from formats.remoting.shapes import MappingInfo, QueueData
from rmqtool.errors import Refused
from rmqtool.server.namesrv import topics as topics_module
from rmqtool.server.namesrv.brokers import HEARTBEAT_TIMEOUT, Address
from rmqtool.server.namesrv.routes import RouteTable
from rmqtool.server.namesrv.topics import UnitFlag
from tests.server.name_servers import ADDRESS, BROKER, CLUSTER, topics, version

SLAVE = "192.0.2.2:10911"
FIRST = version()


class Table(RouteTable):
    """A table with shortcuts to fill it."""

    now = 0

    def enter(
        self,
        *names: str,
        id: int = 0,
        address: str = ADDRESS,
        name: str = BROKER,
        cluster: str = CLUSTER,
        version: DataVersion = FIRST,
        connection: object = None,
        zone: str | None = None,
        filters: list[str] | None = None,
        table: TopicTable | None = None,
        perm: int = 6,
        **more: Any,
    ) -> Registered | None:
        who = RegisterBroker(
            broker_name=name, broker_addr=address, cluster_name=cluster, broker_id=id, ha_server_addr=f"ha-{address}",
            **more,
        )  # fmt: skip
        table = table or TopicTable(topics(*names, perm=perm), version)
        return self.register(who, table, filters, zone=zone, connection=connection, now=self.now)

    def perm(self, topic: str, broker: str = BROKER) -> int:
        return self.topics.queues[topic][broker].perm

    def addresses(self, topic: str, **how: Any) -> dict[str, dict[int, str]]:
        route = self.route(topic, **how)
        return {} if route is None else {data.broker_name: data.broker_addrs for data in route.broker_datas}

    def is_empty(self) -> bool:
        known = self.brokers
        return not (known.named or known.clusters or known.live or self.topics.queues or self.topics.mappings) and (
            self.topics._rows == 0
        )


@pytest.fixture
def table() -> Table:
    return Table()


# -- registering ------------------------------------------------------------------------------------------------------


def test_a_broker_is_found_by_its_topics(table: Table) -> None:
    table.enter("Orders")
    route = table.route("Orders")
    assert route is not None
    assert [(data.cluster, data.broker_name, data.broker_addrs) for data in route.broker_datas] == [
        (CLUSTER, BROKER, {0: ADDRESS})
    ]
    assert route.queue_datas == [QueueData(BROKER, 4, 4, 6, 0)]
    assert (route.filter_server_table, route.order_topic_conf, route.topic_queue_mapping_by_broker) == ({}, None, None)
    assert table.route("Payments") is None
    info = table.cluster_info()
    assert info.cluster_addr_table == {CLUSTER: [BROKER]}
    assert list(info.broker_addr_table) == [BROKER]


def test_topics_that_are_not_registered_again_stay(table: Table) -> None:
    table.enter("Orders", "Payments")
    table.enter("Orders", version=version(2))
    assert table.addresses("Payments") == {BROKER: {0: ADDRESS}}


def test_topics_change_only_with_their_version(table: Table) -> None:
    table.enter("Orders")
    table.wipe_write(BROKER)
    table.enter("Orders", "New")  # the same version: what administrators said stays, but topics may come
    assert (table.perm("Orders"), table.perm("New")) == (4, 6)
    table.enter("Orders", version=version(2))
    assert table.perm("Orders") == 6


def test_a_version_without_state_is_that_with_state_0(table: Table) -> None:
    table.enter("Orders", version=version(1, None))
    table.wipe_write(BROKER)
    table.enter("Orders", version=version(1, 0))
    assert table.perm("Orders") == 4


def test_a_change_of_one_topic_needs_all_of_them_first(table: Table) -> None:
    value = TopicTable({"Orders": TopicConfig(topic_name="Orders")}, version(2))
    with pytest.raises(Refused, match=r"^register broker failed$"):
        table.enter(table=value)
    assert table.is_empty()
    table.enter("Payments")
    table.enter(table=value)
    assert table.addresses("Orders") == table.addresses("Payments") == {BROKER: {0: ADDRESS}}


def test_a_topic_has_the_name_that_its_table_says_where_it_has_none_itself(table: Table) -> None:
    table.enter(table=TopicTable({"A": TopicConfig(), "B": TopicConfig(topic_name="B")}, version()))
    assert set(table.topics.queues) == {"A", "B"}


def test_a_slave_hears_of_its_master_and_adds_no_topics(table: Table) -> None:
    assert table.enter("Orders", id=1, address=SLAVE) == Registered()
    assert table.route("Orders") is None
    assert table.enter("Orders") == Registered()
    assert table.enter("Slaves", id=1, address=SLAVE) == Registered(ha_server_addr=f"ha-{ADDRESS}", master_addr=ADDRESS)
    assert table.addresses("Orders") == {BROKER: {0: ADDRESS, 1: SLAVE}}
    assert table.route("Slaves") is None


def test_an_address_has_one_id(table: Table) -> None:
    table.enter("Orders")
    table.enter("Orders", id=1, address=SLAVE)
    table.unregister(CLUSTER, ADDRESS, BROKER)
    table.enter("Orders", id=0, address=SLAVE, version=version(2))
    assert table.addresses("Orders") == {BROKER: {0: SLAVE}}


def test_of_two_masters_the_one_with_the_newer_state_stays(table: Table) -> None:
    table.enter("Orders", version=version(1, 5))
    assert table.enter("Other", address=SLAVE, version=version(9, 4)) is None
    assert table.route("Other") is None
    assert table.addresses("Orders") == {BROKER: {0: ADDRESS}}
    assert Address(CLUSTER, SLAVE) not in table.brokers.live
    table.enter("Other", address=SLAVE, version=version(9, 6))
    assert table.addresses("Orders") == {BROKER: {0: SLAVE}}


def test_filter_servers_go_with_the_route(table: Table) -> None:
    table.enter("Orders", filters=["192.0.2.9:1"])
    table.enter("Orders", filters=None)  # says nothing of them
    assert table.route("Orders").filter_server_table == {ADDRESS: ["192.0.2.9:1"]}  # type: ignore[union-attr]
    table.enter("Orders", filters=[])
    assert table.route("Orders").filter_server_table == {}  # type: ignore[union-attr]


def test_static_topics_go_with_the_route_and_with_their_broker(table: Table) -> None:
    info = MappingInfo("Fixed", total_queues=8, bname="whoever", curr_id_map={0: 1})
    table.enter(table=TopicTable(topics("Fixed"), version(), topic_queue_mapping_info_map={"Fixed": info}))
    assert table.route("Fixed").topic_queue_mapping_by_broker == {BROKER: info}  # type: ignore[union-attr]
    table.unregister(CLUSTER, ADDRESS, BROKER)
    assert table.is_empty()


def test_too_much_is_refused_and_leaves_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "MOST_ROWS", 5)
    table.enter("Orders")
    with pytest.raises(Refused, match="more than 5 topics"):
        table.enter("A", "B", "C", name="lab-b", address=SLAVE)
    assert list(table.brokers.named) == [BROKER]
    table.enter("Orders", "A", "B", version=version(2))  # topics that are there already do not count again
    table.enter("Orders", "A", "B", version=version(3))
    with pytest.raises(Refused):
        table.register_topic("C", [QueueData(BROKER, 1, 1, 6)])
    monkeypatch.setattr("rmqtool.server.namesrv.routes.MOST_BROKERS", 1)
    table.delete_topic("Orders", None)
    with pytest.raises(Refused, match="more than 1 brokers"):
        table.enter(name="lab-b", address=SLAVE)


# -- leaving ----------------------------------------------------------------------------------------------------------


def test_the_last_of_a_name_takes_its_topics_along(table: Table) -> None:
    table.enter("Orders")
    table.enter("Orders", id=1, address=SLAVE)
    table.enter("Orders", name="lab-b", address="192.0.2.3:1")
    table.unregister(CLUSTER, ADDRESS, BROKER)
    assert table.addresses("Orders") == {BROKER: {1: SLAVE}, "lab-b": {0: "192.0.2.3:1"}}
    table.unregister(CLUSTER, SLAVE, BROKER)
    assert table.addresses("Orders") == {"lab-b": {0: "192.0.2.3:1"}}
    assert table.cluster_info().cluster_addr_table == {CLUSTER: ["lab-b"]}
    table.unregister(CLUSTER, "192.0.2.3:1", "lab-b")
    assert table.is_empty()
    table.unregister(CLUSTER, ADDRESS, BROKER)  # nobody of that name
    assert table.is_empty()


def test_a_broker_that_is_silent_for_120_s_expires(table: Table) -> None:
    table.enter("Orders")
    assert table.expire(HEARTBEAT_TIMEOUT) == []
    assert table.expire(HEARTBEAT_TIMEOUT + 1) == [Address(CLUSTER, ADDRESS)]
    assert table.is_empty()


def test_whatever_is_heard_of_a_broker_keeps_it(table: Table) -> None:
    who = BrokerAddress(broker_name=BROKER, broker_addr=ADDRESS, cluster_name=CLUSTER, broker_id=0)
    assert table.compare_version(who, version(), 0) == (True, None)
    table.enter("Orders")
    assert table.compare_version(who, version(), 100_000) == (False, version())
    assert table.expire(220_000) == []
    table.heartbeat(CLUSTER, ADDRESS, 220_000)
    assert table.compare_version(who, version(2), 330_000) == (True, version())
    table.heartbeat("other", ADDRESS, 400_000)  # of another cluster
    table.now = 440_000
    table.enter("Orders")
    assert table.expire(560_000) == []
    assert len(table.expire(560_001)) == 1


def test_a_broker_may_name_its_own_time(table: Table) -> None:
    table.enter("Orders", heartbeat_timeout_millis=3000)
    assert table.expire(3000) == []
    assert len(table.expire(3001)) == 1


def test_with_its_connection_a_broker_goes(table: Table) -> None:
    first, second = object(), object()
    table.enter("Orders", connection=first)
    table.enter("Orders", name="lab-b", address=SLAVE, connection=first)
    table.enter("Orders", connection=second)  # it has connected again
    assert table.end_connection(first) == [Address(CLUSTER, SLAVE)]
    assert table.addresses("Orders") == {BROKER: {0: ADDRESS}}
    assert table.end_connection(first) == []
    assert table.end_connection(second) == [Address(CLUSTER, ADDRESS)]
    assert table.is_empty()


def test_a_connection_of_a_broker_that_another_has_replaced_takes_nothing_along(table: Table) -> None:
    old, new = object(), object()
    table.enter("Orders", connection=old)
    table.enter("Orders", address=SLAVE, connection=new, version=version(2))
    table.end_connection(old)
    assert table.addresses("Orders") == {BROKER: {0: SLAVE}}
    assert Address(CLUSTER, ADDRESS) not in table.brokers.live


# -- slaves that stand in ---------------------------------------------------------------------------------------------


def test_the_first_slave_stands_in_for_its_master_read_only(table: Table) -> None:
    table.enter("Orders", enable_acting_master=True)
    for id in (2, 1):
        table.enter("Orders", id=id, address=f"192.0.2.{id}:1", enable_acting_master=True)
    assert table.addresses("Orders", acting_master=True)[BROKER][0] == ADDRESS
    table.unregister(CLUSTER, ADDRESS, BROKER)
    assert table.perm("Orders") == 4
    assert table.addresses("Orders") == {BROKER: {1: "192.0.2.1:1", 2: "192.0.2.2:1"}}
    assert table.addresses("Orders", acting_master=True) == {BROKER: {0: "192.0.2.1:1", 2: "192.0.2.2:1"}}
    # what it tells of topics counts now, but nobody may send to it
    table.enter("New", id=1, address="192.0.2.1:1", enable_acting_master=True, version=version(2))
    assert table.perm("New") == 4
    table.enter("Ignored", id=2, address="192.0.2.2:1", enable_acting_master=True, version=version(2))
    assert table.route("Ignored") is None
    table.enter("Orders", enable_acting_master=True, version=version(3))
    assert table.perm("Orders") == 6


def test_no_slave_stands_in_where_the_broker_does_not_want_it(table: Table) -> None:
    table.enter("Orders", enable_acting_master=False)
    table.enter("Orders", id=1, address=SLAVE, enable_acting_master=False)
    table.unregister(CLUSTER, ADDRESS, BROKER)
    assert table.perm("Orders") == 6
    assert table.addresses("Orders", acting_master=True) == {BROKER: {1: SLAVE}}
    table.enter("New", id=1, address=SLAVE, enable_acting_master=False, version=version(2))
    assert table.perm("New") == 6


def test_topics_in_which_brokers_find_each_other_show_the_slaves_as_they_are(table: Table) -> None:
    sync = f"rmq_sys_SYNC_BROKER_MEMBER_{BROKER}"
    table.enter(sync, enable_acting_master=True)
    table.enter(sync, id=1, address=SLAVE, enable_acting_master=True)
    table.unregister(CLUSTER, ADDRESS, BROKER)
    assert table.addresses(sync, acting_master=True) == {BROKER: {1: SLAVE}}


# -- zones ------------------------------------------------------------------------------------------------------------


def test_a_zone_sees_its_own_brokers_and_those_without_a_master(table: Table) -> None:
    table.enter("Orders", zone="east", filters=["192.0.2.9:1"])
    table.enter("Orders", name="lab-b", address="192.0.2.3:1", zone="west", filters=["192.0.2.9:2"])
    table.enter("Orders", name="lab-c", address="192.0.2.4:1", zone="west")
    table.enter("Orders", name="lab-c", address="192.0.2.5:1", id=1, zone="west")
    table.unregister(CLUSTER, "192.0.2.4:1", "lab-c")
    route = table.route("Orders", zone="EAST")
    assert route is not None
    assert {data.broker_name for data in route.broker_datas} == {BROKER, "lab-c"}
    assert {data.broker_name for data in route.queue_datas} == {BROKER, "lab-c"}
    assert set(route.filter_server_table) == {ADDRESS}
    assert set(table.addresses("Orders")) == {BROKER, "lab-b", "lab-c"}
    empty = table.route("Orders", zone="north")
    assert empty is not None
    assert {data.broker_name for data in empty.broker_datas} == {"lab-c"}


# -- administrators ---------------------------------------------------------------------------------------------------


def test_permissions_are_taken_and_given(table: Table) -> None:
    table.enter("Orders", perm=7)
    table.enter("Orders", name="lab-b", address=SLAVE)
    assert table.wipe_write(BROKER) == 3
    assert (table.perm("Orders"), table.perm("Orders", "lab-b")) == (5, 6)
    assert table.add_write(BROKER) == 3
    assert table.perm("Orders") == 6
    assert table.wipe_write("nobody") == table.add_write("nobody") == 0


def test_a_topic_is_deleted_of_a_cluster_or_of_all(table: Table) -> None:
    table.enter("Orders")
    table.enter("Orders", name="lab-b", address=SLAVE, cluster="Other")
    table.delete_topic("Orders", "nowhere")
    assert set(table.addresses("Orders")) == {BROKER, "lab-b"}
    table.delete_topic("Orders", CLUSTER)
    assert set(table.addresses("Orders")) == {"lab-b"}
    table.delete_topic("Orders", "Other")
    assert "Orders" not in table.topics.queues
    table.enter("Orders", version=version(2))
    table.delete_topic("Orders", None)
    table.delete_topic("Orders", None)
    assert table.route("Orders") is None


def test_a_topic_of_brokers_that_are_there_can_be_entered(table: Table) -> None:
    table.enter("Orders")
    table.register_topic("Logic", [QueueData(BROKER, 2, 3, 6)])
    assert table.route("Logic").queue_datas == [QueueData(BROKER, 2, 3, 6)]  # type: ignore[union-attr]
    table.register_topic("Other", [QueueData(BROKER, 2, 3, 6), QueueData("nobody", 2, 3, 6)])
    assert table.route("Other") is None
    table.register_topic("Empty", [])
    assert "Empty" not in table.topics.queues


# -- lists ------------------------------------------------------------------------------------------------------------


def test_lists(table: Table) -> None:
    assert table.system_topics().broker_addr is None
    table.enter("Orders")
    table.enter("Orders", "West", name="lab-b", address=SLAVE, cluster="Other")
    assert set(table.all_topics().topic_list) == {"Orders", "West", BROKER, CLUSTER}
    assert set(table.cluster_topics(CLUSTER).topic_list) == {"Orders", BROKER, CLUSTER}
    assert table.cluster_topics("nowhere").topic_list == []
    system = table.system_topics()
    assert set(system.topic_list) == {CLUSTER, BROKER, "Other", "lab-b"}
    assert system.broker_addr == ADDRESS
    assert table.members(CLUSTER, BROKER).broker_addrs == {0: ADDRESS}
    assert table.members(CLUSTER, "nobody").broker_addrs == {}


def test_unit_topics_are_told_by_their_flag(table: Table) -> None:
    flags = {"Plain": 0, "Unit": 1, "Subscribed": 2, "Both": 3}
    configs = {name: TopicConfig(topic_name=name, topic_sys_flag=flag) for name, flag in flags.items()}
    table.enter(table=TopicTable(configs, version()))
    assert table.unit_topics(UnitFlag.UNIT).topic_list == ["Unit", "Both"]
    assert table.unit_topics(UnitFlag.SUBSCRIBED).topic_list == ["Subscribed", "Both"]
    assert table.unit_topics(UnitFlag.SUBSCRIBED, UnitFlag.UNIT).topic_list == ["Subscribed"]
