"""Check the files of controller mode: master epochs against the log, and the broker's identity.

Source: store.ha.autoswitch.EpochFileCache, AutoSwitchHAService, BrokerMetadata (5.3.3).
"""

import numpy as np

from formats.errors import FormatError
from formats.variants import epoch
from rmqtool.errors import RmqError
from rmqtool.store.check.advice.steps import Step, by_hand
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.directories import read_small
from rmqtool.store.layout.paths import EPOCHS
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.epochs import Unlisted, audit_epochs
from rmqtool.store.log.scan import scan_file

COMPARE = by_hand("compare it with the other replicas: they show what the group kept")
IDENTITY = "brokerIdentity"


def check_replication(ctx: Context) -> None:
    """Check both files if they exist."""
    _check_epochs(ctx)
    data = _content(ctx, IDENTITY)
    if data is not None:
        try:
            epoch.parse_identity(data)
        except FormatError as err:
            ctx.found.add("identity-broken", IDENTITY, offset=err.at, actual=err.reason)


def _check_epochs(ctx: Context) -> None:
    data = _content(ctx, EPOCHS)
    if data is None:
        return
    try:
        epochs = epoch.parse(data)
    except FormatError as err:
        ctx.found.add("epoch-broken", EPOCHS, offset=err.at, actual=err.reason)
        return
    ordered = epoch.is_increasing(epochs)
    if not ordered:
        text = ", ".join(f"{entry.epoch} at {entry.start_offset}" for entry in epochs[:10])
        ctx.found.add("epoch-order", EPOCHS, expected="increasing epochs and offsets", actual=text)
    for entry in epochs:
        if entry.start_offset > ctx.log_seen.end and not ctx.log_seen.absent:
            expected = f"at most {ctx.log_seen.end}"
            ctx.found.add(
                "epoch-ahead", EPOCHS, expected=expected, actual=f"epoch {entry.epoch} at {entry.start_offset}"
            )
        elif ordered and (begin := _record_around(ctx.inputs.log, entry.start_offset)) is not None:
            actual = f"epoch {entry.epoch} at {entry.start_offset}, inside of the record at {begin}"
            ctx.found.add("epoch-inside", EPOCHS, expected="the beginning of a record", actual=actual)
    if ordered:
        audit = audit_epochs(ctx.inputs.log, epochs)
        for unlisted in audit.unlisted:
            ctx.found.add("epoch-missing", EPOCHS, expected="an epoch for each master", actual=str(unlisted))
        if audit.stale is not None:
            _report_stale(ctx, audit.stale)


def _report_stale(ctx: Context, stale: Unlisted) -> None:
    at = stale.handover.at
    file = ctx.inputs.log.segments.find(at)
    cut = Step(
        command=("rmqtool", "truncate", "STORE", str(at)),
        does="ends the log where its group has truncated it, queues and index too",
        costs="the messages that its group has replaced leave STORE; undo brings them back",
    )
    ctx.found.add(
        "epoch-stale",
        ctx.name(file.path) if file is not None else EPOCHS,
        offset=at - file.base if file is not None else None,
        expected=f"the end of the log at {at}",
        actual=str(stale),
        steps=(*COMPARE, cut),
    )


def _record_around(log: CommitLog, physical_offset: int) -> int | None:
    """Physical offset of the record that contains an offset; None if there is none."""
    file = log.segments.find(physical_offset)
    if file is None or isinstance(log.look(physical_offset, crc=False), LocatedRecord):
        return None
    at = physical_offset - file.base
    try:
        for item in scan_file(file, last=True, crc=False):
            if isinstance(item, Damage):
                continue
            row = int(np.searchsorted(item.rows.at, at, "right")) - 1
            if row >= 0 and item.rows.at[row] < at < item.rows.at[row] + item.rows.total_size[row]:
                return file.base + int(item.rows.at[row])
            if item.rows.at[-1] >= at:
                break
    finally:
        file.release()
    return None


def _content(ctx: Context, name: str) -> bytes | None:
    try:
        return read_small(ctx.layout.path(name))
    except RmqError as err:
        ctx.found.add("file-unreadable", name, actual=str(err))
        return None
