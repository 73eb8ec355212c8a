"""What controllers decide (which replica is the master, which replicas exist), and their settings (5.x)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from formats.remoting import controller as c
from formats.remoting.codes import ControllerCode as K
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.changes.tables import Settings
from rmqtool.admin.live.controllers import fetch_controller_settings, fetch_replicas
from rmqtool.admin.live.questions import Node, Questions


class ControllerSettings(Settings):
    """Settings of a controller."""

    name, at_controllers = "controller-setting", True
    fetch = staticmethod(fetch_controller_settings)
    update = K.UPDATE_CONTROLLER_CONFIG


class Masters(ValueKind):
    """The id of the replica that is a broker's master; the name is cluster and broker."""

    name, at_controllers, stays = "master", True, True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        table = await fetch_replicas(questions, node, [broker for _cluster, broker in names])
        masters = {name: table[name[1]].master_broker_id for name in names if name[1] in table}
        return {name: master for name, master in masters.items() if master is not None}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        cluster, broker = change.place.name
        header = c.Election(cluster_name=cluster, broker_name=broker, broker_id=change.after)
        await questions.send(node, K.CONTROLLER_ELECT_MASTER, header)

    async def why_not(self, questions: Questions, node: Node, changes: Sequence[ValueChange]) -> str | None:
        table = await fetch_replicas(questions, node, [change.place.name[1] for change in changes])
        settings = await fetch_controller_settings(questions, node)
        unclean = settings.get("enableElectUncleanMaster", "").strip() == "true"
        for change in changes:
            reason = why_not_elected(change.place.name[1], table.get(change.place.name[1]), change.after, unclean)
            if reason is not None:
                return reason
        return None


def why_not_elected(broker: str, info: c.ReplicasInfo | None, replica: int, unclean: bool) -> str | None:
    """Why a controller would not make a replica the master; None if it would.

    Args:
        unclean: it also elects a replica that is not in sync.
    """
    if info is None:
        return f"the controller has no broker {broker}"
    in_sync = {identity.broker_id: identity for identity in info.in_sync_replicas}
    others = {identity.broker_id: identity for identity in info.not_in_sync_replicas}
    identity = in_sync.get(replica, others.get(replica))
    if identity is None:
        known = ", ".join(map(str, sorted({*in_sync, *others})))
        return f"broker {broker} has no replica {replica}: it has {known}"
    if not identity.alive:
        return f"broker {broker}: replica {replica} is down"
    if replica not in in_sync and not unclean:
        return f"broker {broker}: replica {replica} is not in sync now, and the controller would not elect it"
    return None


class ReplicaEntries(ValueKind):
    """The replicas that a controller has of a broker; the name is cluster, broker and id.

    It forgets one that is down; a broker that starts registers itself again.
    """

    name, at_controllers, undone = "replica", True, False

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        table = await fetch_replicas(questions, node, {broker for _cluster, broker, _replica in names})
        entries: dict[Name, dict[str, Value]] = {
            (broker, str(identity.broker_id)): asdict(identity)
            for broker, info in table.items()
            for identity in (*info.in_sync_replicas, *info.not_in_sync_replicas)
        }
        return {name: entries[name[1:]] for name in names if name[1:] in entries}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        cluster, broker, replica = change.place.name
        header = c.Removal(cluster_name=cluster, broker_name=broker, broker_controller_ids_to_clean=replica)
        await questions.send(node, K.CLEAN_BROKER_DATA, header)

    async def why_not(self, questions: Questions, node: Node, changes: Sequence[ValueChange]) -> str | None:
        entries = await self.read(questions, node, [change.place.name for change in changes])
        alive = [name for name, entry in entries.items() if entry["alive"]]
        return f"broker {alive[0][1]}: replica {alive[0][2]} is up: stop it first" if alive else None

    @classmethod
    def show(cls, value: Value) -> Value:
        return value and value["broker_address"]
