"""Plans of changes at controllers (5.x)."""

from collections.abc import Mapping, Sequence

from formats.remoting.controller import ReplicasInfo
from rmqtool.admin.changes.change import ValueChange
from rmqtool.admin.changes.controllers import ControllerSettings, Masters, ReplicaEntries, why_not_elected
from rmqtool.admin.changes.run import Plan, Servers, need_values
from rmqtool.admin.live.controllers import (
    fetch_controller_settings,
    fetch_replicas,
    find_controllers,
    find_leader,
)
from rmqtool.admin.live.questions import Node, Questions, Unanswered
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import BadValue, Refused


async def plan_controller_settings(questions: Questions, target: Target, settings: Mapping[str, str]) -> Plan:
    """Set settings of every controller.

    Raises:
        BadValue: a controller has no such setting; it would accept the name and ignore it.
        ClientError, RemotingError: a server does not answer.
    """
    controllers = await find_controllers(questions)
    servers = Servers(controllers)
    places = [servers.place(ControllerSettings, node, name) for node in controllers for name in settings]
    values = await need_values(questions, servers, places)
    for place, value in values.items():
        if value is None:
            raise BadValue(f"controller {place.server} has no setting {place.name[0]}")
    changes = tuple(
        ValueChange(place=place, before=value, after=settings[place.name[0]]) for place, value in values.items()
    )
    return Plan(target=target.text, command="controller-config set", changes=changes)


async def plan_election(questions: Questions, target: Target, broker: str, replica: int) -> Plan:
    """Make a replica the master of its broker.

    Raises:
        Refused: the controller would not elect it: it is unknown, down, or not in sync.
        ClientError, RemotingError: a server does not answer.
    """
    servers, leader = await _find(questions)
    cluster, info = await _replicas_of(questions, leader, broker)
    try:
        settings = await fetch_controller_settings(questions, leader)
    except Unanswered:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed") from None
    unclean = settings.get("enableElectUncleanMaster", "").strip() == "true"
    reason = why_not_elected(broker, info, replica, unclean)
    if reason is not None:
        raise Refused(f"{reason}; nothing was changed")
    in_sync = {identity.broker_id for identity in info.in_sync_replicas}
    warnings = [
        "the broker cannot be written to until its replicas have taken their new roles",
        "the controller counts the other replicas as in sync again once they follow the new master",
    ]
    if replica not in in_sync:
        warnings.append(f"replica {replica} is not in sync: messages that it does not have are cut off everywhere")
    place = servers.place(Masters, leader, cluster, broker)
    change = ValueChange(place=place, before=info.master_broker_id, after=replica)
    return Plan(target=target.text, command="controller elect", changes=(change,), warnings=tuple(warnings))


async def plan_forgetting(questions: Questions, target: Target, broker: str, replicas: Sequence[int]) -> Plan:
    """Have the controllers forget replicas that are down.

    Raises:
        Refused: one is unknown, or up.
        ClientError, RemotingError: a server does not answer.
    """
    servers, leader = await _find(questions)
    cluster, info = await _replicas_of(questions, leader, broker)
    places = [servers.place(ReplicaEntries, leader, cluster, broker, str(replica)) for replica in replicas]
    values = await need_values(questions, servers, places)
    known = {identity.broker_id for identity in (*info.in_sync_replicas, *info.not_in_sync_replicas)}
    for place, value in values.items():
        if value is None:
            ids = ", ".join(map(str, sorted(known)))
            raise Refused(f"broker {broker} has no replica {place.name[2]}: it has {ids}; nothing was changed")
        if value["alive"]:
            raise Refused(f"broker {broker}: replica {place.name[2]} is up: stop it first; nothing was changed")
    warnings = ["undo does not bring it back: a broker that starts registers itself again"]
    if info.master_broker_id in replicas:
        warnings.append(f"replica {info.master_broker_id} is the master that the controller knows")
    changes = tuple(ValueChange(place=place, before=value, after=None) for place, value in values.items())
    return Plan(target=target.text, command="controller forget", changes=changes, warnings=tuple(warnings))


async def _find(questions: Questions) -> tuple[Servers, Node]:
    """The leading controller, alone and by its name among the servers."""
    leader = await find_leader(questions, await find_controllers(questions))
    return Servers([leader]), leader


async def _replicas_of(questions: Questions, leader: Node, broker: str) -> tuple[str, ReplicasInfo]:
    """The cluster and the replicas of a broker.

    Raises:
        Refused: the controller does not know it.
        ClientError: it does not answer.
    """
    try:
        table = await fetch_replicas(questions, leader, [broker])
    except Unanswered:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed") from None
    if broker not in table:
        raise Refused(f"the controller {leader.address} has no broker {broker}; nothing was changed")
    nodes = await questions.nodes()
    clusters = {node.cluster for node in nodes if node.name == broker} or {node.cluster for node in nodes}
    if len(clusters) > 1:
        raise BadValue(f"{questions.target.text}: has several clusters: name one, as in /{min(clusters)}")
    return clusters.pop(), table[broker]
