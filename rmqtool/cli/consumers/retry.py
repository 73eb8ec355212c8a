"""The commands ``retry list`` and ``dlq list|export|requeue``: what consumers gave back."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, need_messages
from rmqtool.cli.framework.options import (
    ANY_CONTENT,
    ANY_ORIGIN,
    BODIES,
    LISTING,
    BodyOptions,
    BrokerConfOption,
    ContentChoice,
    GroupOption,
    LimitOption,
    Listing,
    OriginChoice,
    Output,
    OutputOption,
    SinceOption,
    StoreOrTarget,
    TopicOption,
    UntilOption,
    option,
)
from rmqtool.cli.framework.planning import ASK, Consent

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqtool.services.retries.retries import GivenBack


class RetryState(StrEnum):
    """What has become of a retry."""

    scheduled = "scheduled"
    waiting = "waiting"
    in_flight = "in-flight"
    retried = "retried"
    dead = "dead"
    done = "done"


def _by_name(groups: list[str] | None) -> list[str] | None:
    """The groups, if all are named in full; None if they have to be searched for."""
    return groups if groups and not any(set(group) & set("*?[") for group in groups) else None


@contextmanager
def _open_retries(store: str, broker_conf: str | None, warn: "Callable[[str], None]") -> "Iterator[GivenBack[Any]]":
    """Retries and dead letters of a store, and of its tier, or of a live cluster."""
    import time

    from formats.topics import DLQ_PREFIX, RETRY_PREFIX
    from rmqtool.services.lookup.tiered import only_tiered
    from rmqtool.services.retries.retries import Retries

    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.questions import Session
        from rmqtool.admin.live.queues import LiveQueues
        from rmqtool.admin.live.retries import LiveRetries
        from rmqtool.cli.render.text import note

        with Session(target, warn) as session:
            yield LiveRetries(LiveQueues(session, warn), note)
        return

    def asked(topic: str, _queue_id: int) -> bool:
        return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))

    log = need_messages(store, broker_conf, asked, reads_tier=True)
    yield Retries(log, int(time.time() * 1000), warn, only_tiered(log.layout, asked))


@command("retry list", "rmqtool retry list store --group lab-consumer --state waiting")
def retry_list(
    store: StoreOrTarget,
    consumer_group: GroupOption = None,
    state: Annotated[
        list[RetryState] | None,
        option(
            "--state", "STATE", "Only these: scheduled, waiting, in-flight, retried, dead or done; may be repeated."
        ),
    ] = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    listing: Listing = LISTING,
) -> int:
    """List the messages that groups failed to consume, by state: scheduled, waiting, in-flight, retried, dead or done.

    Retried messages failed again. --topic is the topic that a message came from. Exit code 1: nothing matches.
    """
    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    asked = {"group": consumer_group, "state": state, "topic": topic, "since": since, "until": until}
    choice = RowChoice(asked, topic="originTopic")
    names = (
        *("group", "state", "reconsumeTimes", "originTopic", "storeTimestamp", "deliverTimestamp", "queueOffset"),
        *("originMsgId", "msgId", "keys"),
    )
    with _open_retries(store, listing.broker_conf, warn) as retries:
        rows = choice(retries.retries(_by_name(consumer_group)), listing.limit)
        write_rows(listing.output.value, retries.row, rows, names, wide=("keys",))
    return choice.ends(warn.tell())


@command("dlq list", "rmqtool dlq list store --group lab-consumer --output csv")
def dlq_list(store: StoreOrTarget, origin: OriginChoice = ANY_ORIGIN, listing: Listing = LISTING) -> int:
    """List dead letters with their original topic and id, and the time of each retry.

    A row in state scheduled is not a dead letter yet: it is still in the schedule topic. --topic is the topic that a
    message came from. Exit code 1: nothing matches.
    """
    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    choice = RowChoice(vars(origin), topic="originTopic")
    names = (
        *("group", "state", "queueOffset", "reconsumeTimes", "originTopic", "bornTimestamp", "storeTimestamp"),
        *("originMsgId", "msgId", "keys"),
    )
    with _open_retries(store, listing.broker_conf, warn) as retries:
        rows = choice((letter for letter, _found in retries.dead_letters(_by_name(origin.group))), listing.limit)
        write_rows(listing.output.value, retries.letter, rows, names, wide=("keys",))
    return choice.ends(warn.tell())


@command("dlq export", "rmqtool dlq export store --group lab-consumer --body base64")
def dlq_export(
    store: StoreOrTarget,
    origin: OriginChoice = ANY_ORIGIN,
    content: ContentChoice = ANY_CONTENT,
    limit: LimitOption = None,
    bodies: BodyOptions = BODIES,
    output: OutputOption = Output.ndjson,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Write dead letters as whole messages with bodies and properties, each with its group, original topic and id.

    --topic is the topic that a message came from. Exit code 1: nothing matches.
    """
    from rmqtool.cli.framework.bodies import body_form
    from rmqtool.cli.framework.choice import NO_MATCH, RowChoice, limit_rows
    from rmqtool.cli.framework.options import MessageOptions
    from rmqtool.cli.read.run_files import say_unmet, selection
    from rmqtool.cli.render.messages import MESSAGE_COLUMNS, body_columns, body_fields
    from rmqtool.cli.render.output import Column, write_all, writer
    from rmqtool.cli.render.rows import Warnings, names_of
    from rmqtool.cli.render.text import note
    from rmqtool.contract import MESSAGE_FIELDS, message_row

    warn = Warnings()
    extra = ("group", "originTopic", "originMsgId", "retryTimestamps")
    choice = RowChoice(vars(origin), topic="originTopic")
    body = body_form(bodies)
    columns = [Column("group"), Column("originTopic"), *body_columns(MESSAGE_COLUMNS[2:], body)]
    chosen = selection(MessageOptions(**vars(content)), body)
    with _open_retries(store, broker_conf, warn) as retries:
        place = tuple(name for name in names_of(retries.letter) if name == "brokerName")
        letters = retries.dead_letters(_by_name(origin.group))
        dead = (
            (letter, message)
            for letter, message in letters
            if letter.state == "dead" and choice.has(letter) and chosen.has(message.record, message.physical_offset)
        )
        rows = (
            {
                **{name: getattr(letter, name) for name in extra},
                **message_row(message.record, message.physical_offset, body),
                **{name: getattr(letter, name) for name in place},
            }
            for letter, message in limit_rows(dead, limit, letters)
        )
        choice.count = write_all(
            writer(output.value, body_fields((*extra, *MESSAGE_FIELDS, *place), body), columns), rows
        )
    if not choice.count and (content.property or content.where is not None):
        note("nothing matches the selection")
        say_unmet(chosen)
        return max(warn.tell(), NO_MATCH)
    return choice.ends(warn.tell())


@command(
    "dlq requeue",
    "rmqtool dlq requeue store lab-consumer --id FD0000000000000000000000000000020FB630946E09664343CD0000",
)
def dlq_requeue(
    store: StoreOrTarget,
    consumer_group: Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")],
    ids: Annotated[
        list[str] | None,
        option("--id", "ID", "Only these: msgId, originMsgId or the dead letter's own offset id; may be repeated."),
    ] = None,
    to: Annotated[
        str, option("--to", "WHERE", "retry (the group's retry topic) or origin (the original topic).")
    ] = "retry",
    gone: Annotated[
        list[str] | None,
        option("--gone", "HOST:PORT", "A broker that will not come back, or has another address now; may be repeated."),
    ] = None,
    consent: Consent = ASK,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Send dead letters back to their group (to its retry topic), or to their original topic, for all its groups.

    Each becomes a new message without retries; the dead letter itself stays. The new message's property REQUEUED_FROM
    refers to the dead letter, so that each is requeued only once, and to one place only, however often the command is
    run or killed. Dead letters of topics that are gone or not writable are refused, and in a live cluster those whose
    original broker is not registered, because they may have been requeued there. The plan is shown first. Exit code 0:
    done, or all had been requeued before; 1: a dry run found some, one was refused, or there is none.
    """
    from rmqtool.cli.write.run_services import run_requeue

    return run_requeue(
        store, consumer_group, ids, broker_conf, target=to, gone=gone, consent=consent, output=output.value
    )
