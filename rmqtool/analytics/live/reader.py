"""``spark.read`` and ``spark.readStream`` of ``format("rocketmq")`` with the option ``namesrv``: a live cluster.

No consumer group is touched: messages are pulled, and positions are in the query's checkpoint. With ``commitGroup`` a
stream also moves the offsets of that group, for other tools to see its progress.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from formats.remoting.shapes import MessageQueue
from rmqtool.analytics.live.options import LATEST, LiveRequest
from rmqtool.analytics.live.plan import Follower, plan_ranges
from rmqtool.analytics.live.positions import (
    Offsets,
    Positions,
    QueuePosition,
    divide,
    from_json,
    join_small,
    ranges_between,
    to_json,
)  # fmt: skip
from rmqtool.analytics.live.queues import Queues, connected
from rmqtool.analytics.live.read import read_ranges
from rmqtool.analytics.spark.columns import SparkColumns, limit_rows
from rmqtool.analytics.spark.worker import without_traceback
from rmqtool.client.cluster.errors import ClientError
from rmqtool.remoting.errors import RemotingError

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.analytics.live.positions import Range

_PAUSE = 0.2  # s between two looks without news; Spark asks every 10 ms


class LiveReader(DataSourceReader):
    """Plans on the driver, and reads a range of a queue, or several small ones, per task.

    Args:
        has_queue: whether messages of a queue are needed.
        limit: rows that a task needs to return; None for all.
    """

    def __init__(
        self,
        request: LiveRequest,
        columns: SparkColumns,
        has_queue: Callable[[MessageQueue], bool] = lambda _queue: True,
        limit: int | None = None,
    ) -> None:
        self.request, self.columns, self.has_queue, self.limit = request, columns, has_queue, limit

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "has_queue": None}  # the plan is made on the driver

    def partitions(self) -> Sequence[InputPartition]:
        with without_traceback():
            return _tasks([part for part in plan_ranges(self.request) if self.has_queue(part.queue)], self.request)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        yield from limit_rows(_read(self.request, self.columns, partition.value), self.limit)


def _tasks(parts: "list[Range]", request: LiveRequest) -> list[InputPartition]:
    return [InputPartition(some) for some in join_small(parts, request.least_partitions, request.most_records)]


def _read(request: LiveRequest, columns: SparkColumns, parts: "tuple[Range, ...] | None") -> "Iterator[pa.RecordBatch]":
    if parts is None:  # Spark adds this if the plan has no pieces
        return
    with without_traceback():
        yield from columns.fit(read_ranges(request, parts, columns.names))


class LiveStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader: each message once per checkpoint."""

    def __init__(self, request: LiveRequest, columns: SparkColumns) -> None:
        self.request, self.columns = request, columns
        self._target: dict[MessageQueue, int] | None = None
        self._needs_target = False
        self._client: _Client | None = None
        self._looked = self._delivered = 0.0  # when something was looked for, and found
        self._shown: Offsets | None = None  # the position that the group has

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # connections stay on the driver

    def _open_client(self) -> "_Client":
        if self._client is None:
            self._client = _Client(self.request)
        return self._client

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def initialOffset(self) -> Offsets:
        with without_traceback():
            return to_json(self._open_client().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.request.most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        with without_traceback():
            if self._needs_target:
                self._target, self._needs_target = self._open_client().ends(from_json(start)), False
            # the limit may be ReadAllAvailable whatever the default is
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.request.most_offsets
            now = time.monotonic()
            if now - self._looked < _PAUSE and self._target is None:
                time.sleep(_PAUSE)
            least, waited = self.request.least_offsets or 0, now - self._delivered
            if waited > self.request.most_delay or self._target is not None:
                least = 0
            self._show(start)  # complete: Spark calls ``commit`` for it only when there is another batch
            latest = self._open_client().advance(from_json(start), most, least, self._target)
            if latest == start:
                self._looked = time.monotonic()
            else:
                self._delivered = time.monotonic()
            return latest

    def prepareForTriggerAvailableNow(self) -> None:
        with without_traceback():
            try:
                self._target = self._open_client().ends_now()
            except (ClientError, RemotingError):  # only the position, which is not known yet, says what to wait for
                self._needs_target = True

    def reportLatestOffset(self) -> Offsets:
        with without_traceback():
            return to_json({queue: QueuePosition(end) for queue, end in self._open_client().ends().items()})

    def commit(self, end: Offsets) -> None:
        with without_traceback():
            self._show(end)

    def _show(self, done: Offsets) -> None:
        """Move the group's offsets to a position up to which everything has been written."""
        group = self.request.commit_group
        if group is not None and done != self._shown:
            self._open_client().commit(from_json(done), group)
            self._shown = done

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        with without_traceback():
            ranges = ranges_between(from_json(start), from_json(end))
            parts = divide(ranges, self.request.least_partitions, self.request.most_records)
            return _tasks(parts, self.request)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        yield from _read(self.request, self.columns, partition.value)


class _Client:
    """The driver's side of a stream: answers where its batches begin and end."""

    def __init__(self, request: LiveRequest) -> None:
        self._open = ExitStack()
        self._loop, cluster = self._open.enter_context(connected(request.target))
        self.queues = Queues(cluster, request)
        self._follower = Follower(self.queues, request)

    def close(self) -> None:
        """Close the connections."""
        self._open.close()

    def initial(self) -> Positions:
        """Where the first batch begins."""
        return self._loop.run(self._follower.begin(LATEST))

    def ends(self, before: Collection[MessageQueue] = ()) -> dict[MessageQueue, int]:
        """Where the queues end now; see :meth:`Follower.ends`."""
        return self._loop.run(self._follower.ends(before))

    def ends_now(self) -> dict[MessageQueue, int]:
        """As :meth:`ends`, without waiting for a peer that is away."""
        with self.queues.patient_for(0):
            return self.ends()

    def commit(self, positions: Positions, group: str) -> None:
        """Move the offsets of a group; see :meth:`Queues.commit`."""
        self._loop.run(self.queues.commit(positions, group))

    def advance(
        self, start: Positions, most: int | None, least: int, target: Mapping[MessageQueue, int] | None
    ) -> Offsets:
        """Where the next batch ends; see :meth:`Follower.advance`."""
        return to_json(self._loop.run(self._follower.advance(start, most, least, target)))
