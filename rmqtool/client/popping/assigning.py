"""Which queues are this client's, as brokers say (impl.consumer.RebalanceImpl.tryQueryAssignment; 5.x)."""

import logging
import random
from collections.abc import Set
from dataclasses import dataclass

from formats.fastjson.declare import body_of
from formats.remoting.bodies import AssignmentRequest, AssignmentResponse
from formats.remoting.codes import RequestCode, RequestMode, ResponseCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError, NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assigned:
    """The queues of a topic that are this client's.

    Attributes:
        pulled: whose messages it asks for by their offsets.
        popped: of which brokers hand out messages; -1 stands for all of a broker.
    """

    pulled: Set[MessageQueue]
    popped: Set[MessageQueue]


class Assigning:
    """Asks brokers.

    Args:
        strategy: name of the one by which they share queues out.
    """

    def __init__(self, cluster: Cluster, group: str, strategy: str) -> None:
        self._cluster, self._group, self._strategy = cluster, group, strategy
        self._unknown: set[str] = set()  # topics of brokers that know no such question

    async def of(self, route: Route) -> Assigned | None:
        """The queues of a topic; None where clients share them out by themselves, as with brokers of 4.9.

        Raises:
            ClientError, RemotingError: no broker says.
        """
        if route.topic in self._unknown:
            return None
        asked = AssignmentRequest(route.topic, self._group, self._cluster.client_id, self._strategy, "CLUSTERING")
        request = self._cluster.request(RequestCode.QUERY_ASSIGNMENT, body=body_of(asked))
        failure: ClientError | RemotingError = NoRoute(f"{route.topic}: no broker")
        for broker_name in random.sample(list(route.brokers), len(route.brokers)):
            try:
                address = self._cluster.reading_address(broker_name)
                response = await self._cluster.ask(address, request)
                return _assigned(route.topic, body_from(AssignmentResponse, response, address), address)
            except BrokerError as err:
                if err.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    log.info("%s: its brokers share no queues out", route.topic)
                    self._unknown.add(route.topic)
                    return None
                failure = err
            except (ClientError, RemotingError) as err:
                failure = err
        raise failure


def _assigned(topic: str, said: AssignmentResponse, address: str) -> Assigned:
    if said.message_queue_assignments is None:
        raise BadAnswer(f"{address}: does not say which queues of {topic} are whose")
    queues: dict[bool, set[MessageQueue]] = {True: set(), False: set()}
    for one in said.message_queue_assignments:
        if one.message_queue.topic != topic:
            raise BadAnswer(
                f"{address}: a queue of {one.message_queue.topic[:100]} where those of {topic} were asked for"
            )
        queues[one.mode == RequestMode.POP].add(one.message_queue)
    return Assigned(queues[False], queues[True])
