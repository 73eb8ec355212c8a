"""The schema of bodies of a dump: that of its output, which all of its files have, or the one that is asked for."""

from dataclasses import replace
from functools import partial
from typing import Any

from rmqtool.analytics.bodies.schema import INFERRED, TableSchema, body_schema_of
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.remote.stores import open_log
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.store.layout.paths import StoreLayout


def settle_schema(
    options: DumpOptions, before: dict[str, Any] | None, source: StoreLayout | LiveRequest
) -> tuple[DumpOptions, TableSchema | None]:
    """Return (options with the schema itself instead of its file, the schema).

    Args:
        before: manifest of the output that grows: a schema from a sample remains that of the first run.

    Raises:
        BadValue: there is no schema in the file, or none can be taken from a sample.
        UnreadableStore: the file cannot be read.
        MissingRuntime: the library for it is not installed.
    """
    kept = ((before or {}).get("options") or {}).get("body_schema")
    if options.body_schema == INFERRED and isinstance(kept, str):
        schema: TableSchema | None = TableSchema.from_text(kept)
    else:
        schema = body_schema_of(options.body_schema, partial(_sample, options, source))
    return replace(options, body_schema=None if schema is None else schema.to_text()), schema


def _sample(options: DumpOptions, source: StoreLayout | LiveRequest) -> TableSchema:
    if isinstance(source, LiveRequest):
        from rmqtool.analytics.live.sample import sample_cluster  # loads the compiled code, which small stores need not

        return sample_cluster(source)
    start, stop = options.start_offset, options.stop_offset
    choice = MessageChoice(options.topics, options.since, options.until, start, stop)
    splits, _unusable = plan(open_log(source), start, stop, options.split_bytes)
    return TableSchema.of_sample(
        batch for split in splits for batch in batches(split, choice, SplitTally(), columns=["body"])
    )
