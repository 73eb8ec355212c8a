"""Reads ranges of queues: as messages, and as Arrow record batches of the message schema."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa

from rmqtool.analytics.bodies.columns import BodyColumns
from rmqtool.analytics.live.bulk import BulkMessages, BulkPuller
from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.live.positions import Range
from rmqtool.analytics.live.queues import DataLoss, Queues, connected
from rmqtool.analytics.table.arrays import repeat
from rmqtool.analytics.table.arrow import BATCH_BYTES
from rmqtool.analytics.table.column_reader import ColumnBatch
from rmqtool.analytics.table.record_block import PulledBlock
from rmqtool.analytics.table.row_reader import BatchLimits, DecodedRow, RowBatch
from rmqtool.analytics.table.schema import BROKER, MESSAGE_TABLE
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, ClientError, NotThere
from rmqtool.client.cluster.loop import Loop
from rmqtool.client.consumer.proof import Last, MadeAgain, last_at, last_of, prove
from rmqtool.client.consumer.puller import Pulled, Puller
from rmqtool.client.consumer.received import Received
from rmqtool.kernels.load.memory import address_of
from rmqtool.kernels.scan import Walker
from rmqtool.remoting.errors import RemotingError
from rmqtool.words import counted

_MOST = 1024  # messages of a pull; brokers give fewer
_CHUNK, _CHUNK_BYTES = 4096, 4 << 20  # messages handed over at once, from the thread of the connection


class RangeReader:
    """Reads a range, message by message, and proves that all of it was of one queue.

    Args:
        cluster: of which the queue is.
    """

    def __init__(self, cluster: Cluster, request: LiveRequest, part: Range) -> None:
        self._cluster, self._request, self._part = cluster, request, part
        self._queues = Queues(cluster, request)
        self._next = part.start
        self._read: Sequence[Received] = ()  # the messages of the last pull that had any
        self._bulk: BulkPuller | None = BulkPuller(cluster, tags=request.tags, sql=request.sql)

    @property
    def is_done(self) -> bool:
        """Whether all of the range has been read."""
        return self._next >= self._part.stop

    async def prove_start(self) -> None:
        """Verify that the queue is the one that was planned.

        Raises:
            DataLoss: it is another one, or ends before the range does. With ``strict=False`` nothing is read then.
        """
        queue, first, last = self._part.queue, self._part.first, self._part.last
        try:
            if first is not None:
                await self._queues.ask(queue, lambda: prove(Puller(self._cluster), queue, first))
            if last is not None and not self._request.strict:
                await self._queues.ask(queue, lambda: prove(Puller(self._cluster), queue, last))
        except MadeAgain as err:
            count = counted(len(self._part), "message")
            self._queues.lose(f"{err}: {count} from offset {self._part.start} on cannot be read any more")
            self._part = replace(self._part, start=self._part.stop, last=None)
            self._next = self._part.stop

    async def chunk(self) -> list[Pulled]:
        """The next messages, none behind the range; empty only at its end.

        Raises:
            DataLoss: messages of the range are gone.
            ClientError, RemotingError: the broker does not answer, or answers wrongly.
        """
        if not self.is_done and (pulled := await self._pull_run()) is not None:
            self._read, self._next = pulled.messages, pulled.next_offset
            return [pulled]
        chunk: list[Pulled] = []
        count = size = 0
        while not self.is_done and count < _CHUNK and size < _CHUNK_BYTES:
            pulled = await self._queues.ask(self._part.queue, self._pull)
            if pulled.next_offset > self._part.stop:
                taken = [message for message in pulled.messages if message.queue_offset < self._part.stop]
                if len(taken) < len(pulled.messages):
                    pulled = replace(pulled, messages=taken, body=None)
            if pulled.messages:
                chunk.append(pulled)
                self._read = pulled.messages
            count += len(pulled.messages)
            size += _size(pulled)
            self._next = max(pulled.next_offset, self._next)
        return chunk

    async def _pull_run(self) -> Pulled | None:
        """The next messages, by several requests at a time; None if :meth:`_pull` is to find out what is wrong."""
        if self._bulk is None:
            return None
        try:
            pulled = await self._bulk.pull_run(self._part.queue, self._next, self._part.stop)
        except (ClientError, RemotingError):
            return None
        if pulled is None:
            self._bulk = None
        return pulled

    async def _pull(self) -> Pulled:
        """One pull that advances: messages, or a proof that there are none to the filter or to be had."""
        queue, at = self._part.queue, self._next
        # each attempt begins at the master again, whatever the last one suggested
        puller = self._puller = BulkPuller(self._cluster, tags=self._request.tags, sql=self._request.sql)
        try:
            pulled = await puller.pull(queue, at, most=min(_MOST, self._part.stop - at))
        except NotThere as err:
            if self._request.strict:
                raise
            low, high = await puller.offsets(queue)
            return await self._pass_over(at, min(err.next_offset, high), low)
        if pulled.messages or (pulled.next_offset > at and not pulled.moved):
            return pulled
        if pulled.moved and at < pulled.min_offset:
            self._queues.lose(
                f"{queue}: messages from offset {at} to {min(pulled.min_offset, self._part.stop) - 1} have expired "
                "before they were read"
            )
            return Pulled([], pulled.min_offset, pulled.min_offset, pulled.max_offset)
        raise BadAnswer(
            f"{queue}: its broker gives nothing at offset {at}, and the queue is read up to {self._part.stop}"
        )

    async def _pass_over(self, at: int, following: int, low: int) -> Pulled:
        """A gap that a broker reports though nothing has expired, once it has reported it again."""
        queue = self._part.queue
        try:
            return await Puller(self._cluster).pull(queue, at)
        except NotThere:
            self._queues.lose(f"{queue}: its broker does not give the messages from offset {at} to {following - 1}")
            return Pulled([], following, low, following)

    async def prove_end(self) -> None:
        """Verify that the queue still is the one that was planned, so that everything read was of it.

        Raises:
            DataLoss: it is not, or that cannot be known any more.
        """
        queue, last = self._part.queue, self._part.last
        if last is None or (self._read and last_of(self._read[-1].record, self._read[-1].queue_offset) == last):
            return

        async def last_there() -> Last | None:
            puller = Puller(self._cluster)
            there = await last_at(puller, queue, last.offset)
            if there is None and (await puller.offsets(queue))[0] <= last.offset:
                raise NotThere(f"{queue}: its broker gives no message at offset {last.offset}", last.offset + 1)
            return there

        try:
            there = await self._queues.ask(queue, last_there)
        except NotThere:  # however often it is asked for: a compacted topic has another message with its key
            there = None
        except MadeAgain as err:
            raise DataLoss(f"{err}; what was read of it is dropped") from err
        if there is None:
            self._queues.lose(f"{queue}: messages up to offset {last.offset} have expired while they were read")
        elif there != last:
            raise DataLoss(f"{queue}: another message is at offset {last.offset} than before: the topic was made again")


def read_range(
    request: LiveRequest, part: Range, columns: Sequence[str], tally: SplitTally | None = None
) -> Iterator[pa.RecordBatch]:
    """As :func:`read_ranges`, of one range."""
    yield from read_ranges(request, (part,), columns, tally)


def read_ranges(
    request: LiveRequest, parts: Sequence[Range], columns: Sequence[str], tally: SplitTally | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ranges, each in the order of its queue, with these columns of the table ``messages``.

    Args:
        tally: counts what is read.

    Raises:
        DataLoss: messages of a range are gone.
        ClientError, RemotingError: a broker does not answer, or answers wrongly.
    """
    added = BodyColumns(request.bodies, columns)
    yield from added.add(_read_ranges(request, parts, added.needed, SplitTally() if tally is None else tally))


def _read_ranges(
    request: LiveRequest, parts: Sequence[Range], columns: Sequence[str], tally: SplitTally
) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([MESSAGE_TABLE.field(name) for name in columns])
    own = pa.schema([field for field in schema if field.name != BROKER.name]) or pa.schema(
        [MESSAGE_TABLE.field("queueId")]
    )

    def fit(broker: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = repeat(broker, batch.num_rows)
        arrays = [names if name == BROKER.name else batch.column(name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    with connected(request.target) as (loop, cluster):
        for broker, of_broker in groupby(parts, lambda part: part.queue.broker_name):
            rows = _Rows(own, tally)
            for part in of_broker:
                for chunk in _chunks(loop, RangeReader(cluster, request, part)):
                    for pulled in chunk:
                        tally.records += len(pulled.messages)
                        tally.bytes += _size(pulled)
                    yield from map(partial(fit, broker), rows.add(chunk))
            yield from map(partial(fit, broker), rows.finish())


def _chunks(loop: Loop, reader: RangeReader) -> Iterator[list[Pulled]]:
    """Yield all messages of a range; the next ones are pulled meanwhile."""
    loop.run(reader.prove_start())
    coming = loop.start(reader.chunk())
    try:
        while chunk := coming.result():
            coming = loop.start(reader.chunk())
            yield chunk
    finally:
        coming.cancel()
    loop.run(reader.prove_end())


def _size(pulled: Pulled) -> int:
    """Bytes of the messages' records."""
    if pulled.body is not None:
        return len(pulled.body)
    return sum(message.record.total_size for message in pulled.messages)


class _Rows:
    """Collects what was pulled until a batch is full: answers as a whole by compiled code, or message by message."""

    def __init__(self, schema: pa.Schema, tally: SplitTally) -> None:
        limits = BatchLimits(BATCH_BYTES)
        self._rows, self._columns = RowBatch(schema, tally, limits), ColumnBatch(schema, tally, limits)

    def add(self, chunk: list[Pulled]) -> Iterator[pa.RecordBatch]:
        """Append messages; yield each batch that is full."""
        for whole, answers in groupby(chunk, lambda pulled: pulled.body is not None):
            some = list(answers)
            block = _block_of(some) if whole else None
            if block is not None:
                if len(self._rows):
                    yield self._rows.finish()
                yield from self._columns.add(block)
                continue
            if len(self._columns):
                yield self._columns.finish()
            for record in (message.record for pulled in some for message in pulled.messages):
                self._rows.add(DecodedRow(record, record.physical_offset, "", -1))
                if self._rows.is_full:
                    yield self._rows.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the rest."""
        for rest in (self._rows, self._columns):
            if len(rest):
                yield rest.finish()


class _Answer:
    """The body of an answer, in the place of a file."""

    base = 0

    def __init__(self, body: bytes) -> None:
        self._view = memoryview(body)

    def map(self) -> memoryview:
        return self._view


def _offsets(pulled: Pulled) -> Iterable[int]:
    """Queue offsets of the messages."""
    if isinstance(pulled.messages, BulkMessages):
        return pulled.messages.offsets
    return [message.queue_offset for message in pulled.messages]


def _block_of(answers: list[Pulled]) -> PulledBlock | None:
    """The messages of answers as columns; None if these have others, as brokers store some batches as one record."""
    if len(answers) == 1 and isinstance(messages := answers[0].messages, BulkMessages):
        return PulledBlock(_Answer(messages.body), address_of(messages.body)[0], messages.rows)
    body = b"".join(pulled.body for pulled in answers if pulled.body is not None)
    offsets = [offset for pulled in answers for offset in _offsets(pulled)]
    walker = Walker(body, len(offsets), crc=False)  # the client has verified it
    rows, _end = walker.walk(0, len(body))
    if not np.array_equal(rows.queue_offset, offsets):
        return None
    return PulledBlock(_Answer(body), walker.memory.address, rows)
