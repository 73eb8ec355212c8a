"""Plans of what brokers remove when asked to clean up."""

from collections import defaultdict

from formats.topics import SCHEDULE
from rmqtool.admin.changes.change import ValueChange
from rmqtool.admin.changes.cleaning import FILES, ExpiredQueues, LogStarts, UnusedQueues
from rmqtool.admin.changes.plans import Where
from rmqtool.admin.changes.run import Plan, Servers
from rmqtool.admin.live.brokers import fetch_settings
from rmqtool.admin.live.cleaning import (
    ExpiredLog,
    count_lost,
    fetch_delay_offsets,
    fetch_expired_queues,
    fetch_queues,
    find_expired_log,
    find_unsettled_topics,
)
from rmqtool.admin.live.questions import Node, Questions, Unanswered
from rmqtool.admin.live.tables import fetch_offsets
from rmqtool.client.cluster.errors import ClientError
from rmqtool.words import counted

COMMAND = "cluster clean"
LOG, QUEUES, UNUSED = "log", "queues", "unused"
COMMITLOG = "commitlog"
_ROUND, _MOST_PATIENCE = 12.0, 60.0  # s: between two removals of a broker, and until all is read back


async def plan_cleaning(questions: Questions, where: Where, what: str, *, accept_loss: bool) -> Plan:
    """Have brokers remove what has expired, or is of no topic.

    Args:
        what: :data:`LOG`, :data:`QUEUES` or :data:`UNUSED`.
        accept_loss: also messages that a group has not consumed.

    Raises:
        ClientError, RemotingError: a server does not answer.
    """
    try:
        if what == LOG:
            return await _plan_log(questions, where, accept_loss=accept_loss)
        if what == QUEUES:
            return await _plan_queues(questions, where)
        return await _plan_unused(questions, where, accept_loss=accept_loss)
    except Unanswered:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed") from None


async def _plan_log(questions: Questions, where: Where, *, accept_loss: bool) -> Plan:
    servers, masters = await Servers.of(questions), await where.masters(questions)
    logs = await questions.need(
        questions.collect(masters, lambda node: find_expired_log(questions, node)), masters
    )  # fmt: skip
    changes, warnings, lost, files = [], list[str](), list[str](), 0
    for node, log in logs.items():
        changes.append(
            ValueChange(place=servers.place(LogStarts, node, COMMITLOG), before=log.start, after=log.new_start)
        )
        if log.first_time is None or log.new_start == log.start:
            continue
        count = (log.new_start - log.start) // log.file_size
        files = max(files, count)
        messages, topics, unread, delayed = await _below(questions, node, log)
        warnings.append(
            f"{node.name}: {counted(count, 'file')}, {counted(log.new_start - log.start, 'byte')}, with "
            f"{counted(messages, 'message')} of {counted(topics, 'topic')}"
        )
        lost += [
            f"{node.name}: {counted(number, 'message')} of {topic} that group {group} has not consumed would go"
            for (group, topic), number in sorted(unread.items())
        ]
        if delayed:
            what = counted(delayed, "delayed message that waits", "delayed messages that wait")
            lost.append(f"{node.name}: {what} would go, and nobody gets them")
    refused = () if accept_loss else tuple(f"{text}; --accept-loss removes them" for text in lost)
    return Plan(
        target=where.target.text, command=COMMAND, changes=tuple(changes),
        warnings=tuple(warnings + lost if accept_loss else warnings), blocked=refused,
        effect="messages go, and undo cannot bring them back",
        patience=min(_ROUND * (1 + files // FILES), _MOST_PATIENCE),
    )  # fmt: skip


async def _below(
    questions: Questions, node: Node, log: ExpiredLog
) -> tuple[int, int, dict[tuple[str, str], int], int]:  # fmt: skip
    """The messages that go, and of how many topics; those that groups have not consumed, by group and topic; and how
    many wait in delay levels.
    """
    assert log.first_time is not None
    queues = [(topic, queue_id) for _node, topic, queue_id in await fetch_queues(questions, [node])]
    ranges = await count_lost(questions, node, queues, log.first_time)
    unread: dict[tuple[str, str], int] = defaultdict(int)
    for row in (await questions.need(fetch_offsets(questions, [node])))[node]:
        low, first = ranges.get((row.topic, row.queue_id), (0, 0))
        if first > max(row.offset, low):
            unread[row.group, row.topic] += first - max(row.offset, low)
    going = {place: first - low for place, (low, first) in ranges.items() if first > low}
    levels = {queue_id + 1: bounds for (topic, queue_id), bounds in ranges.items() if topic == SCHEDULE}
    stored = await fetch_delay_offsets(questions, node) if any(first > low for low, first in levels.values()) else {}
    delayed = sum(max(first - max(stored.get(level, 0), low), 0) for level, (low, first) in levels.items())
    return sum(going.values()), len({topic for topic, _queue_id in going}), dict(unread), delayed


async def _plan_queues(questions: Questions, where: Where) -> Plan:
    servers, masters = await Servers.of(questions), await where.masters(questions)
    tables = await questions.need(
        questions.collect(masters, lambda node: fetch_expired_queues(questions, node)), masters
    )  # fmt: skip
    offsets = await questions.need(fetch_offsets(questions, masters), masters)
    changes, warnings = [], []
    for node, table in tables.items():
        changes += [
            ValueChange(place=servers.place(ExpiredQueues, node, topic, str(queue_id)), before=end, after=None)
            for (topic, queue_id), end in sorted(table.items())
        ]
        if table:
            size = (await fetch_settings(questions, node)).get("mappedFileSizeConsumeQueue", "")
            size_text = f", about {counted(len(table) * int(size), 'byte')} of files" if size.isdecimal() else ""
            groups = sorted({row.group for row in offsets[node] if (row.topic, row.queue_id) in table})
            begin = (
                "begins at offset 0 again, and has offsets of"
                if len(table) == 1
                else "begin at offset 0 again, and have offsets of"
            )
            warnings.append(
                f"{node.name}: {counted(len(table), 'queue')}{size_text}, {begin} {', '.join(groups) or 'no group'}"
            )
    return Plan(
        target=where.target.text, command=COMMAND, changes=tuple(changes), warnings=tuple(warnings),
        effect="their messages are no longer in the log",
    )  # fmt: skip


async def _plan_unused(questions: Questions, where: Where, *, accept_loss: bool) -> Plan:
    servers, masters = await Servers.of(questions), await where.masters(questions)
    counts = await find_unsettled_topics(questions, masters)
    changes = [
        ValueChange(place=servers.place(UnusedQueues, node, topic), before=count, after=None)
        for (node, topic), count in counts.items()
    ]
    warnings, blocked = [], []
    for node in masters:
        own = [count for (other, _topic), count in counts.items() if other == node]
        if own:
            warnings.append(
                f"{node.name}: {counted(len(own), 'topic')} with {counted(sum(own), 'message')}; also topics without "
                "settings that no group has an offset in and no other broker has, which brokers do not list"
            )
        if sum(own) and not accept_loss:
            text = f"{counted(sum(own), 'message')} of topics without settings would go; --accept-loss removes them"
            blocked.append(f"{node.name}: {text}")
    return Plan(
        target=where.target.text, command=COMMAND, changes=tuple(changes), warnings=tuple(warnings),
        blocked=tuple(blocked), effect="their messages cannot be read any more, and undo cannot bring them back",
    )  # fmt: skip
