"""Connected clients: producers and consumers by group, with the subscriptions of consumers.

Source: broker.client.ProducerManager, ConsumerManager, ConsumerGroupInfo, DefaultConsumerIdsChangeListener (4.9.8).
"""

from dataclasses import dataclass, field

from formats.remoting.bodies import HeartbeatData
from formats.remoting.codes import Language
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, SubscriptionData
from rmqtool.remoting.connection import Connection

EXPIRY = 120.0  # s without a heartbeat


@dataclass
class Client:
    """One client of a group, by its connection."""

    connection: Connection
    client_id: str
    language: Language | None
    version: int
    seen: float  # s of the event loop's clock


@dataclass
class OnlineConsumers:
    """The consumers of a group that are online.

    Attributes:
        fingerprint: of the subscriptions in the last heartbeat; 0 where it had none, None before the first.
    """

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    clients: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    fingerprint: int | None = None

    def client(self, client_id: str) -> Client | None:
        """The client with an id."""
        return next((client for client in self.clients.values() if client.client_id == client_id), None)

    def subscribe(self, subscriptions: list[SubscriptionData]) -> bool:
        """Take over newer subscriptions of a client; returns whether topics were added or removed."""
        changed = False
        for subscription in subscriptions:
            known = self.subscriptions.get(subscription.topic)
            changed |= known is None
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[subscription.topic] = subscription
        gone = self.subscriptions.keys() - {subscription.topic for subscription in subscriptions}
        for topic in gone:
            del self.subscriptions[topic]
        return changed or bool(gone)


class Clients:
    """All clients of a broker."""

    def __init__(self) -> None:
        self.producers: dict[str, dict[Connection, Client]] = {}
        self.consumers: dict[str, OnlineConsumers] = {}
        self._turn = 0

    def heartbeat(self, connection: Connection, request: Command, data: HeartbeatData, now: float) -> set[str]:
        """Process a heartbeat; returns the consumer groups that have changed."""

        def client() -> Client:
            return Client(connection, data.client_id, request.language, request.version, now)

        for producer in data.producer_data_set:
            self.producers.setdefault(producer.group_name, {})[connection] = client()
        short = bool(data.without_sub)
        return {
            consumer.group_name
            for consumer in data.consumer_data_set
            if self._consumes(consumer, client(), short=short)
        }

    def differs(self, data: HeartbeatData) -> bool:
        """Whether a client must send its subscriptions again; call it after :meth:`heartbeat`.

        After short heartbeats only, a group has no subscriptions here.
        """
        different = False
        for consumer in data.consumer_data_set:
            group = self.consumers[consumer.group_name]
            before, group.fingerprint = group.fingerprint, data.heartbeat_fingerprint or 0
            different |= before not in (None, group.fingerprint) or (bool(data.without_sub) and not group.subscriptions)
        return different

    def _consumes(self, data: ConsumerData, client: Client, *, short: bool) -> bool:
        group = self.consumers.setdefault(data.group_name, OnlineConsumers())
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        new = client.connection not in group.clients
        group.clients[client.connection] = client
        if short:  # subscriptions are unchanged since the last long heartbeat
            return new
        return group.subscribe(data.subscription_data_set) or new

    def leave(self, connection: Connection, producer_group: str | None, consumer_group: str | None) -> set[str]:
        """Remove a client from one group or two; return the consumer groups that have changed."""
        if producer_group is not None:
            self._drop_producer(producer_group, connection)
        if consumer_group is not None and self._drop_consumer(consumer_group, connection):
            return {consumer_group}
        return set()

    def drop(self, connection: Connection) -> set[str]:
        """Remove the clients of a connection that has ended; return the consumer groups that have changed."""
        for name in list(self.producers):
            self._drop_producer(name, connection)
        return {name for name in list(self.consumers) if self._drop_consumer(name, connection)}

    def find_silent(self, now: float) -> list[Connection]:
        """Connections of clients whose heartbeats are overdue."""
        tables = [*self.producers.values(), *(group.clients for group in self.consumers.values())]
        late = {client.connection for table in tables for client in table.values() if now - client.seen > EXPIRY}
        return list(late)

    def _drop_producer(self, name: str, connection: Connection) -> None:
        group = self.producers.get(name, {})
        group.pop(connection, None)
        if not group:
            self.producers.pop(name, None)

    def _drop_consumer(self, name: str, connection: Connection) -> bool:
        group = self.consumers.get(name)
        if group is None or group.clients.pop(connection, None) is None:
            return False
        if not group.clients:
            del self.consumers[name]
        return True

    def pick_producer(self, group: str) -> Client | None:
        """One producer of a group, in turn; None where none is connected."""
        online = [client for client in self.producers.get(group, {}).values() if not client.connection.closed]
        if not online:
            return None
        self._turn += 1
        return online[self._turn % len(online)]

    def find_connection(self, client_id: str) -> Connection | None:
        """The connection of a producer or consumer, or None."""
        tables = [*self.producers.values(), *(group.clients for group in self.consumers.values())]
        for table in tables:
            for client in table.values():
                if client.client_id == client_id and not client.connection.closed:
                    return client.connection
        return None
