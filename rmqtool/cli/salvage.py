"""salvage."""

from typing import Annotated

import typer

from rmqtool.cli.app import command
from rmqtool.cli.options import BrokerConfOption, Output, OutputOption, StoreDir
from rmqtool.cli.run_query import open_store


@command("salvage", "rmqtool salvage store newstore")
def salvage(
    store: StoreDir,
    new_store: Annotated[str, typer.Argument(metavar="NEWSTORE", help="Directory to make; must not exist.")],
    output: OutputOption = Output.table,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Carve every intact message, also behind damage, into a fresh store that a broker boots.

    The source is not written. Queues, index and checkpoint of the new store are built; readable config files come
    along. What could not be read is kept in NEWSTORE/lost+found. Exit code 0: nothing was lost; 1: something was.
    """
    from rmqtool.cli.output import Column, note, write_all, write_object, writer
    from rmqtool.store.salvage import Salvage

    report = Salvage(open_store(store, broker_conf), new_store).run()
    fields = ("file", "at", "physicalOffset", "length", "reason", "copy")
    if output in (Output.json, Output.ndjson):
        write_object(output.value, report.to_dict())
    else:
        columns = [Column(name, right=name in ("at", "physicalOffset", "length")) for name in fields]
        write_all(writer(output.value, fields, columns), report.to_dict()["lostRanges"])
    for warning in report.warnings:
        note(f"warning: {warning}")
    for queue in report.renumbered:
        note(f"{queue.topic} queue {queue.queueId}: {queue.lost} queue offsets lost; later messages moved down")
    note(f"{report.messages} messages, {report.bytes} bytes in {report.store}; {report.lostBytes} bytes not readable")
    return 1 if report.lostRanges else 0
