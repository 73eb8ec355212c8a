"""``dump``: adds the messages of a store or a cluster to a table of a lakehouse, each once."""

import os
from dataclasses import replace

from rmqtool.admin.target import Target
from rmqtool.analytics.dump.dump import dump_to
from rmqtool.analytics.dump.live import dump_cluster_to
from rmqtool.analytics.dump.position import Position
from rmqtool.analytics.dump.report import DumpOptions, DumpReport, jsonable
from rmqtool.analytics.dump.tasks import Progress
from rmqtool.analytics.lake.output import LakeTable, TableOutput
from rmqtool.analytics.remote.secrets import clean
from rmqtool.analytics.remote.stores import open_log, resolve_store
from rmqtool.analytics.spark.awaiting import Tell
from rmqtool.errors import BadValue, Refused
from rmqtool.store.config.release import release_of
from rmqtool.store.layout.paths import StoreLayout

FORMATS = ("delta", "iceberg")


def dump_to_table(
    source: StoreLayout | Target | str | os.PathLike[str],
    to: str,
    table: str,
    options: DumpOptions | None = None,
    *,
    source_name: str | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> DumpReport:
    """Add the messages of a store or of a live cluster to a table.

    The table knows up to where it has a source, so each message is added once, however often this runs or is killed.
    Files of one source are added by one run at a time; several sources can be added to one table at once.

    Args:
        source: a store's directory or URI, or a live cluster.
        to: ``delta`` or ``iceberg``.
        table: path or URI of a Delta table; or ``CATALOG.NAMESPACE.TABLE`` of a catalog that PyIceberg knows.
        options: as for :func:`rmqtool.dump_to_parquet`, without ranges. With ``since_last=False`` the table must not
            have messages of this source. ``partition_by`` applies to a new table; by default it is day and topic.
        source_name: the source's name in the table; by default the store's path or the cluster's address.

    Raises:
        BadValue: an option has an invalid value.
        MissingRuntime: the library of the format is not installed, or Spark cannot be started.
        Refused: the table cannot be written, or its source is another one.
        RmqError: reading, writing or Spark failed.
    """
    if to not in FORMATS:
        raise BadValue(f"cannot dump to {to!r}, only to {' or '.join(FORMATS)}")
    options = options or DumpOptions(since_last=True)
    again, options = options.since_last, replace(options, since_last=True)
    options.check()
    if isinstance(source, str | os.PathLike):
        source = StoreLayout(resolve_store(os.fspath(source)))
    name = source_name or (source.text if isinstance(source, Target) else source.root)
    with clean(table):
        release = None if isinstance(source, Target) else release_of(source).name
        output = TableOutput(_open(to, table, name, options.partition_by), options.partition_by or None, release)
        output.check()
        if not again and output.manifest() is not None:
            raise Refused(f"{output.name}: has messages of {name} already; add what is new with --since-last")
        options = replace(options, partition_by=output.partition_by)
        if isinstance(source, Target):
            return dump_cluster_to(output, source, options, progress, tell)
        _refuse_known(output.table, source)
        return dump_to(output, source, options, progress, tell)


def _open(to: str, table: str, source: str, partition_by: tuple[str, ...]) -> LakeTable:
    if to == "delta":
        from rmqtool.analytics.lake.delta import DeltaLakeTable

        return DeltaLakeTable(table, source)
    from rmqtool.analytics.lake.iceberg import IcebergTable

    return IcebergTable(table, source, partition_by)


def _refuse_known(table: LakeTable, layout: StoreLayout) -> None:
    """Check that the log is not in the table under another name, for example because the store was moved.

    Raises:
        Refused: it is.
    """
    states = table.states()
    if table.source in states:
        return
    log = open_log(layout)
    for source, state in states.items():
        try:
            position = Position.from_dict(jsonable(state["manifest"]).get("position"))
        except ValueError:
            continue  # of a cluster
        if log.min_offset <= position.last and position.differs(log) is None:
            raise Refused(
                f"{table.name}: has the messages of {layout.root} up to {position.next} already, as {source}. To add "
                f"what is new: --source {source}"
            )
