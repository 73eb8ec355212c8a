"""A schema of bodies from a sample of what a dump reads."""

from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.remote.stores import open_log
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.store.layout.paths import StoreLayout


def sample_bodies(options: DumpOptions, source: StoreLayout | LiveRequest) -> TableSchema:
    """Return the schema that the first bodies of a source fit.

    Raises:
        BadValue: none can be taken from them.
    """
    if isinstance(source, LiveRequest):
        from rmqtool.analytics.live.sample import sample_cluster  # loads the compiled code, which small stores need not

        return sample_cluster(source)
    start, stop = options.start_offset, options.stop_offset
    choice = MessageChoice(options.topics, options.since, options.until, start, stop)
    splits, _unusable = plan(open_log(source), start, stop, options.split_bytes)
    return TableSchema.of_sample(
        batch for split in splits for batch in batches(split, choice, SplitTally(), columns=["body"])
    )
