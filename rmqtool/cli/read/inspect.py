"""The commands ``info``, ``checkpoint``, ``offsets`` and ``config``: what a store's small files say."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, open_groups, open_store
from rmqtool.cli.framework.options import (
    ANY_GROUP,
    LISTING,
    BakOption,
    BrokerConfOption,
    GroupChoice,
    Listing,
    Output,
    OutputOption,
    StoreDir,
    StoreOrTarget,
    option,
)
from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from rmqtool.admin.live.info import ClusterFacts
    from rmqtool.admin.target import Target


@command(
    "info",
    "rmqtool info store --output json",
    tables=("topics", "files", "groups", "configs", "problems", "tiered", "epochs", "roles", "report"),
)
def info(store: StoreOrTarget, output: OutputOption = Output.text, broker_conf: BrokerConfOption = None) -> int:
    """Show what a store is: version, sizes, offsets, topics, marks, who holds it; or the brokers of a cluster."""
    from rmqtool.cli.read.show_info import INFO_COLUMNS, INFO_FIELDS, show, show_cluster
    from rmqtool.cli.render.output import PEOPLE, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.text import note
    from rmqtool.cli.render.times import with_times
    from rmqtool.services.lookup.info import StoreInfo, store_info

    report: StoreInfo | ClusterFacts
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.info import cluster_facts

        report = facts = cluster_facts(target, note)
        people = partial(show_cluster, facts)
    else:
        report = info = store_info(open_store(store, broker_conf))
        people = partial(show, info)
    if output in PEOPLE:
        people(output)
    elif PARTS.write(report, output):
        pass
    elif output is Output.csv:
        write_all(writer("csv", INFO_FIELDS, INFO_COLUMNS), (t for t in report.to_dict()["topics"]))
    else:
        write_object(output.value, with_times(report.to_dict()))
    for problem in report.problems:
        note(f"problem: {problem}")
    return 1 if report.problems else 0


@command("checkpoint", "rmqtool checkpoint store")
def checkpoint(store: StoreDir, output: OutputOption = Output.text, broker_conf: BrokerConfOption = None) -> int:
    """Show the checkpoint: the times up to which messages, queues and index are flushed."""
    from formats import checkpoint as codec
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.times import time_text, with_times
    from rmqtool.errors import UnreadableStore
    from rmqtool.services.lookup.info import checkpoint_fields

    layout = open_store(store, broker_conf)
    data = layout.checkpoint()
    if data is None:
        raise UnreadableStore(f"{layout.path('checkpoint')}: no such file")
    fields = checkpoint_fields(data)
    point = codec.parse(data)
    row = {**fields, "minTimestamp": point.min_timestamp, "minTimestampIndex": point.min_timestamp_index}
    if output in (Output.json, Output.ndjson):
        write_object(output.value, with_times(row))
    elif output is Output.csv:
        write_all(writer("csv", tuple(row), ()), [row])
    else:
        columns = (Column("field"), Column("value", right=True), Column("time"))
        rows = (
            {"field": name, "value": value, "time": time_text(value) if value and "Offset" not in name else ""}
            for name, value in row.items()
        )
        write_all(writer(output, (), columns), rows)
    return 0


@command("offsets", "rmqtool offsets store --group billing")
def offsets(
    store: StoreOrTarget, choice: GroupChoice = ANY_GROUP, bak: BakOption = False, listing: Listing = LISTING
) -> int:
    """Show consumer offsets beside the queues they point into.

    Exit code 1: no offset matches.
    """
    from rmqtool.cli.framework.choice import first_of, in_queues, no_match, wanted_of
    from rmqtool.cli.render.rows import Warnings, names_of, write_rows

    warn = Warnings()
    groups = open_groups(store, listing.broker_conf, warn, wanted_of(choice), bak=bak, log=False)
    shown = [name for name in names_of(groups.offset_row) if name != "diff"]
    spare = ("minOffset", "brokerOffset", "consumerOffset")
    rows = in_queues(groups.offset_row, groups.positions(), choice.queue)
    count = write_rows(listing.output.value, groups.offset_row, first_of(rows, listing.limit), shown, spare=spare)
    return no_match(count, warn.tell(), **vars(choice))


@command("config", "rmqtool config store topics.json --output json")
def config(
    store: StoreOrTarget,
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="A file below config/; by default all.")] = None,
    bak: BakOption = False,
    broker: Annotated[str | None, option("--broker", "NAME", "The broker, if a live cluster has several.")] = None,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Topics and groups as a YAML file, which apply takes.")
    ] = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show the broker's config files, read as a broker reads them, or the four that live brokers report."""
    if as_yaml:
        if file is not None or bak or broker is not None or output is not Output.text:
            raise BadValue("--yaml: writes all topics and groups: leave out FILE, --bak, --broker and --output")
        from rmqtool.cli.read.declaring import write_declared

        return write_declared(store, broker_conf)
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.text import note
    from rmqtool.store.config.files import list_configs, raw_config, read_config

    if (target := live_target(store)) is not None:
        return _show_live_config(target, file, broker, output)
    if broker is not None:
        raise BadValue("--broker: goes with a live cluster; a store directory is of one broker")
    layout = open_store(store, broker_conf)
    if file is not None:
        from formats.config.files import kind_of

        if kind_of(file) is not None:
            read_config(layout, file, bak=bak)  # refuses what a broker would refuse, with its place
        write_object(
            "ndjson" if output is Output.ndjson else "json", raw_config(layout, file + ".bak" if bak else file)
        )
        return 0
    fields = ("name", "bytes", "kind", "readable", "error")
    broken = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal broken
        for entry in list_configs(layout):
            broken += entry.error is not None
            if entry.error:
                note(f"{layout.path('config', entry.name)}: {entry.error}")
            yield {
                "name": entry.name,
                "bytes": entry.size,
                "kind": entry.kind,
                "readable": entry.error is None,
                "error": entry.error,
            }

    write_all(writer(output.value, fields, [Column(name, right=name == "bytes") for name in fields]), rows())
    return 1 if broken else 0


def _show_live_config(target: "Target", file: str | None, broker: str | None, output: Output) -> int:
    from rmqtool.admin.live.info import LiveConfig, list_tables, read_table
    from rmqtool.cli.render.output import write_object
    from rmqtool.cli.render.rows import Warnings, write_rows

    warn = Warnings()
    if file is not None:
        write_object("ndjson" if output is Output.ndjson else "json", read_table(target, file, broker, warn))
        return warn.tell()
    rows = [row for row in list_tables(target, warn) if broker in (None, row.brokerName)]
    write_rows(output.value, LiveConfig, rows)
    return warn.tell() or (1 if any(row.error for row in rows) else 0)
