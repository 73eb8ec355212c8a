"""The command ``evidence``: a bundle for a support case."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir, option
from rmqtool.cli.framework.sizes import parse_size


@command("evidence", "rmqtool evidence store evidence.tar.gz", progress=True)
def evidence(
    store: StoreDir,
    out: Annotated[str, typer.Argument(metavar="OUT", help="The .tar.gz to create; must not exist.")],
    hide_names: Annotated[bool, typer.Option("--hide-names", help="Replace names of topics and groups, too.")] = False,
    most: Annotated[str, option("--most", "BYTES", "Size that it may have at most: 500K, 16M.")] = "16M",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Pack what a support case needs of a store into one file, without any message in it.

    It has the results of info, check and recover --dry-run, a list of all files, the bytes at findings by field, the
    config files, and a manifest. Bodies, keys, property values and hosts are replaced by their length and a hash with
    a random key that is not kept; accounts and secrets are left out. The store is only read.
    """
    from rmqtool.cli.framework.privacy import as_private_as
    from rmqtool.cli.render.rows import write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.services.evidence.bundle import BundleRow, collect_evidence

    size = parse_size(most, "--most", "a size: 500K, 16M")
    layout = need_log(store, broker_conf).layout
    with as_private_as(layout.root):
        row = collect_evidence(layout, out, most=size, hide_names=hide_names)
    write_rows(output.value, BundleRow, [row], wide=("path",))
    if row.incomplete:
        note("not all of it fits: the manifest says what is missing; give a larger --most")
    return 0
