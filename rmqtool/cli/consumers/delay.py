"""The commands ``delay list`` and ``delay due``: delay levels, the timer of 5.x, and what waits in them."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, need_messages
from rmqtool.cli.framework.options import (
    LISTING,
    AtOption,
    BrokerConfOption,
    Listing,
    Output,
    OutputOption,
    QueueOption,
    SinceOption,
    StoreOrTarget,
    TopicOption,
    UntilOption,
)

_LEVEL_NAMES = (
    "level", "queueId", "delay", "minOffset", "maxOffset", "deliveredOffset", "delivered", "pending", "due",
    "firstDeliverTimestamp", "lastDeliverTimestamp", "note",
)  # fmt: skip


_SPARE = ("minOffset", "delivered", "lastDeliverTimestamp", "deliveredOffset", "maxOffset", "delay")


@command("delay list", "rmqtool delay list store --at 2026-11-20T22:00:00Z")
def delay_list(
    store: StoreOrTarget,
    at: AtOption = "now",
    every: Annotated[bool, typer.Option("--all", help="Also levels that never had a message.")] = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show each delay level: messages, and how many are delivered, waiting and due; level 0 is the timer of 5.x.

    The levels are the broker's defaults, or those of --broker-conf (messageDelayLevel).
    """
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.times import parse_time
    from rmqtool.services.delays.delays import DelayLevel, Delays
    from rmqtool.services.timers.timers import open_timers

    warn = Warnings()
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.delays import LiveDelayLevel
        from rmqtool.cli.consumers.live_delays import open_delays

        with open_delays(target, parse_time(at), warn) as live:
            levels = [row for row in live.levels() if every or row.maxOffset != 0 or row.deliveredOffset is not None]
            write_rows(output.value, LiveDelayLevel, levels, (*_LEVEL_NAMES, "brokerName"), spare=_SPARE)
        return warn.tell()
    log, now = need_messages(store, broker_conf, tier=False), parse_time(at)
    delays, timers = Delays(log, now, warn), open_timers(log, now, warn)
    rows = [row for row in delays.levels() if every or row.maxOffset or row.deliveredOffset is not None]
    rows += [timers.row()] if timers.present else []
    write_rows(output.value, DelayLevel, rows, _LEVEL_NAMES, spare=_SPARE)
    return warn.tell()


@command("delay due", "rmqtool delay due store --level 18 --all")
def delay_due(
    store: StoreOrTarget,
    at: AtOption = "now",
    level: Annotated[
        int | None, typer.Option("--level", min=0, metavar="LEVEL", help="Only this level; 0 is the timer of 5.x.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All messages that are not delivered, due or not.")] = False,
    topic: TopicOption = None,
    queue: QueueOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    listing: Listing = LISTING,
) -> int:
    """List the delayed messages that a broker would deliver now, or all undelivered ones with --all.

    --topic and --queue are the destination. Exit code 1: nothing matches.
    """
    from collections.abc import Iterable
    from itertools import chain

    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.times import parse_time
    from rmqtool.services.delays.delays import DelayedMessage, Delays
    from rmqtool.services.timers.plain import LEVEL, PlainTimers
    from rmqtool.services.timers.timers import open_timers

    warn = Warnings()
    choice = RowChoice({"level": level, "topic": topic, "queue": queue, "since": since, "until": until})
    names = ("level", "queueOffset", "deliverTimestamp", "due", "topic", "queueId", "reconsumeTimes", "msgId", "keys")
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.delays import LiveDelayedMessage
        from rmqtool.cli.consumers.live_delays import open_delays

        with open_delays(target, parse_time(at), warn) as live:
            waiting = choice(live.pending(level, due_only=not every), listing.limit)
            write_rows(listing.output.value, LiveDelayedMessage, waiting, names, wide=("keys",))
        return choice.ends(warn.tell())
    log, now = need_messages(store, listing.broker_conf, tier=False), parse_time(at)
    delays, timers = Delays(log, now, warn), open_timers(log, now, warn)
    levels = delays.pending(level, due_only=not every)
    rows: Iterable[DelayedMessage | PlainTimers]
    chosen = not every or bool(choice.given) or listing.limit is not None or not timers.present
    if not chosen:  # thousands at a time, in columns
        rows = chain(levels, timers.blocks())
    else:
        in_timer = timers.pending(due_only=not every) if timers.present and level in (None, LEVEL) else ()
        rows = choice(chain(levels, in_timer), listing.limit)
    write_rows(listing.output.value, DelayedMessage, rows, names, wide=("keys",))
    return choice.ends(warn.tell()) if chosen else warn.tell()
