"""``df.write`` and ``writeStream`` of ``format("rocketmq")`` with the option ``namesrv``: sends each row as a message.

A task that Spark runs again sends its rows again, with the same unique ids. So every message arrives at least once, and
doubles can be recognised.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rmqtool.admin.target import Target
from rmqtool.analytics.live.options import known_live_options, patience_of, target_of
from rmqtool.analytics.live.queues import check_registered, connected, gather
from rmqtool.analytics.live.rows import COLUMNS, KeyedMessage, TaskMessages, bundles, columns_of
from rmqtool.analytics.live.waiting import AwaitedPeers, Patience
from rmqtool.analytics.spark.option_values import BATCH, QUERY
from rmqtool.analytics.spark.worker import without_traceback
from rmqtool.client.cluster.attempts import may_pass
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError, NoRoute
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

_OPTIONS = ("path", "namesrv", "tlsConfig", "acl", "topic", "producerGroup", "map", "brokerTimeout")
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
        patience: for how long a broker or name server that is away is waited for.
    """

    target: Target
    topic: str | None
    group: str
    columns: Mapping[str, int]
    patience: Patience

    @classmethod
    def of(cls, options: Mapping[str, str], schema: "StructType", *, streaming: bool = False) -> "SinkOptions":
        """Create from the options of the data source, for a data frame or a stream of them.

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
        return cls(target_of(options), topic, group, columns, patience_of(options, streaming=streaming))


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
            sender = Sender(cluster, self._options, known=bool(batch) and batch != "0")
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
    """Sends messages, in bundles at the same time, and again while a broker is away.

    Args:
        known: the stream has sent messages before. No route to a topic then means that its broker, or a name server,
            has just been restarted.
    """

    def __init__(self, cluster: Cluster, options: SinkOptions, *, known: bool = False) -> None:
        self._cluster, self._options, self._known = cluster, options, known
        self._producer = Producer(cluster, options.group)
        self._waiting = AwaitedPeers(options.patience.later if known else options.patience.first)

    async def open(self) -> None:
        """Join the group."""
        await self._producer.__aenter__()

    async def close(self) -> None:
        """Leave the group."""
        await self._producer.close()

    async def send(self, messages: list[KeyedMessage]) -> None:
        """Send messages; all are stored when this returns. Those of one sharding key keep their order.

        Raises:
            NotSent: a broker refuses one.
            RemotingError: a broker does not answer.
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
        select, topic = by_hash(key) if key else None, messages[0].topic

        async def attempt() -> None:
            nonlocal messages
            try:
                if len(messages) == 1:
                    await self._producer.send(messages[0], select=select)
                else:
                    await self._producer.send_batch(messages, select=select)
            except NotSent as err:
                messages = messages[len(err.sent) :]
                raise await self._judge(err) from err
            except ValueError as err:
                raise BadValue(f"{topic}: {err}") from err

        await self._waiting.try_often(topic, attempt)
        self._waiting.patience = self._options.patience.later

    async def _judge(self, err: NotSent) -> NotSent | RemotingError:
        """The error for an attempt that failed: one that says whether another may help, and a broker is waited for."""
        cause = err.__cause__
        if isinstance(cause, NoRoute) and not self._known:
            await check_registered(self._cluster, self._options.target)
            return BadAnswer(str(err))
        if isinstance(cause, BadAnswer):
            return BadAnswer(str(err))
        if isinstance(cause, BrokerError | RemotingError):
            return RemotingError(str(err)) if may_pass(cause) else err
        return RemotingError(str(err)) if isinstance(cause, NoRoute) or not isinstance(cause, ClientError) else err
