"""Queue assignment by the broker: which queues a client of a group reads, and whether it pulls or pops.

Source: broker.processor.QueryAssignmentProcessor, broker.loadbalance.MessageRequestModeManager (5.3.3);
clients-and-live-admin 1.3.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from formats.config.files_of_5 import MessageRequestMode, MessageRequestModes
from formats.remoting.codes import RequestMode
from formats.topics import RETRY_PREFIX
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import BadAllocation, averagely, averagely_by_circle, sort
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.popping.settings import PopSettings

FILE = "messageRequestMode.json"
BROADCASTING = "BROADCASTING"
_STRATEGIES = {"AVG": averagely, "AVG_BY_CIRCLE": averagely_by_circle}
ANY = -1  # queue id that stands for all queues of a broker


class Mode(NamedTuple):
    """How a group consumes a topic: by pull or by POP.

    Attributes:
        share: number of following clients whose queues a client pops too; 0 or less: everybody pops all queues.
    """

    mode: str
    share: int


class RequestModes:
    """``messageRequestMode.json``, written whenever it changes.

    Raises:
        CorruptFile: the file and its ``.bak`` are broken.
    """

    def __init__(self, state: BrokerState, settings: PopSettings, *, pull_only: bool = False) -> None:
        self._state, self._settings, self._pull_only = state, settings, pull_only
        self._file = state.load(FILE, MessageRequestModes)

    def of(self, topic: str, group: str) -> Mode:
        """The mode of a group for a topic."""
        mode = self._file.modes.get(topic, {}).get(group)
        if self._pull_only:
            return Mode(RequestMode.PULL, 0)
        if mode is not None:
            return Mode(mode.mode, mode.pop_share_queue_num)
        if topic.startswith(RETRY_PREFIX):
            return Mode(RequestMode.PULL, 0)
        return Mode(self._settings.default_mode, self._settings.default_share)

    def set(self, topic: str, group: str, mode: Mode) -> None:
        """Set the mode of a group for a topic."""
        row = MessageRequestMode(topic=topic, consumer_group=group, mode=mode.mode, pop_share_queue_num=mode.share)
        modes = {**self._file.modes, topic: {**self._file.modes.get(topic, {}), group: row}}
        self._file = replace(self._file, modes=modes)
        self._state.keep(FILE, self.build, now=True)

    def build(self) -> bytes:
        """The current bytes of the file."""
        return self._file.build(self._state.release.version)


def assign(
    queues: Sequence[QueueName],
    client: str,
    clients: Sequence[str] | None,
    mode: Mode,
    *,
    strategy: str | None,
    broadcast: bool = False,
    shared_here: bool = True,
) -> list[QueueName] | None:
    """The queues of one client; None for no answer: the client then keeps its queues.

    Args:
        queues: all queues of the topic, on all brokers.
        clients: members of the group; None if the group is unknown.
        broadcast: every client reads all queues.
        shared_here: the broker assigns the queues; otherwise the client does.
    """
    if broadcast or not shared_here:
        return list(queues)
    if clients is None:
        return None
    all_queues, all_clients = sort(queues, clients)
    share = _STRATEGIES.get(strategy or "")
    if share is None:
        return None
    try:
        if mode.mode != RequestMode.POP:
            return share(client, all_queues, all_clients)
        if mode.share <= 0:
            return list(dict.fromkeys(replace_id(queue, ANY) for queue in all_queues))
        if len(all_clients) > len(all_queues):
            if client not in all_clients:
                return []
            return [all_queues[all_clients.index(client) % len(all_queues)]]
        shared = share(client, all_queues, all_clients)
        if client in all_clients:
            at = all_clients.index(client)
            for following in range(1, mode.share + 1):
                shared += share(all_clients[(at + following) % len(all_clients)], all_queues, all_clients)
        return list(dict.fromkeys(shared))
    except BadAllocation:
        return None


def replace_id(queue: QueueName, queue_id: int) -> QueueName:
    """Another queue of the same topic and broker."""
    return QueueName(queue.topic, queue.broker_name, queue_id)
