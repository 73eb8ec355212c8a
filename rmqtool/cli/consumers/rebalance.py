"""The command ``rebalance plan``: which consumer gets which queue."""

from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir


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
    store: StoreDir,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic whose read queues are divided.")],
    consumer: Annotated[
        list[str] | None, typer.Option("--consumer", "-c", metavar="CLIENTID", help="A consumer; repeat for each.")
    ] = None,
    was: Annotated[
        list[str] | None, typer.Option("--was", metavar="CLIENTID", help="A current consumer, to see what moves.")
    ] = None,
    strategy: Annotated[
        StrategyName, typer.Option("--strategy", metavar="STRATEGY", help=f"How queues are divided: {_STRATEGIES}.")
    ] = StrategyName.avg,
    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker", metavar="NAME", help="A broker of the topic, or NAME=QUEUES; without it, only this store's."
        ),
    ] = None,
    room: Annotated[
        list[str] | None,
        typer.Option("--room", metavar="NAME", help="A machine room; NAME=PATTERN says which brokers and consumers."),
    ] = None,
    inner: Annotated[
        StrategyName, typer.Option("--inner", metavar="STRATEGY", help="How MACHINE_ROOM_NEARBY divides within a room.")
    ] = StrategyName.avg,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Tell which consumer of a group gets which queue of a topic, as the Java clients work it out.

    Exit code 1: a queue has no consumer, or several, or the topic has no queues.
    """
    from rmqtool.cli.consumers.run_rebalance import run_plan
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.rules.rebalance import Assignment

    warn = Warnings()
    rows = run_plan(
        need_log(store, broker_conf).layout, topic, consumer or [], was or [],
        strategy=strategy.value, inner=inner.value, brokers=broker or [], rooms=room or [], warn=warn,
    )  # fmt: skip
    names = ("topic", "brokerName", "queueId", "consumer", *(("before", "moves") if was else ()))
    write_rows(output.value, Assignment, rows, names)
    if not rows:
        note(f"topic {topic} has no queues here")
    queues = [(row.brokerName, row.queueId) for row in rows]
    doubtful = not rows or len(set(queues)) < len(queues) or any(row.consumer is None for row in rows)
    return warn.tell() or (1 if doubtful else 0)
