"""POP for one store that is open for writing: its parts, and its background work."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from rmqtool.services.lookup.configs import Warn
from rmqtool.services.offsets.files import Key
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.open_store.store import Store
from rmqtool.services.popping.assigning import RequestModes
from rmqtool.services.popping.finishing import Finishing
from rmqtool.services.popping.ordered import OrderedPops
from rmqtool.services.popping.popping import Popping
from rmqtool.services.popping.records import Records
from rmqtool.services.popping.reviving import Reviving
from rmqtool.services.popping.settings import PopSettings
from rmqtool.store.queues.pop_store import warn_of_unserved


@dataclass(frozen=True, kw_only=True)
class PopBroker:
    """The broker's identity and callbacks.

    Attributes:
        address: HOST:PORT.
        arrived: called with a queue that has a new message.
        freed: called with a queue (topic, group, queue id) that delivers again to a group that pops in order.
        expired: the same, if nobody has acknowledged the messages in time.
        topic_made: called after a topic was created.
        in_time: returns whether the timer has delivered everything that is due.
    """

    name: str
    cluster: str
    address: str
    arrived: Callable[[str, int], None] = lambda _topic, _queue: None
    freed: Callable[[str, str, int], None] = lambda _topic, _group, _queue: None
    expired: Callable[[str, str, int], None] = lambda _topic, _group, _queue: None
    topic_made: Callable[[], None] = lambda: None
    in_time: Callable[[], bool] = lambda: True


class PopService:
    """Pops messages, stores acks, and revives unacked messages.

    Args:
        resets: pending offset resets by topic, group and queue id.

    Raises:
        CorruptFile: a config file of POP and its ``.bak`` are broken.
    """

    def __init__(
        self,
        store: Store,
        reading: Reading,
        state: BrokerState,
        broker: PopBroker,
        warn: Warn,
        *,
        resets: dict[Key, int],
        random: Random | None = None,
    ) -> None:
        for text in warn_of_unserved(store.layout):
            warn(text)
        self._broker, clock = broker, state.clock
        self.settings = settings = PopSettings.of(store.layout.conf)
        self.modes = RequestModes(state, settings)
        self.orders = OrderedPops(state, clock)
        self.records = records = Records(store, broker.cluster, broker.address)
        self.popping = Popping(
            reading,
            state,
            records,
            self.orders,
            settings,
            broker.name,
            clock=clock,
            random=random or Random(),
            resets=resets,
            failed=warn,
        )
        self.finishing = Finishing(state, records, self.orders, clock=clock, resets=resets, freed=broker.freed)
        self.reviving = Reviving(
            store,
            reading,
            state,
            records,
            settings,
            broker.name,
            warn,
            clock=clock,
            in_time=broker.in_time,
            topic_made=broker.topic_made,
            arrived=broker.arrived,
        )

    def step(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Do the background work that is due."""
        for place in self.orders.take_freed():
            self._broker.expired(*place)
        if self.settings.timer:
            self.reviving.step(stop)
