"""The command ``import``: messages into a fresh store."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption


@command("import", "rmqtool import newstore messages/", progress=True)
def import_(
    store: Annotated[str, typer.Argument(metavar="NEWSTORE", help="Directory to make; must not exist.")],
    source: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Parquet files or directories of them, or NDJSON files.")
    ],
    new_times: Annotated[
        bool,
        typer.Option("--new-times", help="Store the messages with the current time instead of their storeTimestamp."),
    ] = False,
    topics_of: Annotated[
        str | None,
        typer.Option("--topics-of", metavar="STORE", help="Take over that store's table of topics, batch queues too."),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAMES",
            help="Fields with other names: value=body,key=keys,partition=queueId; =body for no bodies.",
        ),
    ] = None,
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Make a store that a broker boots from messages in Parquet or NDJSON.

    It takes what dump-to-parquet and --output ndjson write, filtered or edited as you like; columns may be missing, but
    not topic. A table in Kafka's shape (topic, partition, offset, key, value, timestamp) is known. Columns that are not
    taken are named, and a table whose bodies are not is refused. Messages come in the order of their physical offsets,
    or without these of their queue offsets, and are numbered from 0 in each queue. Bodies that were decompressed stay
    so. The store appears when it is whole, without config files but the table that --topics-of takes over: a broker
    delivers its SCHEDULE_TOPIC_XXXX once more, so leave that out where it was delivered. Exit code 1: some rows were
    not taken.
    """
    from rmqtool.cli.write.run_import import run

    return run(
        store,
        source,
        broker_conf,
        engine=engine,
        keep_times=not new_times,
        output=output.value,
        topics_of=topics_of,
        names=names or [],
    )
