"""The command ``compare``: a store directory beside a live broker."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import need_target
from rmqtool.cli.framework.opening import need_messages
from rmqtool.cli.framework.options import LISTING, Listing, StoreDir, option

TargetWord = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A live cluster: rocketmq://HOST:9876[,HOST2:9876][/CLUSTER], or @NAME."),
]


@command("compare", "rmqtool compare /backup/store @lab --broker lab-a")
def compare(
    store: StoreDir,
    target: TargetWord,
    broker: Annotated[str | None, option("--broker", "NAME", "The broker, if the cluster has several.")] = None,
    sample: Annotated[int, typer.Option("--sample", min=0, metavar="N", help="Messages of each queue to compare.")] = 8,
    listing: Listing = LISTING,
) -> int:
    """Compare a store directory with a live broker: a backup, a rescued store, or the disk of a slave.

    Settings, offsets of groups, ranges of queues, and a sample of the messages that both have: place, times, CRC of the
    body and properties. The fields are those of diff: first is the store, second the broker. Exit code 1: they differ,
    or something could not be compared.
    """
    from rmqtool.admin.live.comparison import compare_with_broker
    from rmqtool.admin.live.questions import Session
    from rmqtool.cli.framework.choice import first
    from rmqtool.cli.read.diff import columns_of_differences
    from rmqtool.cli.render.output import PEOPLE, write_all, writer
    from rmqtool.cli.render.rows import Warnings, columns_of, names_of
    from rmqtool.cli.render.text import note
    from rmqtool.services.comparison.stores import Difference
    from rmqtool.words import counted

    live, warn = need_target(target), Warnings()
    layout = need_messages(store, listing.broker_conf, what="not compared").layout
    with Session(live, warn) as session:
        comparison = compare_with_broker(layout, session, broker, sample, warn, note)
    rows = (row.to_dict() for row in first(comparison.differences, listing.limit))
    people = listing.output in PEOPLE
    columns = columns_of_differences() if people else columns_of(Difference)
    if comparison.differences or not people:
        write_all(writer(listing.output.value, names_of(Difference), columns), rows)
    for number, where in ((comparison.only_store, store), (comparison.only_broker, f"broker {comparison.broker}")):
        if number:
            note(f"{counted(number, 'message')} only in {where}")
    note(f"{counted(comparison.sampled, 'message')} compared{'' if comparison.differences else '; no difference'}")
    return max(warn.tell(), 1 if comparison.differences else 0)
