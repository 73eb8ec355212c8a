"""The commands ``commitlog dump|hexdump``, ``consumequeue dump`` and ``index dump``: a look into each file."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log, need_messages
from rmqtool.cli.framework.options import (
    ANY_MESSAGE,
    ANY_TIME,
    BODIES,
    LISTING,
    BodyOptions,
    BrokerConfOption,
    LimitOption,
    Listing,
    MessageOptions,
    OffsetOption,
    StoreDir,
    Times,
)


@command("commitlog dump", "rmqtool commitlog dump store --topic 'Order*' --since -1h --output ndjson")
def commitlog_dump(
    store: StoreDir,
    messages: MessageOptions = ANY_MESSAGE,
    records: Annotated[
        bool, typer.Option("--records", help="One row for each record, even if it holds a batch of messages.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new messages until a signal.")] = False,
    bodies: BodyOptions = BODIES,
    listing: Listing = LISTING,
) -> int:
    """List the messages of the commit log in log order; damage is reported on stderr and skipped.

    With --follow the list starts at the end of the log, or at --offset A:, and shows each message once it is complete.
    Exit code 1: there was damage, or no message matches.
    """
    from rmqtool.cli.framework.bodies import body_form
    from rmqtool.cli.read.run_files import run_commitlog_dump, run_follow, selection

    body = body_form(bodies)
    chosen = selection(messages, body)
    if follow:
        earlier = messages.offset is not None
        log = need_messages(store, listing.broker_conf, chosen.has_queue_of, tier=earlier)
        return run_follow(log, chosen, listing.limit, body, listing.output.value, records=records, earlier=earlier)
    log = need_messages(store, listing.broker_conf, chosen.has_queue_of, reads_tier=not messages.offset)
    return run_commitlog_dump(log, chosen, listing.limit, body, listing.output.value, records=records)


@command("commitlog hexdump", "rmqtool commitlog hexdump store --offset 2867")
def commitlog_hexdump(
    store: StoreDir, offset: OffsetOption = None, limit: LimitOption = None, broker_conf: BrokerConfOption = None
) -> int:
    """Show bytes of the commit log with the name of every field.

    --offset A without a colon shows the record at A. Without --limit, at most 2000 lines are shown.
    """
    from rmqtool.cli.read.run_files import run_hexdump

    return run_hexdump(need_messages(store, broker_conf), offset, limit or 2000)


@command("consumequeue dump", "rmqtool consumequeue dump store --topic Orders --queue 0 --output csv")
def consumequeue_dump(
    store: StoreDir,
    messages: MessageOptions = ANY_MESSAGE,
    expired: Annotated[
        bool, typer.Option("--all", help="Also entries below the queue's minimum offset, whose messages are gone.")
    ] = False,
    listing: Listing = LISTING,
) -> int:
    """List the entries of consume queues, as a broker would read them.

    --key, --since and --until look at the messages themselves, so those must still be there. Exit code 1: no entry
    matches.
    """
    from rmqtool.cli.read.run_files import run_consumequeue_dump, selection

    chosen = selection(messages)
    log = need_log(store, listing.broker_conf)
    return run_consumequeue_dump(log, chosen, listing.limit, listing.output.value, expired=expired)


@command("index dump", "rmqtool index dump store --limit 10")
def index_dump(
    store: StoreDir,
    headers: Annotated[bool, typer.Option("--headers", help="One row for each file: its header and geometry.")] = False,
    offset: OffsetOption = None,
    times: Times = ANY_TIME,
    listing: Listing = LISTING,
) -> int:
    """List index files or their entries, oldest first.

    With --headers, the options --offset, --since and --until select the files that may contain such entries. Exit code
    1: nothing matches.
    """
    from rmqtool.cli.read.run_files import run_index_dump, run_index_headers, selection

    layout = need_log(store, listing.broker_conf).layout
    chosen = selection(MessageOptions(offset=offset, since=times.since, until=times.until))
    if headers:
        return run_index_headers(layout, chosen, listing.limit, listing.output.value)
    return run_index_dump(layout, chosen, listing.limit, listing.output.value)
