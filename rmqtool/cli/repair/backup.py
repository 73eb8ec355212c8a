"""The commands ``backup create``, ``verify``, ``list`` and ``restore``."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir, option
from rmqtool.cli.framework.sizes import parse_size

if TYPE_CHECKING:
    from rmqtool.store.backup.home import BackupHome

Home = Annotated[str, typer.Argument(metavar="DIR", help="Directory of backups, or a URI: s3://BUCKET/PATH.")]
Names = Annotated[list[str] | None, option("--name", "NAME", "Only this backup; may be repeated.")]


def _home_of(home: str) -> "str | BackupHome":
    """The directory of backups that is meant; a path is left as it is."""
    from rmqtool.store.disk.remote import is_uri

    if not is_uri(home):
        return home
    from rmqtool.analytics.remote.backups import RemoteHome
    from rmqtool.analytics.remote.stores import is_remote, local_of

    return RemoteHome(home) if is_remote(home) else local_of(home)


@command("backup create", "rmqtool backup create store /backup/store --incremental --rate 100M", progress=True)
def create(
    store: StoreDir,
    home: Home,
    incremental: Annotated[
        bool,
        typer.Option("--incremental", help="Link what has not changed since an earlier backup there, do not copy it."),
    ] = False,
    rate: Annotated[str | None, option("--rate", "BYTES", "Copy at most this much per second: 500K, 100M, 1G.")] = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Copy a stopped or live store into a new backup in DIR: plain files, and a manifest with checksums.

    While a broker runs, the log is copied up to the end of its last whole message, and queues as far as they belong to
    it; every message that was acknowledged before the start is included. If interrupted, the same command continues.
    DIR may be a URI (s3://, gs://, abfs://, hdfs://); objects there end after their last byte that is not zero.
    Exit code 1: something was left out.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.store.backup.create import create_backup
    from rmqtool.store.backup.use import BackupRow, row_of

    warn = Warnings()
    speed = parse_size(rate, "--rate", "bytes per second: 500K, 100M, 1G") if rate is not None else None
    layout = need_log(store, broker_conf, say=False, whole=True).layout
    backup = create_backup(layout, _home_of(home), warn, incremental=incremental, rate=speed)
    write_rows(output.value, BackupRow, [row_of(backup)], spare=("store",))
    return warn.tell()


@command("backup list", "rmqtool backup list /backup/store")
def list_(home: Home, output: OutputOption = Output.text) -> int:
    """List the backups of a directory, oldest first.

    copiedBytes is what a backup does not share with an earlier one. Exit code 1: a manifest cannot be read.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.store.backup.use import BackupRow, list_backups

    warn = Warnings()
    write_rows(output.value, BackupRow, list_backups(_home_of(home), warn), spare=("store",))
    return warn.tell()


@command("backup verify", "rmqtool backup verify /backup/store", progress=True)
def verify(home: Home, name: Names = None, output: OutputOption = Output.text) -> int:
    """Read every file of the backups, compare it with its checksum, and list what differs.

    Exit code 1: something does.
    """
    from rmqtool.cli.render.rows import write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.store.backup.use import Fault, chosen_names
    from rmqtool.store.backup.use import verify as run
    from rmqtool.words import counted

    place = _home_of(home)
    names = chosen_names(place, name or ())
    faults = list(run(place, names))
    if faults or output not in (Output.text, Output.table):
        write_rows(output.value, Fault, faults, wide=("file", "fault"))
    damaged = {fault.name for fault in faults}
    note(f"{counted(len(names) - len(damaged), 'backup')} in order, {counted(len(damaged), 'damaged backup')}")
    return 1 if faults else 0


@command("backup restore", "rmqtool backup restore /backup/store restored", progress=True)
def restore(
    home: Home,
    new: Annotated[str, typer.Argument(metavar="NEWSTORE", help="The store to make; it must not exist yet.")],
    name: Annotated[str | None, option("--name", "NAME", "Which backup; the newest by default.")] = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Make a store from a backup. Every file is verified; NEWSTORE appears complete, or not at all.

    Queues and index of a backup of a live store are completed up to the end of its log.
    """
    from rmqtool.cli.render.rows import write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.store.backup.use import BackupRow, row_of
    from rmqtool.store.backup.use import restore as run
    from rmqtool.store.layout.broker_conf import load
    from rmqtool.words import command_line

    backup = run(_home_of(home), new, name=name, conf=load(broker_conf) if broker_conf else None)
    write_rows(output.value, BackupRow, [row_of(backup)], spare=("store",))
    note(f"restored; {command_line('check', new)} checks it")
    return 0
