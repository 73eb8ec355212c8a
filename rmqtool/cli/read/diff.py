"""The command ``diff``: what two stores do not have alike."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_messages
from rmqtool.cli.framework.options import LISTING, Listing, Output, StoreDir, option

if TYPE_CHECKING:
    from rmqtool.cli.render.output import Column
    from rmqtool.services.comparison.stores import StoreComparison


@command("diff", "rmqtool diff store /backup/store", progress=True, tables=("differences", "report"))
def diff(
    store: StoreDir,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The store to compare with.")],
    listing: Listing = LISTING,
    other_conf: Annotated[str | None, option("--other-conf", "FILE", "The properties file of OTHER's broker.")] = None,
) -> int:
    """Compare two stores: a master and its slave, a backup and its source, a store before and after a repair.

    The logs are compared byte by byte as far as they share a history, then message by message, by topic, queue and
    queue offset; then queues, consumer offsets and settings. Exit code 1: they differ, or damaged parts could not be
    compared.
    """
    from rmqtool.cli.framework.choice import first
    from rmqtool.cli.render.output import PEOPLE, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.rows import Warnings, columns_of, names_of
    from rmqtool.cli.render.times import with_times
    from rmqtool.services.comparison.stores import Difference, compare_stores

    first_log = need_messages(store, listing.broker_conf, what="not compared")
    second_log = need_messages(other, other_conf, what="not compared")
    warn, names = Warnings(), names_of(Difference)
    comparison = compare_stores(first_log.layout, second_log.layout, warn)
    rows = (row.to_dict() for row in first(comparison.differences, listing.limit))
    if listing.output in PEOPLE:
        _sum_up(comparison)
        if comparison.differences:
            write_all(writer(listing.output, names, columns_of_differences()), rows)
    elif listing.output is Output.csv:
        if not PARTS.write(comparison, listing.output):
            write_all(writer("csv", names, columns_of(Difference)), rows)
    else:
        write_object(listing.output.value, with_times(comparison.to_dict()))
    return max(warn.tell(), 0 if comparison.equal else 1)


def columns_of_differences() -> "list[Column]":
    """The columns of a table of differences."""
    from rmqtool.cli.render.output import Column

    return [
        Column("part"), Column("what", wide=True), Column("where", _place, wide=True),
        Column("first", wide=True), Column("second", wide=True),
    ]  # fmt: skip


def _place(row: dict[str, Any]) -> str:
    """What a row is about: group, topic and queue, the path of a setting, offsets."""
    names = [row[name] for name in ("group", "topic", "queueId", "name") if row[name] is not None]
    if row["toOffset"] is not None:
        names.append(f"{row['fromOffset']}:{row['toOffset']}")
    elif row["fromOffset"] is not None:
        names.append(f"at {row['fromOffset']}")
    return " ".join(map(str, names))


def _sum_up(comparison: "StoreComparison") -> None:
    """Say on stderr what both have in common, and what not."""
    from rmqtool.cli.render.text import note
    from rmqtool.words import counted

    if comparison.commonFrom is None:
        note("the logs have no range with the same history: compared message by message")
    else:
        note(f"the logs have the same history from {comparison.commonFrom} to {comparison.commonTo}")
    for number, words in (
        (comparison.records, "not the same in that range"),
        (comparison.onlyFirst, f"only in {comparison.first}"),
        (comparison.onlySecond, f"only in {comparison.second}"),
        (comparison.different, "not the same outside of it"),
    ):
        if number:
            note(f"{counted(number, 'message')} {words}")
    for number, path in ((comparison.damagedFirst, comparison.first), (comparison.damagedSecond, comparison.second)):
        if number:
            note(f"{path}: {counted(number, 'damaged range')} not compared")
    if comparison.equal:
        note("the stores are equal")
