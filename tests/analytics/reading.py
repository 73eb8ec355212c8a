"""Read like the data source, without Spark."""

import pickle
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.source.plan import pieces, request_of
from rmqtool.analytics.source.read import Counters, read_piece
from rmqtool.analytics.source.tables import SCHEMAS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def read(
    root: object, conditions: Iterable[Condition] = (), columns: list[str] | None = None, **options: str
) -> tuple[list[dict[str, Any]], Counters]:
    """Rows of a reader, before Spark applies conditions, and their cost."""
    request = request_of({"path": str(root), **options})
    parts, bytes_read = pieces(request, request.wanted.narrow(conditions))
    counters = Counters(bytesRead=bytes_read)
    names = columns or SCHEMAS[request.table].names
    rows = [
        row
        for piece in parts
        for batch in read_piece(pickle.loads(pickle.dumps(piece)), names, counters)
        for row in batch.to_pylist()
    ]
    assert counters.rows == len(rows)
    return rows, counters
