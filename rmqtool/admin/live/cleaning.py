"""What brokers remove when asked to clean up: the beginning of the log, queues without messages, and queues of
topics without settings. The answers to such requests are empty, so all of this is read before and after.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from time import time

from formats.config.files import DelayOffsets
from formats.remoting import headers as h
from formats.remoting.bodies import QueueEntries
from formats.remoting.codes import RequestCode as C
from formats.topics import SCHEDULE, SYSTEM_PREFIX, SYSTEM_TOPICS
from rmqtool.admin.live.brokers import fetch_runtime, fetch_settings
from rmqtool.admin.live.messages import view_record
from rmqtool.admin.live.questions import Node, Questions, Unanswered, body
from rmqtool.admin.live.tables import NO_QUEUE, Ranges, fetch_offsets, fetch_ranges, fetch_topics
from rmqtool.client.cluster.errors import ClientError
from rmqtool.rules.retention import HOUR

_MOST_QUEUES = 1024  # of a topic


@dataclass(frozen=True)
class ExpiredLog:
    """The expired files at the beginning of a broker's log.

    Attributes:
        start, new_start: physical offset of the first byte, now and without them.
        file_size: bytes.
        first_time: store time of the message at the new start, ms; None if nothing has expired.
    """

    start: int
    new_start: int
    file_size: int
    first_time: int | None


async def fetch_log_start(questions: Questions, node: Node) -> int:
    """The physical offset at which a broker's log begins.

    Raises:
        Unanswered: it gave no answer.
    """
    return _number(await fetch_runtime(questions, node), "commitLogMinOffset", node)


async def find_expired_log(questions: Questions, node: Node) -> ExpiredLog:
    """The files that a broker will remove, as far as the times of its messages tell.

    A file expires ``fileReservedTime`` hours after its last write, which is that of the first message of the next file;
    the last file always stays.

    Raises:
        Unanswered: it gave no answer.
        ClientError: the files do not begin where they should, or a value is not a number.
    """
    runtime, settings = await fetch_runtime(questions, node), await fetch_settings(questions, node)
    start, end = (_number(runtime, name, node) for name in ("commitLogMinOffset", "commitLogMaxOffset"))
    size = _number(settings, "mappedFileSizeCommitLog", node)
    deadline = int(time() * 1000) - _number(settings, "fileReservedTime", node) * HOUR
    files = max(end - 1 - start, 0) // size if size else 0  # without the last one
    low, high = 0, files  # the first `low` files have expired, those from `high` on have not
    times = dict[int, int]()
    while low < high:
        middle = (low + high + 1) // 2
        times[middle] = await _fetch_store_time(questions, node, start + middle * size)
        if times[middle] < deadline:
            low = middle
        else:
            high = middle - 1
    return ExpiredLog(start, start + low * size, size, times.get(low))


def _number(table: Mapping[str, str], name: str, node: Node) -> int:
    text = table.get(name)
    if text is None or not text.isascii() or not text.isdigit():
        what = f"does not report {name}" if text is None else f"has {text[:80]!r} for {name}, which is not a number"
        raise ClientError(f"broker {node.name} {what}: nothing was changed")
    return int(text)


async def _fetch_store_time(questions: Questions, node: Node, physical_offset: int) -> int:
    """The store time of the message at the beginning of a file, ms.

    Raises:
        Unanswered: no answer. ClientError: there is no message.
    """
    records = await view_record(questions, node, physical_offset)
    if not records or records[0].physical_offset != physical_offset:
        raise ClientError(f"broker {node.name}: no file begins at {physical_offset} of its log: nothing was changed")
    return records[0].store_timestamp


Place = tuple[Node, str, int]  # broker, topic, queue id


async def fetch_queues(questions: Questions, nodes: Sequence[Node]) -> dict[Place, tuple[int, int, int]]:
    """The queues of all topics that have had messages: first offset, end, and store time of the last message (ms).

    Raises:
        Unanswered: one of the brokers does not tell all of them.
    """
    tables = await questions.need(fetch_topics(questions, nodes), nodes)
    ranges = await fetch_ranges(questions, ((node, topic) for node, table in tables.items() for topic in table))
    if ranges.missing:
        raise Unanswered
    return _rows(ranges)


def _rows(ranges: Ranges) -> dict[Place, tuple[int, int, int]]:
    return {
        (node, topic, queue_id): (max(queue.min_offset, 0), queue.max_offset, queue.last_update_timestamp)
        for (node, topic), queues in ranges.queues.items()
        for queue_id, queue in sorted(queues.items())
        if queue.max_offset > 0
    }


async def fetch_expired_queues(
    questions: Questions, node: Node, topics: Collection[str] | None = None
) -> dict[tuple[str, int], int]:
    """The queues of a broker whose last message is no longer in the log: where their next offset would be.

    Args:
        topics: only of these.

    Raises:
        Unanswered: it does not tell all of them.
    """
    if topics is None:
        rows = await fetch_queues(questions, [node])
    else:
        ranges = await fetch_ranges(questions, [(node, topic) for topic in topics])
        if ranges.missing:
            raise Unanswered
        rows = _rows(ranges)
    return {
        (topic, queue_id): end
        for (_node, topic, queue_id), (_low, end, last) in rows.items()
        if last <= 0 and topic != SCHEDULE
    }


async def count_lost(
    questions: Questions, node: Node, queues: Iterable[tuple[str, int]], since: int
) -> dict[tuple[str, int], tuple[int, int]]:
    """For each queue the first offset now, and the first one stored at a time or later.

    Args:
        since: ms.

    Raises:
        Unanswered: the broker does not tell all of them.
    """
    wanted = list(queues)
    ranges = await fetch_ranges(questions, [(node, topic) for topic, _queue_id in wanted])
    if ranges.missing:
        raise Unanswered

    async def fetch(place: tuple[str, int]) -> tuple[int, int]:
        topic, queue_id = place
        queue = ranges.of(node, topic).get(queue_id)
        low, high = (max(queue.min_offset, 0), max(queue.max_offset, 0)) if queue is not None else (0, 0)
        if queue is None or low >= high:
            return low, low
        if queue.last_update_timestamp < since:
            return low, high
        answer = await questions.fetch_header(
            node, C.SEARCH_OFFSET_BY_TIMESTAMP, h.Offset,
            h.QueueTime(topic=topic, queue_id=queue_id, timestamp=since), what="offsets of times are",
        )  # fmt: skip
        return low, min(max(answer.offset, low), high)

    return dict(await questions.need(questions.collect(wanted, fetch), wanted))


async def fetch_delay_offsets(questions: Questions, node: Node) -> Mapping[int, int]:
    """The next queue offset to deliver of each delay level.

    Raises:
        Unanswered: it gave no answer.
    """
    table = await questions.fetch(node, C.GET_ALL_DELAY_OFFSET, DelayOffsets.parse, what="offsets of delay levels are")
    return table.offsets if table is not None else {}


async def find_unsettled_topics(questions: Questions, nodes: Sequence[Node]) -> dict[tuple[Node, str], int]:
    """Topics of which a broker has queues, but no settings: how many messages its queues have.

    Brokers do not list them. Candidates are the topics in which a group has an offset, and those of other brokers.

    Raises:
        Unanswered: a broker does not tell all of it.
    """
    tables = await questions.need(fetch_topics(questions, nodes), nodes)
    offsets = await questions.need(fetch_offsets(questions, nodes), nodes)
    queue_ids: dict[str, set[int]] = defaultdict(set)
    for table in tables.values():
        for name, config in table.items():
            queue_ids[name] |= {*range(min(max(config.read_queue_nums, config.write_queue_nums), _MOST_QUEUES))}
    for rows in offsets.values():
        for row in rows:
            queue_ids[row.topic].add(row.queue_id)
    wanted = [
        (node, topic)
        for node, table in tables.items()
        for topic in sorted(queue_ids)
        if topic not in table and topic not in SYSTEM_TOPICS and not topic.startswith(SYSTEM_PREFIX)
    ]

    async def fetch(place: tuple[Node, str]) -> int | None:
        return await count_queued(questions, *place, queue_ids[place[1]])

    counts = await questions.need(questions.collect(wanted, fetch), wanted)
    return {place: count for place, count in counts.items() if count is not None}


async def count_queued(questions: Questions, node: Node, topic: str, queue_ids: Iterable[int]) -> int | None:
    """How many messages the queues of a topic have; None if the broker has none of them.

    Args:
        queue_ids: those known; the ones after them are tried until one does not exist.

    Raises:
        Unanswered: it gave no answer.
    """
    known = sorted(queue_ids)
    last, count = max(known, default=-1), None
    for queue_id in chain(known, range(last + 1, _MOST_QUEUES)):
        # a request that makes no queue, as others do
        entries = await questions.fetch(
            node, C.QUERY_CONSUME_QUEUE, body(QueueEntries),
            h.QueryConsumeQueue(topic=topic, queue_id=queue_id, index=0, count=1),
            what="queues without settings are", absent=(NO_QUEUE,),
        )  # fmt: skip
        if entries is not None:
            count = (count or 0) + max(entries.max_queue_index - max(entries.min_queue_index, 0), 0)
        elif queue_id > last:
            break
    return count
