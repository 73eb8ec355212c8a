"""The commands ``info``, ``checkpoint``, ``offsets`` and ``config``: what a store's small files say."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import open_store
from rmqtool.cli.framework.options import (
    ANY_GROUP,
    BakOption,
    BrokerConfOption,
    GroupChoice,
    LimitOption,
    Output,
    OutputOption,
    StoreDir,
)


@command(
    "info",
    "rmqtool info store --output json",
    tables=("topics", "files", "groups", "configs", "problems", "tiered", "epochs", "roles", "report"),
)
def info(store: StoreDir, output: OutputOption = Output.text, broker_conf: BrokerConfOption = None) -> int:
    """Tell what a store is: version, sizes, offsets, topics, marks, who holds it."""
    from rmqtool.cli.read.show_info import INFO_COLUMNS, INFO_FIELDS, show
    from rmqtool.cli.render.output import PEOPLE, with_times, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.text import note
    from rmqtool.services.lookup.info import store_info

    report = store_info(open_store(store, broker_conf))
    if output in PEOPLE:
        show(report, output)
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
    """Show the checkpoint: up to when messages, queues and index are flushed."""
    from formats import checkpoint as codec
    from rmqtool.cli.render.output import Column, with_times, write_all, write_object, writer
    from rmqtool.cli.render.times import time_text
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
    store: StoreDir,
    choice: GroupChoice = ANY_GROUP,
    limit: LimitOption = None,
    bak: BakOption = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show consumer offsets beside the queues they point into.

    Exit code 1: no offset is as it was asked for.
    """
    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.output import Column, rank_in, write_all, writer
    from rmqtool.services.lookup.offsets import OFFSET_FIELDS, consumer_offsets

    spare = ("minOffset", "brokerOffset", "consumerOffset")
    columns = [
        Column(name, right=name not in ("topic", "group"), rank=rank_in(spare, name))
        for name in OFFSET_FIELDS
        if name != "diff"
    ]
    chosen = RowChoice(vars(choice))
    rows = chosen(consumer_offsets(open_store(store, broker_conf), bak=bak), limit)
    write_all(writer(output.value, OFFSET_FIELDS, columns), (row.to_dict() for row in rows))
    return chosen.ends()


@command("config", "rmqtool config store topics.json --output json")
def config(
    store: StoreDir,
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="A file below config/; without it, all.")] = None,
    bak: BakOption = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show the broker's config files, read as a broker reads them."""
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.text import note
    from rmqtool.store.config.files import list_configs, raw_config, read_config

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
