"""``df.write`` and ``writeStream`` of ``format("rocketmq")`` with the option ``namesrv``: sends each row as a message.

A task that Spark runs again sends its rows again, with the same unique ids. So every message arrives at least once, and
doubles can be recognised.
"""

import asyncio
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rmqtool.admin.target import Target
from rmqtool.analytics.live.options import known_live_options, target_of
from rmqtool.analytics.live.queues import connected, gather
from rmqtool.analytics.live.rows import COLUMNS, KeyedMessage, TaskMessages, bundles, columns_of
from rmqtool.analytics.spark.option_values import BATCH, QUERY
from rmqtool.analytics.spark.worker import without_traceback
from rmqtool.client.cluster.attempts import PAUSES, may_pass
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BrokerError, ClientError, NoRoute
from rmqtool.client.producing.message import NotSent
from rmqtool.client.producing.producer import Producer, by_hash
from rmqtool.errors import BadValue
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.ids import month_of
from rmqtool.rules.sending import check_group, check_topic
from rmqtool.services.sending.fields import parse_map

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_OPTIONS = ("path", "namesrv", "tlsConfig", "acl", "topic", "producerGroup", "map")
_OF_STREAMS = {"checkpointlocation"}  # Spark passes it on
_GROUP = "rmqtool-producer"
_ROWS, _TOGETHER = 1024, 64  # rows in progress, and of one request


@dataclass
class TaskResult(WriterCommitMessage):
    """Result of one task."""

    messages: int


@dataclass(frozen=True)
class SinkOptions:
    """Where messages go.

    Attributes:
        topic: of rows that have none.
        group: the producer group.
        columns: at which position a row has which field of its message.
    """

    target: Target
    topic: str | None
    group: str
    columns: Mapping[str, int]

    @classmethod
    def of(cls, options: Mapping[str, str], schema: "StructType") -> "SinkOptions":
        """Create from the options of the data source, for a data frame.

        Raises:
            BadValue: an option is unknown or has an invalid value, or a column does not suit.
        """
        given = {name: value for name, value in options.items() if name.lower() not in _OF_STREAMS}
        options = known_live_options(given, _OPTIONS)
        topic, group = options.get("topic"), options.get("producerGroup", _GROUP)
        columns = columns_of(schema, topic, parse_map([options["map"]], COLUMNS) if "map" in options else {})
        try:
            check_group(group)
            if topic is not None:
                check_topic(topic)
        except ValueError as err:
            raise BadValue(str(err)) from None
        return cls(target_of(options), topic, group, columns)


class _Writer:
    """Sends the rows of a task.

    Args:
        run: identifies this run of the job.
        millis_of_month: time of the run, in the ids of its messages.
    """

    def __init__(self, options: SinkOptions, run: str, millis_of_month: int) -> None:
        self._options, self._run, self._millis = options, run, millis_of_month

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskResult:
        """Send the rows of one task.

        Raises:
            BadValue: a row cannot be sent.
            NotSent: a broker refuses a message, or does not answer.
        """
        import pyarrow as pa
        from pyspark import TaskContext

        columns = self._options.columns
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        query, batch = (context and context.getLocalProperty(name) for name in (QUERY, BATCH))
        run = f"{query}:{batch}" if query and batch else self._run
        numbered = TaskMessages(f"{run}:{partition}", self._millis, self._options.topic)
        with without_traceback(), connected(self._options.target) as (loop, cluster):
            sender = Sender(cluster, self._options.group)
            loop.run(sender.open())
            try:
                count = 0
                for rows in iterator:
                    taken = pa.RecordBatch.from_arrays([rows.column(at) for at in columns.values()], list(columns))
                    for start in range(0, taken.num_rows, _ROWS):
                        part: list[dict[str, Any]] = taken.slice(start, _ROWS).to_pylist()
                        messages = [numbered.message(row, count + at) for at, row in enumerate(part)]
                        loop.run(sender.send(messages))
                        count += len(part)
            finally:
                loop.run(sender.close())
        return TaskResult(count)

    def commit(self, *_: object) -> None:
        """Called by the driver after all tasks; the messages are sent."""

    def abort(self, *_: object) -> None:
        """Called by the driver if a task failed; messages that were sent stay sent."""


class ClusterWriter(_Writer, DataSourceArrowWriter):
    """Sends a data frame."""

    def __init__(self, options: SinkOptions) -> None:
        now = time.time_ns() // 1_000_000
        super().__init__(options, uuid.uuid4().hex, now - month_of(now, None)[0])


class ClusterStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Sends the batches of a stream. Ids follow from query and batch, so a batch after a restart has the same ones."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options, uuid.uuid4().hex, 0)


class Sender:
    """Sends messages, in bundles at the same time, and again if a broker does not answer.

    Args:
        group: the producer group.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._producer = Producer(cluster, group)

    async def open(self) -> None:
        """Join the group."""
        await self._producer.__aenter__()

    async def close(self) -> None:
        """Leave the group."""
        await self._producer.close()

    async def send(self, messages: list[KeyedMessage]) -> None:
        """Send messages; all are stored when this returns. Those of one sharding key keep their order.

        Raises:
            NotSent: a broker refuses one, or does not answer.
            BadValue: the client refuses one.
        """
        lanes: dict[object, list[list[KeyedMessage]]] = {}
        for bundle in bundles(messages, _TOGETHER):
            first = bundle[0]
            lane = (first.message.topic, first.sharding_key) if first.sharding_key else object()
            lanes.setdefault(lane, []).append(bundle)
        await gather(lanes, lambda lane: self._send_in_order(lanes[lane]))

    async def _send_in_order(self, lane: list[list[KeyedMessage]]) -> None:
        for bundle in lane:
            await self._send(bundle)

    async def _send(self, bundle: list[KeyedMessage]) -> None:
        messages, key = [each.message for each in bundle], bundle[0].sharding_key
        select = by_hash(key) if key else None
        for pause in (*PAUSES, None):
            try:
                if len(messages) == 1:
                    await self._producer.send(messages[0], select=select)
                else:
                    await self._producer.send_batch(messages, select=select)
            except NotSent as err:
                messages = messages[len(err.sent) :]
                if pause is None or not _may_pass(err):
                    raise
            except ValueError as err:
                raise BadValue(f"{messages[0].topic}: {err}") from err
            else:
                return
            await asyncio.sleep(pause)


def _may_pass(err: NotSent) -> bool:
    """Whether another attempt may help."""
    cause = err.__cause__
    if isinstance(cause, BrokerError | RemotingError):
        return may_pass(cause)
    return isinstance(cause, NoRoute) or not isinstance(cause, ClientError)
