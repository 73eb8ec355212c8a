"""Headers of requests to name servers (remoting.protocol.header.namesrv)."""

from dataclasses import dataclass

from formats.fastjson.declare import Int, Long


@dataclass(kw_only=True)
class KeyValue:
    """An entry of the KV configuration (namesrv.PutKVConfig-, GetKVConfig-, DeleteKVConfigRequestHeader)."""

    namespace: str
    key: str
    value: str | None = None  # request code 100 only


@dataclass(kw_only=True)
class Namespace:
    """A namespace of the KV configuration (namesrv.GetKVListByNamespaceRequestHeader)."""

    namespace: str


@dataclass(kw_only=True)
class KVValue:
    """A value of the KV configuration (namesrv.GetKVConfigResponseHeader)."""

    value: str | None = None


@dataclass(kw_only=True)
class BrokerAddress:
    """A broker (namesrv.UnRegisterBroker-, QueryDataVersionRequestHeader)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass(kw_only=True)
class Alive:
    """Heartbeat of a broker (namesrv.BrokerHeartbeatRequestHeader, 5.x)."""

    cluster_name: str
    broker_name: str
    broker_addr: str


@dataclass(kw_only=True)
class BrokerMembers:
    """A broker and its slaves (GetBrokerMemberGroupRequestHeader, 5.x)."""

    cluster_name: str
    broker_name: str


@dataclass(kw_only=True)
class RegisterBroker:
    """Registration of a broker (namesrv.RegisterBrokerRequestHeader)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None  # 5.x
    enable_acting_master: bool | None = None  # 5.x
    compressed: bool = False
    body_crc32: Int = 0


@dataclass(kw_only=True)
class Registered:
    """Addresses of its master, sent to a slave (namesrv.RegisterBrokerResponseHeader)."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(kw_only=True)
class BrokerName:
    """A broker and its slaves (namesrv.WipeWritePermOfBroker-, AddWritePermOfBrokerRequestHeader)."""

    broker_name: str


@dataclass(kw_only=True)
class Wiped:
    """Number of topics that lost the write permission (namesrv.WipeWritePermOfBrokerResponseHeader)."""

    wipe_topic_count: Int


@dataclass(kw_only=True)
class Added:
    """Number of topics that got the write permission back (namesrv.AddWritePermOfBrokerResponseHeader)."""

    add_topic_count: Int


@dataclass(kw_only=True)
class Changed:
    """Whether a broker's topics are newer than the name server's (namesrv.QueryDataVersionResponseHeader)."""

    changed: bool


@dataclass(kw_only=True)
class ClusterName:
    """A cluster (GetTopicsByClusterRequestHeader)."""

    cluster: str
