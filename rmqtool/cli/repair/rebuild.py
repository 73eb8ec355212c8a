"""The command ``rebuild``: queues, index and checkpoint from the log, or config files from what is left."""

from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log, open_store
from rmqtool.cli.framework.options import (
    BackupOption,
    BrokerConfOption,
    Output,
    OutputOption,
    StoreDir,
)
from rmqtool.cli.framework.planning import ASK, Consent


class RebuildPart(StrEnum):
    """What can be built from the log, or mended."""

    queues = "consumequeue"
    keys = "index"
    checkpoint = "checkpoint"
    config = "config"
    timer = "timer"
    compaction = "compaction"
    files = "files"
    tier = "tiered-metadata"


@command(
    "rebuild",
    "rmqtool rebuild store index --dry-run",
    progress=True,
    tables=("actions", "configs", "parts", "warnings", "left", "report"),
)
def rebuild(
    store: StoreDir,
    part: Annotated[
        list[RebuildPart],
        typer.Argument(
            metavar="PART...",
            help="consumequeue, index, checkpoint; or alone: config, timer, compaction, files, tiered-metadata.",
        ),
    ],
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Rebuild consume queues, index or checkpoint from the commit log, or repair config files.

    New files are built aside and swapped in; the old ones are kept in STORE.rmqtool, and undo restores them. The store
    must have been stopped cleanly (recover does that), and its log must be whole.

    config repairs damaged JSON files: a torn file is restored from its .bak, or from the readable entries of both;
    topics that have messages get their entry back, and offsets are moved back into their queues. It works on a store in
    any state, and leaves intact files alone.

    timer rebuilds wheel, log and checkpoint of the timer of 5.x: every message in its queue that was not yet due,
    according to config/timercheck, waits again. If that file says nothing, the timer files are removed, and a broker
    reads the queue from its beginning.

    compaction rebuilds the damaged logs of compacted topics from every intact message in them or in the commit log.
    Intact queues are left alone.

    files repairs what a broker refuses to load: a last log file that is too short is padded with zeros, which is unused
    space; an earlier one gets an end-of-file blank after its last message; and empty or foreign files are moved out of
    the store.

    tiered-metadata writes config/tieredStoreMetadata.json from the segments of the tier. Without that file and its
    .bak a broker serves nothing of its tier, and starts a new one over it.
    """
    from rmqtool.cli.framework.planning import carry_out, note_actions
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.text import note
    from rmqtool.store.repair.rebuild import CONFIG, LENGTHS, TIER
    from rmqtool.store.repair.rebuild import rebuild as run
    from rmqtool.words import counted

    parts = tuple(dict.fromkeys(name.value for name in part))
    layout = (
        open_store(store, broker_conf)
        if parts in ((CONFIG,), (TIER,))
        else need_log(store, broker_conf, say=False).layout
    )
    consent.need("rebuild")
    report, _done = carry_out(
        consent,
        plan=lambda: run(layout, parts, dry_run=True, backup=backup),
        show=lambda plan: note_actions(plan.actions),
        question=lambda plan: "Do this?" if plan.actions else None,
        do=lambda _plan: run(layout, parts, backup=backup),
    )
    if output in (Output.json, Output.ndjson):
        write_object(output.value, report.to_dict())
    elif not PARTS.write(report, output):
        write_all(writer(output.value, ("action",), [Column("action")]), ({"action": a} for a in report.actions))
    for warning in report.warnings:
        note(f"warning: {warning}")
    if parts == (CONFIG,):
        count = sum(outcome.written for outcome in report.configs)
        note(f"{count} of {len(report.configs)} config files {'written' if report.applied else 'would be written'}")
        return 0
    if parts == (LENGTHS,):
        if report.left:
            return 1
        note(
            f"{counted(len(report.actions), 'file')} {'put right' if report.applied else 'would be put right'}"
            if report.actions
            else "nothing to put right"
        )
        return 0
    if parts == (TIER,):
        entries = f"{counted(report.messages, 'message')} of {counted(report.queues, 'queue')}"
        verb = "is in" if report.applied else "would be in" if report.actions else "is already in"
        note(f"{entries}: the tier {verb} its metadata")
        return 0
    done = "rebuilt from" if report.applied else "would be rebuilt from"
    note(f"{' and '.join(report.parts)} {done} {counted(report.messages, 'message')}")
    return 0
