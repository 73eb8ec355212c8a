"""A store to pop messages from, with a clock set by the test."""

from pathlib import Path
from random import Random

from formats.message.properties import parse
from formats.message.read import Record, read
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.variants.pop_handle import POP_CK, Handle
from rmqtool.services.offsets.files import Key
from rmqtool.services.open_store.opened import read_store
from rmqtool.services.popping.popping import PopRequest, PopResult
from rmqtool.services.popping.service import PopBroker, PopService
from rmqtool.services.timers.delivery import TimerService
from tests.services.live import Lab

NAME, CLUSTER = "lab-a", "LabCluster"
REVIVE = f"rmq_sys_REVIVE_LOG_{CLUSTER}"


class PopLab(Lab):
    """A broker's POP without a network.

    Args:
        queues: number of queues of topic ``T``.

    Attributes:
        said: received callbacks: arrived, freed or made.
    """

    def __init__(self, root: Path, *, queues: int = 2, seed: int = 1, **settings: str) -> None:
        super().__init__(root, engine="5.3", **settings)
        self.random = Random(seed)
        self.said: list[str] = []
        self.resets: dict[Key, int] = {}
        self.state.set_topic(TopicConfig(topic_name="T", read_queue_nums=queues, write_queue_nums=queues))
        self.state.set_group(SubscriptionGroup(group_name="g"))
        self.state.persist()
        self.begin()

    def begin(self) -> None:
        """Start POP as after opening the store."""
        self.timer = TimerService(self.store, self.warnings.append)
        broker = PopBroker(
            name=NAME,
            cluster=CLUSTER,
            address="127.0.0.1:10911",
            arrived=lambda topic, queue_id: self.said.append(f"arrived {topic} {queue_id}"),
            freed=lambda topic, group, queue_id: self.said.append(f"freed {topic} {group} {queue_id}"),
            expired=lambda topic, group, queue_id: self.said.append(f"freed {topic} {group} {queue_id}"),
            topic_made=lambda: self.said.append("made"),
        )
        self.service = PopService(
            self.store, read_store(self.store), self.state, broker, self.warnings.append, resets=self.resets,
            random=self.random,
        )  # fmt: skip

    def again(self, *, mend: bool = False) -> None:
        """Close the store and reopen it, as another process would, losing what was not persisted."""
        super().again(mend=mend)
        self.begin()

    def pop(self, *, most: int = 32, invisible: int = 10_000, queue_id: int = -1, **more: object) -> "Got":
        """Pop as a client of the group."""
        request = PopRequest(topic="T", group="g", queue_id=queue_id, most=most, invisible_time=invisible, **more)  # type: ignore[arg-type]
        return Got(self.service.popping.pop(request), invisible)

    def wait(self, ms: int) -> None:
        """Let time pass, and do the work that is due."""
        self.now += ms
        self.deliver()
        self.service.step()

    def deliver(self) -> None:
        """Let the timer deliver due messages."""
        self.timer.step(self.now)

    def persist(self) -> None:
        """Persist all positions."""
        self.timer.persist()
        self.state.persist()
        self.store.flush()

    def ack(self, handle: Handle, topic: str = "T") -> None:
        """Ack a message."""
        self.service.finishing.ack(topic, "g", handle, [handle.queue_offset])

    def offset(self, topic: str = "T", queue_id: int = 0) -> int | None:
        """The group's offset."""
        return self.state.offset(topic, "g", queue_id)


class Got:
    """A pop result as a client sees it."""

    def __init__(self, popped: PopResult, invisible: int) -> None:
        self.popped = popped
        self.records: list[Record] = []
        for data in popped.messages:
            record = read(data, 0, len(data))
            assert isinstance(record, Record)
            self.records.append(record)
        self.bodies = [record.body.decode() for record in self.records]
        places = [(part, offset) for part in popped.parts for offset in part.queue_offsets]
        self.handles: list[Handle] = []
        for (part, offset), record in zip(places, self.records, strict=True):
            handle = Handle(
                start_offset=part.start_offset,
                pop_time=popped.pop_time,
                invisible_time=invisible,
                revive_queue=popped.revive_queue,
                origin=part.origin,
                broker_name=NAME,
                queue_id=part.queue_id,
                queue_offset=offset,
            )
            own = parse(record.properties).get(POP_CK)
            assert own is None or Handle.parse(own) == handle
            self.handles.append(handle)

    def of(self, body: str) -> Handle:
        """Parse the handle of a message."""
        return self.handles[self.bodies.index(body)]
