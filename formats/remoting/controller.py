"""Headers and bodies of requests to a controller (remoting.protocol.header.controller, body, 5.x)."""

from dataclasses import dataclass, field

from formats.fastjson.declare import Int, Long


@dataclass(kw_only=True)
class Metadata:
    """A controller, and the group that it belongs to (GetMetaDataResponseHeader).

    ``peers`` has the form ``n0:127.0.0.1:9878;``.
    """

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@dataclass(kw_only=True)
class ReplicaIdentity:
    """A replica of a broker (BrokerReplicasInfo.ReplicaIdentity)."""

    broker_name: str
    broker_id: Long
    broker_address: str | None = None
    alive: bool = False


@dataclass(kw_only=True)
class ReplicasInfo:
    """The replicas of a broker (BrokerReplicasInfo.ReplicasInfo)."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int = 0
    sync_state_set_epoch: Int = 0
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclass(kw_only=True)
class BrokerReplicas:
    """The replicas of brokers, by their name (BrokerReplicasInfo)."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


@dataclass(kw_only=True)
class Election:
    """The replica that is to be the master (ElectMasterRequestHeader)."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    designate_elect: bool = True
    invoke_time: Long = 0


@dataclass(kw_only=True)
class Removal:
    """Replicas to forget, ids with ``;`` between (CleanControllerBrokerDataRequestHeader)."""

    cluster_name: str
    broker_name: str
    broker_controller_ids_to_clean: str
    is_clean_living_broker: bool = False
    invoke_time: Long = 0


@dataclass(kw_only=True)
class EpochEntry:
    """A range of the log that one master has written (EpochEntry)."""

    epoch: Int
    start_offset: Long
    end_offset: Long


@dataclass(kw_only=True)
class Epochs:
    """The epochs of one replica's log (EpochEntryCache)."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: Long = 0
