"""The commands ``salvage`` and ``export``: a store into a fresh one, all that is intact or exactly as it is."""

from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import open_store
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir


class Form(StrEnum):
    """What messages are written as, instead of a store."""

    ndjson = "ndjson"
    parquet = "parquet"


@command("salvage", "rmqtool salvage store newstore", progress=True)
def salvage(
    store: StoreDir,
    new_store: Annotated[
        str,
        typer.Argument(metavar="NEWSTORE", help="Directory to make, or with --to the file; must not exist."),
    ],
    to: Annotated[
        Form | None,
        typer.Option(
            "--to", metavar="FORM", help="Write the messages to a file, ndjson or parquet; ndjson also to - (stdout)."
        ),
    ] = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Carve every intact message, also after damage, into a fresh store that a broker boots.

    The source is not written. Queues, index and checkpoint of the new store are built; readable config files come
    along. What could not be read is kept in NEWSTORE/lost+found. Exit code 0: nothing was lost; 1: something was.

    With --to the messages go to one file: as commitlog dump prints them (ndjson), or with the columns of
    dump-to-parquet. What could not be read is then kept beside it, in NEWSTORE.lost+found.
    """
    from rmqtool.cli.repair.run_salvage import run_salvage, run_to_file

    layout = open_store(store, broker_conf)
    if to is not None:
        return run_to_file(layout, to.value, new_store, output.value)
    return run_salvage(layout, new_store, output.value)


@command("export", "rmqtool export store newstore", progress=True)
def export(
    store: StoreDir,
    new_store: Annotated[str, typer.Argument(metavar="NEWSTORE", help="Directory to make; must not exist.")],
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Rewrite a store in RocksDB form as files, with every offset as it is.

    Messages keep their physical and queue offsets, groups their progress, timers and what POP consumers hold wait on.
    The source is not written, and its broker must be stopped. A broker starts on NEWSTORE without
    storeType=defaultRocksDB; a store that is in files already is written as it is.

    All or nothing: where something cannot be read, or an offset or deliver time would change, no store is made and
    the exit code is 5; salvage then keeps every intact message.
    """
    from rmqtool.cli.repair.run_salvage import run_whole

    return run_whole(open_store(store, broker_conf), new_store, output.value)
