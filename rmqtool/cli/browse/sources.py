"""The sources of lists: each knows its number of rows, and creates a row when it is displayed.

Services are imported where they are needed, so that the first list appears at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rmqtool.cli.render.text import cell_text, plain
from rmqtool.cli.render.times import time_text

if TYPE_CHECKING:
    from rmqtool.admin.doctor.run import ClusterFinding
    from rmqtool.services.consumers.groups import GroupInfo, GroupLag
    from rmqtool.services.open_store.message import StoredMessage
    from rmqtool.store.check.common.findings import Finding
    from rmqtool.store.layout.paths import StoreLayout

_PAGE = 32  # messages read at once
_PAGES, _ROWS = 64, 4096  # kept
_ID = 32  # characters at the end of an id; ids of one producer differ in them
_MOST_MESSAGES = 1000  # of an export


class ListColumn(NamedTuple):
    """A column; a column of width 0 gets the remaining width."""

    title: str
    width: int = 0
    right: bool = False
    spare: bool = False  # hidden on narrow terminals


class Source(ABC):
    """Rows of one list.

    Attributes:
        title: of the list.
        columns: of its rows.
        hint: what a search looks for.
        complete: whether all cells are shown; until :meth:`complete_cells`, those that take long may be empty.
    """

    title: str
    columns: Sequence[ListColumn]
    hint = "text in a row"
    complete = True

    def complete_cells(self) -> None:
        """Prepare for cells that take long; called in the background, once the rows are on the screen without them."""
        self.complete = True

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of rows."""

    @abstractmethod
    def cells(self, row: int) -> Sequence[str]:
        """The cells of a row."""

    @abstractmethod
    def to_dict(self, row: int) -> dict[str, Any]:
        """A row for an export."""

    def name(self, row: int) -> str:
        """The text that a search looks at."""
        return " ".join(self.cells(row))

    def find(self, text: str, start: int) -> int | None:
        """The first row with a text at or after ``start``, then from the beginning."""
        wanted = text.casefold()
        order = (*range(start, self.count), *range(min(start, self.count)))
        return next((row for row in order if wanted in self.name(row).casefold()), None)

    def exported(self, _row: int) -> Iterator[dict[str, Any]]:
        """What an export writes when the cursor is at a row."""
        return map(self.to_dict, range(self.count))


class RecordReader(Protocol):
    """Reads single messages."""

    def queue_messages(self, topic: str, queue_id: int, start: int, stop: int) -> "Iterable[StoredMessage]":
        """The messages of a queue at queue offsets [start, stop)."""

    def query_key(self, topic: str, key: str) -> "Sequence[StoredMessage]":
        """The messages of a topic with a key or id."""


class QueueRow(NamedTuple):
    """A queue, with the range of its queue offsets."""

    topic: str
    queueId: int
    minOffset: int
    maxOffset: int
    brokerName: str | None = None  # of a cluster


class BrowsedTopics(Source):
    """The topics of a store or a cluster.

    Attributes:
        names: their names.
    """

    title, hint = "Topics", "part of a name"
    columns = (
        ListColumn("Topic"), ListColumn("Queues", 6, right=True), ListColumn("Messages", 13, right=True),
        ListColumn("What it is for", 34, spare=True),
    )  # fmt: skip
    names: list[str]

    @property
    def count(self) -> int:
        """Number of topics."""
        return len(self.names)

    def name(self, row: int) -> str:
        """A topic's name."""
        return self.names[row]

    @abstractmethod
    def ranges(self, topic: str) -> list[QueueRow]:
        """The queues of a topic."""

    @abstractmethod
    def totals(self, row: int) -> tuple[int, int]:
        """Number of queues and messages of a topic."""

    @abstractmethod
    def purpose(self, row: int) -> str:
        """What a topic is for, if it is a system topic."""

    def cells(self, row: int) -> Sequence[str]:
        """The cells of a topic."""
        if not self.complete:
            return self.names[row], "", "", self.purpose(row)
        queues, messages = self.totals(row)
        return self.names[row], f"{queues:,}", f"{messages:,}", self.purpose(row)

    def to_dict(self, row: int) -> dict[str, Any]:
        """A topic for an export."""
        queues, messages = self.totals(row)
        return {"topic": self.names[row], "queues": queues, "messages": messages}


class BrowsedStoreTopics(BrowsedTopics):
    """The topics of a store. Their numbers take NumPy, which takes as long to load as all the rest."""

    complete = False

    def complete_cells(self) -> None:
        """Load what counts messages."""
        from formats.queues.consume import as_array

        as_array(b"")
        super().complete_cells()

    def __init__(self, layout: "StoreLayout", warn: Callable[[str], None]) -> None:
        from rmqtool.services.lookup.configs import topics_of
        from rmqtool.services.lookup.queue_messages import TopicQueues
        from rmqtool.services.lookup.retry_names import retry_names
        from rmqtool.store.log.commit_log import CommitLog
        from rmqtool.store.tier.tier import Tier

        layout = layout.listed_once()
        self._queues, self._low = TopicQueues(layout), CommitLog(layout).min_offset
        self._tier = Tier.of(layout)
        table = topics_of(layout, warn)
        self._purposes = retry_names(layout, warn)
        self.names: list[str] = sorted({*self._queues.names(), *(table.topics if table is not None else ())})
        self._row = lru_cache(_ROWS)(self._read)

    def ranges(self, topic: str) -> list[QueueRow]:
        """The queues of a topic, with what the tier has of them."""
        ranges = []
        for queue in self._queues.every(topic):
            low, high = queue.min_offset(self._low), queue.max_offset
            low = low if self._tier is None else self._tier.begin(topic, queue.queue_id, low)
            ranges.append(QueueRow(topic=topic, queueId=queue.queue_id, minOffset=low, maxOffset=high))
        return ranges

    def _read(self, row: int) -> tuple[int, int]:
        ranges = self.ranges(self.names[row])
        return len(ranges), sum(each.maxOffset - each.minOffset for each in ranges)

    def totals(self, row: int) -> tuple[int, int]:
        """Number of queues and messages of a topic."""
        return self._row(row)

    def purpose(self, row: int) -> str:
        """What a topic is for."""
        from rmqtool.services.usage.purpose import purpose_of

        return purpose_of(self.names[row], self._purposes) or ""


class BrowsedQueues(Source):
    """The queues of a topic."""

    columns = (
        ListColumn("Queue", 6, right=True), ListColumn("From offset", 14, right=True),
        ListColumn("To offset", 14, right=True), ListColumn("Messages", 14, right=True), ListColumn("", 0),
    )  # fmt: skip

    def __init__(self, topics: BrowsedTopics, topic: str) -> None:
        self.title, self.topic = topic, topic
        self.ranges = topics.ranges(topic)

    @property
    def count(self) -> int:
        """Number of queues."""
        return len(self.ranges)

    def cells(self, row: int) -> Sequence[str]:
        """The cells of a queue."""
        each = self.ranges[row]
        numbers = (each.minOffset, each.maxOffset, each.maxOffset - each.minOffset)
        return str(each.queueId), *(f"{number:,}" for number in numbers), each.brokerName or ""

    def to_dict(self, row: int) -> dict[str, Any]:
        """A queue for an export."""
        each = self.ranges[row]
        return {name: value for name, value in each._asdict().items() if value is not None}


class BrowsedMessages(Source):
    """The messages of a queue; those that are looked at are read, a page at a time."""

    columns = (
        ListColumn("Offset", 12, right=True), ListColumn("Stored", 23), ListColumn("Tag", 14), ListColumn("Keys"),
        ListColumn("Bytes", 9, right=True), ListColumn("Id", _ID, spare=True),
    )  # fmt: skip
    hint = "a queue offset, a key or an id"

    def __init__(self, store: RecordReader, topic: str, queue_id: int, low: int, high: int) -> None:
        self.title, self.topic, self.queue_id = f"{topic}, queue {queue_id}", topic, queue_id
        self._store, self._low, self._high = store, low, high
        self._page = lru_cache(_PAGES)(self._read)

    @property
    def count(self) -> int:
        """Number of queue offsets."""
        return max(self._high - self._low, 0)

    def _read(self, page: int) -> "dict[int, StoredMessage]":
        """The messages of a page, by queue offset."""
        start = self._low + page * _PAGE
        messages = self._store.queue_messages(self.topic, self.queue_id, start, min(start + _PAGE, self._high))
        return {message.queue_offset: message for message in messages}

    def message(self, row: int) -> "StoredMessage | None":
        """The message of a row; None if it cannot be read."""
        return self._page(row // _PAGE).get(self._low + row)

    def cells(self, row: int) -> Sequence[str]:
        """The cells of a message."""
        message, offset = self.message(row), f"{self._low + row:,}"
        if message is None:
            return offset, "no message here", "", "", "", ""
        keys = cell_text(message.keys)
        stored, size = time_text(message.record.store_timestamp), message.record.total_size
        return offset, stored[:23], message.tags or "", keys, f"{size:,}", message.message_id[-_ID:]

    def to_dict(self, row: int) -> dict[str, Any]:
        """A message for an export."""
        from rmqtool.contract import message_row

        message = self.message(row)
        if message is None:
            return {"topic": self.topic, "queueId": self.queue_id, "queueOffset": self._low + row, "body": None}
        return message_row(message.record, message.physical_offset)

    def row_of(self, queue_offset: int) -> int | None:
        """The row of a queue offset."""
        row = queue_offset - self._low
        return row if 0 <= row < self.count else None

    def find(self, text: str, start: int) -> int | None:
        """The row of a queue offset, or of the next message with a key or id, by the index."""
        if text.isascii() and text.replace(",", "").isdigit() and len(text) < 19:
            return self.row_of(int(text.replace(",", "")))
        rows = [
            row
            for message in self._store.query_key(self.topic, text)
            if message.queue_id == self.queue_id and (row := self.row_of(message.queue_offset)) is not None
        ]
        return next((row for row in rows if row >= start), rows[0] if rows else None)

    def exported(self, row: int) -> Iterator[dict[str, Any]]:
        """Messages from a row on, a thousand at most."""
        return map(self.to_dict, range(row, min(row + _MOST_MESSAGES, self.count)))


class BrowsedGroups(Source):
    """The consumer groups of a store."""

    title, hint = "Groups", "part of a name"
    columns = (
        ListColumn("Group"), ListColumn("Topics", 6, right=True), ListColumn("Lag", 13, right=True),
        ListColumn("Retries", 9, right=True), ListColumn("Dead", 9, right=True),
        ListColumn("In flight", 9, right=True, spare=True),
    )  # fmt: skip

    def __init__(self, rows: "list[GroupInfo]") -> None:
        self.rows = rows

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.rows)

    def cells(self, row: int) -> Sequence[str]:
        """The cells of a group."""
        each = self.rows[row]
        numbers = (each.topics, each.diff, each.retryDiff, each.deadLetters, each.inFlight)
        return each.group, *(f"{number or 0:,}" for number in numbers)

    def name(self, row: int) -> str:
        """A group's name."""
        return self.rows[row].group

    def to_dict(self, row: int) -> dict[str, Any]:
        """A group for an export."""
        return self.rows[row].to_dict()


class Lags(Source):
    """The queues of a group."""

    columns = (
        ListColumn("Topic"), ListColumn("Queue", 6, right=True), ListColumn("Offset", 14, right=True),
        ListColumn("Lag", 12, right=True), ListColumn("State", 13),
    )  # fmt: skip

    def __init__(self, group: str, rows: "list[GroupLag]") -> None:
        self.title, self.rows = group, rows

    @property
    def count(self) -> int:
        """Number of queues."""
        return len(self.rows)

    def cells(self, row: int) -> Sequence[str]:
        """The cells of a queue."""
        each = self.rows[row]
        offset = f"{each.consumerOffset:,}" if each.consumerOffset is not None else "none"
        return each.topic, str(each.queueId), offset, f"{each.diff or 0:,}", each.state

    def to_dict(self, row: int) -> dict[str, Any]:
        """A queue for an export."""
        return self.rows[row].to_dict()


_FACTS = {
    "server": "server", "file": "file", "byte": "offset", "topic": "topic", "queue": "queueId",
    "queue offset": "queueOffset", "group": "group", "count": "count", "expected": "expected", "actual": "actual",
}  # fmt: skip


def _where(finding: "Finding | ClusterFinding") -> str:
    """Where a finding is: in a file of a store, or at a server of a cluster."""
    if (file := getattr(finding, "file", None)) is not None:
        offset = getattr(finding, "offset", None)
        return f"{file} at byte {offset}" if offset is not None else str(file)
    return " ".join(filter(None, (getattr(finding, name) for name in ("server", "topic", "group"))))


class Findings(Source):
    """The findings of a check or of doctor, as they come."""

    title = "Findings"
    columns = (ListColumn("Severity", 8), ListColumn("Code", 22), ListColumn("Where"))

    def __init__(self) -> None:
        self.rows: list[Finding | ClusterFinding] = []

    @property
    def count(self) -> int:
        """Number of findings so far."""
        return len(self.rows)

    def cells(self, row: int) -> Sequence[str]:
        """The cells of a finding."""
        each = self.rows[row]
        return each.severity, each.code, _where(each)

    def to_dict(self, row: int) -> dict[str, Any]:
        """A finding for an export."""
        return self.rows[row].to_dict()

    def lines(self, row: int) -> list[str]:
        """Everything about a finding."""
        from rmqtool.admin.doctor.codes import CODES as CLUSTER_CODES
        from rmqtool.store.check.codes.all import CODES

        each = self.rows[row]
        code = (CODES | CLUSTER_CODES)[each.code]
        facts = {title: getattr(each, name, None) for title, name in _FACTS.items()}
        lines = [f"{each.code} ({each.severity}): {code.title}", ""]
        lines += [f"{name:<13} {plain(str(value))}" for name, value in facts.items() if value is not None]
        for title, text in (
            ("What it does", getattr(each, "consequence", None)),
            ("What to do", each.fix), ("What it means", code.meaning),
            ("How it comes about", code.cause), ("What a broker does", code.broker),
        ):  # fmt: skip
            lines += ["", title, f"  {plain(text)}"] if text else []
        return lines
