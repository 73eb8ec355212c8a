"""The command ``rebalance plan``: which consumer gets which queue."""

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, need_log
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreOrTarget, option
from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqtool.rules.rebalance import AssignedQueue, Strategy
    from rmqtool.services.lookup.configs import Warn
    from rmqtool.store.layout.paths import StoreLayout

_MOST_QUEUES = 1 << 16  # of one broker; a higher number is damage


class StrategyName(StrEnum):
    """Allocation strategies, by the names that the Java client gives them."""

    avg = "AVG"
    circle = "AVG_BY_CIRCLE"
    consistent_hash = "CONSISTENT_HASH"
    machine_room = "MACHINE_ROOM"
    nearby = "MACHINE_ROOM_NEARBY"


_STRATEGIES = ", ".join(StrategyName)


@command("rebalance plan", "rmqtool rebalance plan store Orders --consumer c1 --consumer c2 --was c1")
def rebalance_plan(
    store: StoreOrTarget,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic whose read queues are divided.")],
    consumer: Annotated[
        list[str] | None,
        typer.Option("--consumer", "-c", metavar="CLIENTID", help="Id of a consumer; repeat for each."),
    ] = None,
    was: Annotated[
        list[str] | None, option("--was", "CLIENTID", "Id of a current consumer, to see which queues move.")
    ] = None,
    strategy: Annotated[
        StrategyName, typer.Option("--strategy", metavar="STRATEGY", help=f"How queues are divided: {_STRATEGIES}.")
    ] = StrategyName.avg,
    broker: Annotated[
        list[str] | None,
        option("--broker", "NAME", "A broker of the topic, or NAME=QUEUES; by default only that of this store."),
    ] = None,
    room: Annotated[
        list[str] | None, option("--room", "NAME", "A machine room; NAME=PATTERN gives its brokers and consumers.")
    ] = None,
    inner: Annotated[
        StrategyName, option("--inner", "STRATEGY", "How MACHINE_ROOM_NEARBY divides queues within a room.")
    ] = StrategyName.avg,
    clients_of: Annotated[
        str | None,
        option(
            "--clients-of",
            "GROUP",
            "Of a live cluster: a group whose clients are the consumers, or with --consumer the current ones.",
        ),
    ] = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show which consumer of a group gets which queues of a topic, by the rules of the Java clients.

    Of a live cluster, the queues are those of all brokers that allow reading the topic. Exit code 1: a queue has no
    consumer or several, or the topic has no queues.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.rules.rebalance import AssignedQueue

    warn = Warnings()
    consumers, before = consumer or [], was or []
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.sharing import consumers_of, fetch_read_queues

        queues_of = fetch_read_queues(target, topic, warn)
        if clients_of is not None:
            online = consumers_of(target, clients_of, warn)
            if not online:
                note(f"no client of group {clients_of} is online")
                if not consumers:
                    return warn.tell() or 1
            before, consumers = (before or online if consumers else before), consumers or online
        queues_of = _chosen(broker or [], queues_of)
    elif clients_of is not None:
        raise BadValue("--clients-of: goes with a live cluster; a store does not know its consumers: give --consumer")
    else:
        queues_of = _brokers(need_log(store, broker_conf).layout, topic, broker or [], warn)
    rows = _plan(topic, queues_of, consumers, before, strategy=strategy.value, inner=inner.value, rooms=room or [])
    names = ("topic", "brokerName", "queueId", "consumer", *(("before", "moves") if before else ()))
    write_rows(output.value, AssignedQueue, rows, names)
    if not rows:
        note(f"topic {topic} has no queues here")
    queues = [(row.brokerName, row.queueId) for row in rows]
    doubtful = not rows or len(set(queues)) < len(queues) or any(row.consumer is None for row in rows)
    return warn.tell() or (1 if doubtful else 0)


def _plan(
    topic: str,
    queues_of: "Mapping[str, int]",
    consumers: list[str],
    was: list[str],
    *,
    strategy: str,
    inner: str,
    rooms: list[str],
) -> "list[AssignedQueue]":
    """The rows of the plan; none where the topic has no queues.

    Args:
        queues_of: number of read queues of each broker.

    Raises:
        BadValue: a client would refuse the options.
    """
    from rmqtool.rules.broadcast import QueueName
    from rmqtool.rules.rebalance import BadAllocation, plan

    queues = [QueueName(topic, name, number) for name, count in queues_of.items() for number in range(count)]
    if not consumers:
        raise BadValue("give at least one --consumer")
    try:
        return plan(_strategy(strategy, inner, rooms), queues, consumers, was) if queues else []
    except BadAllocation as err:
        raise BadValue(str(err)) from err


def _chosen(brokers: list[str], queues_of: "Mapping[str, int]") -> dict[str, int]:
    """The brokers of an option with their queues, or all."""
    chosen: dict[str, int] = {}
    for text in brokers:
        name, number = _broker(text)
        if number is None and name not in queues_of:
            raise BadValue(f"--broker {text}: the topic is on {', '.join(queues_of) or 'no broker'}")
        chosen[name] = queues_of[name] if number is None else number
    return chosen or dict(queues_of)


def _broker(text: str) -> tuple[str, int | None]:
    """A broker, and its queues if they are given."""
    name, equals, number = text.rpartition("=")
    if not equals:
        return text, None
    if number.isascii() and number.isdigit() and len(number) < 6:
        return name, int(number)
    raise BadValue(f"--broker {text}: give NAME or NAME=QUEUES")


def _brokers(layout: "StoreLayout", topic: str, brokers: list[str], warn: "Warn") -> dict[str, int]:
    """Each broker's number of read queues: from the option, or from this store."""
    from rmqtool.services.lookup.configs import topics_of
    from rmqtool.services.lookup.queue_messages import TopicQueues

    table = topics_of(layout, warn)
    config = table.topics.get(topic) if table is not None else None
    on_disk = max((queue.queue_id + 1 for queue in TopicQueues(layout).of(topic)), default=0)
    count = config.read_queue_nums if config is not None else on_disk
    if count > _MOST_QUEUES:
        warn(f"topics.json says that topic {topic} has {count} read queues: passed over")
        count = min(on_disk, _MOST_QUEUES)
    queues_of: dict[str, int] = {}
    for text in brokers or [layout.conf.text("brokerName") or "this-broker"]:
        name, number = _broker(text)
        queues_of[name] = count if number is None else number
    return queues_of


def _strategy(name: str, inner: str, rooms: list[str]) -> "Strategy":
    from rmqtool.rules.rebalance import (
        averagely,
        averagely_by_circle,
        by_machine_room,
        consistent_hash,
        near_machine_room,
    )

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
