"""Check the files of controller mode: master epochs against the log, and the broker's identity.

Source: store.ha.autoswitch.EpochFileCache, AutoSwitchHAService, BrokerMetadata (5.3.3).
"""

from formats.errors import FormatError
from formats.variants import epoch
from rmqtool.errors import RmqError
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import read_small

EPOCHS, IDENTITY = "epochFileCheckpoint", "brokerIdentity"


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
    if not epoch.is_increasing(epochs):
        text = ", ".join(f"{entry.epoch} at {entry.start_offset}" for entry in epochs[:10])
        ctx.found.add("epoch-order", EPOCHS, expected="increasing epochs and offsets", actual=text)
    for entry in epochs:
        if entry.start_offset > ctx.log_seen.end and not ctx.log_seen.absent:
            expected = f"at most {ctx.log_seen.end}"
            ctx.found.add(
                "epoch-ahead", EPOCHS, expected=expected, actual=f"epoch {entry.epoch} at {entry.start_offset}"
            )


def _content(ctx: Context, name: str) -> bytes | None:
    try:
        return read_small(ctx.layout.path(name))
    except RmqError as err:
        ctx.found.add("file-unreadable", name, actual=str(err))
        return None
