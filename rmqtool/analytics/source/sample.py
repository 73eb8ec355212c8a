"""The schema of JSON bodies of stores, taken from a sample."""

from dataclasses import replace

from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.source.plan import ReadRequest
from rmqtool.analytics.source.read import Counters, plan_pieces, read_piece


def sample_store(request: ReadRequest) -> TableSchema:
    """Return the schema of the first messages of a request.

    Raises:
        BadValue: none of their bodies is JSON.
    """
    request = replace(request, table="messages")
    planned, _counters = plan_pieces(request, request.wanted)
    return TableSchema.of_sample(batch for piece in planned for batch in read_piece(piece, ["body"], Counters()))
