"""``rebalance plan`` behind its options."""

from fnmatch import fnmatchcase

from rmqtool.errors import BadValue
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import (
    Assignment,
    BadAllocation,
    Strategy,
    averagely,
    averagely_by_circle,
    by_machine_room,
    consistent_hash,
    near_machine_room,
    plan,
)
from rmqtool.services.lookup.configs import Warn, topics_of
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.store.layout.paths import StoreLayout

_MOST_QUEUES = 1 << 16  # of one broker; more is damage


def run_plan(
    layout: StoreLayout,
    topic: str,
    consumers: list[str],
    was: list[str],
    *,
    strategy: str,
    inner: str,
    brokers: list[str],
    rooms: list[str],
    warn: Warn,
) -> list[Assignment]:
    """The rows of the plan; none where the topic has no queues.

    Raises:
        BadValue: options that a client would throw for.
    """
    queues = [
        QueueName(topic, name, number)
        for name, count in _brokers(layout, topic, brokers, warn).items()
        for number in range(count)
    ]
    if not consumers:
        raise BadValue("give at least one --consumer")
    try:
        return plan(_strategy(strategy, inner, rooms), queues, consumers, was) if queues else []
    except BadAllocation as err:
        raise BadValue(str(err)) from err


def _brokers(layout: StoreLayout, topic: str, brokers: list[str], warn: Warn) -> dict[str, int]:
    """Broker name to its number of read queues, in this store unless the option says another."""
    table = topics_of(layout, warn)
    config = table.topics.get(topic) if table is not None else None
    on_disk = max((queue.queue_id + 1 for queue in TopicQueues(layout).of(topic)), default=0)
    here = config.read_queue_nums if config is not None else on_disk
    if here > _MOST_QUEUES:
        warn(f"topics.json says that topic {topic} has {here} read queues: passed over")
        here = min(on_disk, _MOST_QUEUES)
    found: dict[str, int] = {}
    for text in brokers or [layout.conf.text("brokerName") or "this-broker"]:
        name, equals, number = text.rpartition("=")
        if not equals:
            found[text] = here
        elif number.isascii() and number.isdigit() and len(number) < 6:
            found[name] = int(number)
        else:
            raise BadValue(f"--broker {text}: give NAME or NAME=QUEUES")
    return found


def _strategy(name: str, inner: str, rooms: list[str]) -> Strategy:
    if name == "MACHINE_ROOM":
        return by_machine_room({text.partition("=")[0] for text in rooms})
    if name == "MACHINE_ROOM_NEARBY":
        if inner.startswith("MACHINE_ROOM"):
            raise BadValue(f"--inner {inner}: cannot be used within a room")

        def room_of(text: str) -> str:
            return next((room for room, _, glob in map(_room, rooms) if fnmatchcase(text, glob)), "")

        return near_machine_room(_strategy(inner, "", []), room_of, room_of)
    return {"AVG": averagely, "AVG_BY_CIRCLE": averagely_by_circle, "CONSISTENT_HASH": consistent_hash()}[name]


def _room(text: str) -> tuple[str, str, str]:
    name, equals, glob = text.partition("=")
    return name, equals, glob if equals else f"{name}*"
