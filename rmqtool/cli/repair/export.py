"""The command ``export``: a whole store into a new one that has its queues and tables in files."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import open_store
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir


@command("export", "rmqtool export store newstore", progress=True)
def export(
    store: StoreDir,
    new_store: Annotated[str, typer.Argument(metavar="NEWSTORE", help="Directory to make; must not exist.")],
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Write a store in RocksDB form anew in files, with every offset as it is.

    Messages keep their physical and queue offsets, groups their progress, timers and what POP consumers hold wait on.
    The source is not written, and its broker must be stopped. A broker starts on NEWSTORE without
    storeType=defaultRocksDB; a store that is in files already is written as it is.

    All or nothing: where something cannot be read, or an offset or deliver time would change, no store is made and
    the exit code is 5; salvage then keeps every intact message.
    """
    from rmqtool.cli.repair.run_salvage import run_whole

    return run_whole(open_store(store, broker_conf), new_store, output.value)
