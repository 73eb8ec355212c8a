"""The command ``append``: messages into a store that is there."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.framework.lines import Lines
from rmqtool.cli.framework.opening import chosen_release
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption, StoreDir
from rmqtool.cli.render.text import note
from rmqtool.cli.write.tally import AppendTally
from rmqtool.progress import stage
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.importer import Importer


@command("append", "rmqtool append newstore messages.ndjson --keep-times", progress=True)
def append(
    store: StoreDir,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="NDJSON, one message per line; - is stdin.")] = "-",
    keep_times: Annotated[
        bool,
        typer.Option("--keep-times", help="Keep the messages' storeTimestamp instead of setting the current time."),
    ] = False,
    sync: Annotated[
        bool, typer.Option("--sync", help="Flush messages to disk before they are acknowledged (SYNC_FLUSH).")
    ] = False,
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Append messages to a store, given as NDJSON in the form that this tool prints.

    Only topic is required; queueId, body, bodyEncoding, properties, tags, keys and the other fields are used if
    present. A message with a DELAY property is delayed, unless physicalOffset shows that it was stored before. Every
    line gets a result, in the order of the input: --output ndjson tells where each message lies, as soon as it is
    stored; the table counts by topic and queue. Acknowledged messages survive a killed process, and with --sync a power
    cut. Refused lines are reported on stderr, and the exit code is 1. If an append was killed, the store is first
    recovered as by recover, provided that no message is lost by it.
    """
    release = chosen_release(engine)
    ending = StopSignal()
    with Lines(file) as lines, ending.watch():
        tally = AppendTally(output.value)
        with Store(
            store, write=True, broker_conf=broker_conf, release=release, sync_flush=sync or None, mend=True
        ) as opened:
            if opened.live.mended is not None and opened.live.mended.actions:
                note(f"{opened.layout.root}: was not stopped cleanly; recovered first, nothing was lost")
            for text in opened.warnings:
                note(f"warning: {text}")
            importer = Importer(opened, keep_times=keep_times)
            with stage("appending", lines.size, "messages" if lines.size is None else "bytes") as appending:
                for numbers, rows in lines.rows(ending):
                    tally.take(numbers, importer.take(rows))
                    appending.done = appending.done + len(rows) if lines.size is None else min(lines.done, lines.size)
        return tally.close(None if lines.ended else ending)
