"""What Spark's planner passes for one scan, through ``planner/RocketMQ.java``: as options of the data source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rmqtool.analytics.source.filter import Condition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from formats.remoting.shapes import MessageQueue
    from rmqtool.analytics.source.plan import ReadRequest

_CONDITIONS, _LIMIT, _STATISTICS = "pushed", "limit", "statistics"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Pushed:
    """What a scan needs. Spark checks rows again, so more may be returned.

    Attributes:
        conditions: all of them must hold.
        limit: rows that each task needs to return at most; None for all.
        asks_size: only the size of what would be read is asked for.
    """

    conditions: tuple[Condition, ...] = ()
    limit: int | None = None
    asks_size: bool = False

    @classmethod
    def take(cls, options: Mapping[str, str]) -> tuple[dict[str, str], "Pushed"]:
        """Return (the options that users give, what the planner passes)."""
        rest = {name.lower(): value for name, value in options.items()}
        conditions = json.loads(rest.pop(_CONDITIONS, "[]"))
        limit = rest.pop(_LIMIT, None)
        asks_size = rest.pop(_STATISTICS, None) is not None
        parsed = tuple(Condition(column, op, _value(value, op)) for column, op, value in conditions)
        return rest, cls(parsed, None if limit is None else int(limit), asks_size)

    def narrow(self, request: "ReadRequest") -> "ReadRequest":
        """Return a request for what the conditions leave of it."""
        if not self.conditions or request.table != "messages":
            return request
        return replace(request, wanted=request.wanted.narrow(self.conditions))

    def has_queue(self, queue: "MessageQueue") -> bool:
        """Return whether messages of a live queue can meet the conditions."""
        values: dict[str, Any] = {"topic": queue.topic, "queueId": queue.queue_id, "broker": queue.broker_name}
        for column, op, value in self.conditions:
            if column in values and op in ("=", "in") and values[column] not in ([value] if op == "=" else value):
                return False
        return True


def _value(value: Any, op: str) -> Any:
    if op == "in":
        return [_value(each, "=") for each in value]
    return _EPOCH + timedelta(microseconds=value[0]) if isinstance(value, list) else value


def size_schema(size: int | None) -> "StructType":
    """Return a schema that carries a size in bytes, as the planner asks for it."""
    from pyspark.sql.types import LongType, StructField, StructType

    metadata = {} if size is None else {"bytes": size}
    return StructType([StructField("size", LongType(), metadata=metadata)])
