"""The schema of JSON bodies of a cluster, taken from a sample."""

from dataclasses import replace

from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.live.plan import plan_ranges
from rmqtool.analytics.live.read import read_range
from rmqtool.services.bodies.infer import SAMPLE


def sample_cluster(request: LiveRequest) -> TableSchema:
    """Return the schema of the first messages of each queue of a request.

    Raises:
        BadValue: none of their bodies is JSON.
        ClientError, RemotingError: a broker does not answer.
    """
    ranges = plan_ranges(replace(request, least_partitions=None, most_records=None))
    most = -(-SAMPLE // max(len(ranges), 1))
    firsts = (replace(part, stop=min(part.stop, part.start + most), last=None) for part in ranges)
    return TableSchema.of_sample(batch for part in firsts for batch in read_range(request, part, ["body"]))
