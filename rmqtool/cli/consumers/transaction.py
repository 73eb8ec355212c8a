"""The commands ``transaction list`` and ``transaction show``: half messages and what ended them."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, need_messages
from rmqtool.cli.framework.options import (
    ANY_ORIGIN,
    LISTING,
    BrokerConfOption,
    Listing,
    OriginChoice,
    Output,
    OutputOption,
    StoreOrTarget,
    option,
)

if TYPE_CHECKING:
    from rmqtool.services.lookup.configs import Warn
    from rmqtool.services.transactions.half_messages import TransactionReader


class TransactionState(StrEnum):
    """What has become of a transaction."""

    pending = "pending"
    committed = "committed"
    rolled_back = "rolled-back"
    given_up = "given-up"
    passed = "passed"


@contextmanager
def _open_transactions(store: str, broker_conf: str | None, warn: "Warn") -> "Iterator[TransactionReader[Any, Any]]":
    """The transactions of a store or of a live cluster."""
    from rmqtool.services.transactions.half_messages import Transactions

    if (target := live_target(store)) is None:
        yield Transactions(need_messages(store, broker_conf, tier=False), warn)
        return
    from rmqtool.admin.live.questions import Session
    from rmqtool.admin.live.queues import LiveQueues
    from rmqtool.admin.live.transactions import LiveTransactions

    with Session(target, warn) as session:
        yield LiveTransactions(LiveQueues(session, warn), warn)


@command("transaction list", "rmqtool transaction list store --state pending --state given-up")
def transaction_list(
    store: StoreOrTarget,
    state: Annotated[
        list[TransactionState] | None,
        option("--state", "STATE", "Only these: pending, committed, rolled-back, given-up or passed; may be repeated."),
    ] = None,
    origin: OriginChoice = ANY_ORIGIN,
    listing: Listing = LISTING,
) -> int:
    """List transactions with their state: pending, committed, rolled-back, given-up after too many checks, passed.

    A transaction is passed if the broker's check has moved beyond it and nothing records its outcome; it will not be
    checked again. --group is the producer group, --topic the destination of the messages. Exit code 1: nothing matches.
    """
    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    asked = {"state": state, **vars(origin)}
    choice = RowChoice(asked, group="producerGroup")
    names = (
        *("state", "producerGroup", "topic", "queueId", "halfQueueOffset", "checkTimes", "storeTimestamp"),
        *("lastCheckTimestamp", "endTimestamp", "msgId", "keys", "note"),
    )
    with _open_transactions(store, listing.broker_conf, warn) as transactions:
        write_rows(
            listing.output.value,
            transactions.row,
            choice(transactions.all(), listing.limit),
            names,
            wide=("keys", "note"),
            spare=("checkTimes", "halfQueueOffset"),
        )
    return choice.ends(warn.tell())


@command("transaction show", "rmqtool transaction show store FD0000000000000000000000000000020FB630946E0966434BC201ED")
def transaction_show(
    store: StoreOrTarget,
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="Unique id of the message, or its offset in the half queue.")
    ],
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show one transaction: its half message, every check and its outcome.

    Exit code 1: there is no such transaction.
    """
    from rmqtool.cli.read.show_trace import write_transaction
    from rmqtool.cli.render.rows import Warnings
    from rmqtool.cli.render.text import note

    warn = Warnings()
    with _open_transactions(store, broker_conf, warn) as reader:
        transactions = [
            info
            for info in reader.all()
            if info.msgId == message_id or message_id in (str(copy.queueOffset) for copy in info.copies)
        ]
    for info in transactions:
        write_transaction(info, output.value)
    if not transactions:
        note(f"no transaction {message_id} in the half queue")
    return warn.tell() or (0 if transactions else 1)
