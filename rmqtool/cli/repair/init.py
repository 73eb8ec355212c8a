"""The command ``init``: make an empty store."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption


@command("init", "rmqtool init newstore")
def init(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Directory to create; must be absent or empty.")],
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Create an empty store, to append to or to start a broker on, of release 5.5 or of --engine.

    The first commit-log file sets the length of all others. Queue and index files are created with the first messages:
    give the same --broker-conf to append until then.
    """
    from rmqtool.cli.framework.opening import chosen_release
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.text import note
    from rmqtool.rules.releases import NEWEST
    from rmqtool.store.append.create import create
    from rmqtool.store.layout.broker_conf import load

    layout = create(store, load(broker_conf) if broker_conf else None, chosen_release(engine) or NEWEST)
    row = {"store": layout.root, "commitLogFileSize": layout.commit_log_size(layout.commit_log())}
    if output in (Output.json, Output.ndjson):
        write_object(output.value, row)
    else:
        write_all(writer(output.value, tuple(row), [Column(name) for name in row]), [row])
    note("an empty store")
    return 0
