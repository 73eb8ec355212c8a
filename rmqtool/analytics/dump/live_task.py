"""A task of a dump from a live cluster: one range of a queue."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.live.positions import Range
from rmqtool.analytics.table.tally import SplitTally


@dataclass(frozen=True, slots=True)
class LiveTask:
    """Messages of one queue.

    Attributes:
        number: counts the tasks of a run.
        part: the queue offsets to read, with the messages that prove that it is still the same queue.
    """

    number: int
    request: LiveRequest
    part: Range

    @property
    def start(self) -> int:
        """Queue offset of the first message."""
        return self.part.start

    @property
    def stop(self) -> int:
        """Queue offset after the last message."""
        return self.part.stop

    @property
    def place(self) -> str:
        """The beginning of the names of its files."""
        return f"{self.number:020d}"

    def read(self, columns: Sequence[str], tally: SplitTally) -> Iterator[pa.RecordBatch]:
        """Yield the messages with these columns.

        Raises:
            DataLoss: messages of the range are gone, or the queue is another one.
            ClientError, RemotingError: the broker does not answer, or answers wrongly.
        """
        from rmqtool.analytics.live.read import read_range  # the client is needed only where it reads

        yield from read_range(self.request, self.part, columns, tally)
