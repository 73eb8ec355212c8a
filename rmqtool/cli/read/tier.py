"""The commands ``tier list`` and ``tier check``: the tiered storage of a store."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir
from rmqtool.cli.render.text import note
from rmqtool.store.layout.paths import StoreLayout


@command("tier list", "rmqtool tier list store --segments")
def tier_list(
    store: StoreDir,
    segments: Annotated[bool, typer.Option("--segments", help="List the segments instead of the queues.")] = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show what of each queue is in the tier alone, in the local log alone, in both, or lost.

    Lost are messages that expired from the local log and are not in the tier: brokers upload no delayed, timer and half
    messages. Of these, waiting are delayed messages that were not delivered.

    With --segments, every segment with the length of its file and that in config/tieredStoreMetadata.json. STORE may be
    a URI, as for sql, if the tier is below it. Exit code 1: the store has no tier.
    """
    from rmqtool.cli.render.output import Column, write_all, writer
    from rmqtool.cli.render.rows import names_of, write_rows
    from rmqtool.store.tier.coverage import QueueCoverage, TierSegment, coverage_of, segments_of
    from rmqtool.store.tier.tier import Tier

    layout = _open(store, broker_conf)
    tier = Tier.of(layout) if layout is not None else None
    if segments:
        listed = segments_of(layout) if layout is not None else []
        write_rows(output.value, TierSegment, listed, wide=("path", "file"), spare=("file",))
    else:
        columns = (
            Column("topic", wide=True),
            Column("queue", lambda row: row["queueId"], right=True),
            Column("tier", lambda row: _range(row["tierMinOffset"], row["tierMaxOffset"]), right=True),
            Column("local", lambda row: f"{row['localMinOffset']}:{row['localMaxOffset']}", right=True),
            Column("tier only", lambda row: row["inTierAlone"], right=True),
            Column("both", lambda row: row["inBoth"], right=True, rank=1),
            Column("log only", lambda row: row["inLogAlone"], right=True, rank=2),
            Column("lost", right=True),
            Column("waiting", right=True),
        )
        queues = coverage_of(layout, tier) if layout is not None and tier is not None else []
        write_all(writer(output.value, names_of(QueueCoverage), columns), (queue.to_dict() for queue in queues))
    return 0 if layout is not None else 1


@command("tier check", "rmqtool tier check store", progress=True)
def tier_check(store: StoreDir, output: OutputOption = Output.text, broker_conf: BrokerConfOption = None) -> int:
    """Check only the tier, as check does: metadata, segments, messages and index, and the local log against it.

    Every message is read, its checksum verified, and compared with the local log where that has it, too. Also says what
    a broker's next start would do to the tier. Exit code 0: clean, or infos only; 1: errors or warnings, or no tier.
    """
    from rmqtool.cli.read.run_check import CheckedStore, run_check
    from rmqtool.cli.render.output import write_all, writer
    from rmqtool.store.check.codes.all import INFO
    from rmqtool.store.check.common.findings import FINDING_FIELDS
    from rmqtool.store.check.tiered import check_tier

    layout = _open(store, broker_conf)
    if layout is None:
        write_all(writer(output.value, FINDING_FIELDS, ()), ())
        return 1
    return run_check([CheckedStore(layout, store)], INFO, None, output.value, broker_conf, check=check_tier)


def _range(start: int, stop: int) -> str:
    return f"{start}:{stop}" if start < stop else ""


def _open(store: str, broker_conf: str | None) -> StoreLayout | None:
    """The store; None, with a note, if it has no tier."""
    from rmqtool.store.disk.remote import is_uri
    from rmqtool.store.layout.tier_signs import tier_sign

    if is_uri(store):
        from rmqtool.analytics.remote.stores import attach_store

        store = attach_store(store)
    layout = need_log(store, broker_conf, say=False).layout
    if tier_sign(layout) is not None:
        return layout
    note(f"{layout.root} has no tiered storage; if a broker's settings name one, give --broker-conf")
    return None
