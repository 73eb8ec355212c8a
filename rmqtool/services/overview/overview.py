"""Everything about a store that can be seen at a glance: what its log holds, its state, groups, delays, dead letters.

Each part is collected by itself: what cannot be read is missing, and named in ``failures``.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from formats.topics import RETRY_PREFIX
from rmqtool.errors import RmqError
from rmqtool.progress import stage
from rmqtool.services.consumers.groups import ConsumerGroups, oldest_unread
from rmqtool.services.delays.delays import DelayLevel, Delays
from rmqtool.services.lookup.configs import groups_of, topics_of
from rmqtool.services.lookup.info import StoreInfo, store_info
from rmqtool.services.lookup.retry_names import retry_names
from rmqtool.services.retries.retries import Retries
from rmqtool.services.timers.timers import open_timers
from rmqtool.services.usage.contents import Contents, measure_contents
from rmqtool.services.usage.purpose import purpose_of
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.reading.reading import PLACES, Interpretation, Interpreter, severities_of
from rmqtool.store.check.run import check_store
from rmqtool.store.config.files import keep_parsed
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.shape import LogShape

_LEAST_OF_QUEUES = 10  # messages per queue, below which an uneven number says nothing
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """One topic with messages in the log.

    Attributes:
        purpose: of a topic that brokers or groups fill; None for an application's.
        share: of the bytes of all records.
        queues: those in the table of topics, or those with messages if it lacks the topic.
        largest: messages of the queue that has most.
        skew: ``largest`` divided by the mean of all queues; None for one queue, or too few messages.
    """

    topic: str
    purpose: str | None
    messages: int
    bytes: int
    share: float
    queues: int
    largest: int
    skew: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One consumer group.

    Attributes:
        oldest: store time of its oldest unread message, ms; None if it has read all, or the message is gone.
        problems: queues in which its offset cannot be right.
    """

    group: str
    topics: int
    lag: int
    retry_lag: int
    dead_letters: int
    in_flight: int
    problems: int
    oldest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSummary:
    """Dead letters with one cause.

    Attributes:
        topic: where the messages were sent to; None if they do not say it.
        failed: how often their delivery failed before.
        cause: in words.
        first, last: store times of the first and last of them, ms.
    """

    group: str
    topic: str | None
    failed: int
    cause: str
    letters: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What there is to see of a store. Parts that could not be read are None or empty, and named in ``failures``, with
    other warnings.

    Attributes:
        time: ms; ages and what is due refer to it.
        topics: those with messages in the log, the largest first.
        groups: the largest lag first.
        delays: levels that have messages, and the timer of 5.x.
    """

    time: int
    info: StoreInfo
    reading: Interpretation | None = None
    shape: LogShape | None = None
    contents: Contents | None = None
    topics: list[TopicSummary] = field(default_factory=list)
    groups: list[GroupSummary] = field(default_factory=list)
    letters: list[LetterSummary] = field(default_factory=list)
    delays: list[DelayLevel] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def findings(self) -> int:
        """Number of findings of the check."""
        return sum(severities_of(self.reading.causes).values()) if self.reading is not None else 0


def look_over(layout: StoreLayout, time: int) -> Overview:
    """Collect an overview. The store is only read: once by the check, and once for what the log holds.

    Args:
        time: the time that decides ages and what is due, ms.
    """
    with keep_parsed():
        return _look_over(layout, time)


def _look_over(layout: StoreLayout, time: int) -> Overview:
    failures: Counter[str] = Counter()

    def attempt(what: str, collect: Callable[[], T], otherwise: T) -> T:
        try:
            return collect()
        except (RmqError, OSError) as err:
            failures[f"{what}: {err}"] += 1
            return otherwise

    def warn(text: str) -> None:
        failures[text] += 1

    info, situation = store_info(layout), Situation()
    contents = attempt("messages", lambda: measure_contents(CommitLog(layout)), None)
    return Overview(
        time=time,
        info=info,
        reading=attempt("check", lambda: _check(layout, situation), None),
        shape=situation.log,
        contents=contents,
        topics=attempt("topics", lambda: _topics(layout, contents, warn), []) if contents is not None else [],
        groups=attempt("groups", lambda: _groups(CommitLog(layout), warn), []),
        letters=attempt("dead letters", lambda: _letters(CommitLog(layout), time, warn), []),
        delays=attempt("delays", lambda: _delays(CommitLog(layout), time, warn), []),
        failures=list(failures),
    )


def _check(layout: StoreLayout, situation: Situation) -> Interpretation:
    reader = Interpreter(PLACES)
    with stage("checking the store"):
        for finding in check_store(layout, situation=situation):
            reader.take(finding)
    return reader.reading(situation)


def _topics(layout: StoreLayout, contents: Contents, warn: Callable[[str], None]) -> list[TopicSummary]:
    table, names = topics_of(layout, warn), retry_names(layout, warn)
    total = sum(size for _topic, _messages, size in contents.topics)
    queues: dict[int, list[int]] = {}
    for (number, _queue_id), messages in contents.queues.items():
        queues.setdefault(number, []).append(messages)
    rows = []
    for number, (topic, messages, size) in enumerate(contents.topics):
        of_topic = queues.get(number, [])
        config = table.topics.get(topic) if table is not None else None
        count = max(len(of_topic), config.write_queue_nums if config is not None else 0)
        counts = count > 1 and messages >= count * _LEAST_OF_QUEUES
        purpose = purpose_of(topic, names)
        rows.append(
            TopicSummary(
                topic=topic,
                purpose=purpose,
                messages=messages,
                bytes=size,
                share=size / total if total else 0.0,
                queues=count,
                largest=max(of_topic, default=0),
                # the queues of a broker's own topics stand for levels and the like
                skew=round(max(of_topic) * count / messages, 2) if counts and purpose is None else None,
            )
        )
    return sorted(rows, key=lambda row: (-row.bytes, row.topic))


def _groups(log: CommitLog, warn: Callable[[str], None]) -> list[GroupSummary]:
    groups = ConsumerGroups(log, warn)
    oldest: dict[str, int] = {}
    for lag in groups.lag(behind=True):
        if _is_read(lag.topic) and (time := oldest_unread(log, groups.queues, lag)) is not None:
            oldest[lag.group] = min(time, oldest.get(lag.group, time))
    rows = [
        GroupSummary(
            group=info.group,
            topics=info.topics,
            lag=info.diff or 0,
            retry_lag=info.retryDiff or 0,
            dead_letters=info.deadLetters or 0,
            in_flight=info.inFlight or 0,
            problems=info.problems,
            oldest=oldest.get(info.group),
        )
        for info in groups.infos()
    ]
    return sorted(rows, key=lambda row: (-row.lag, row.oldest or row.lag, row.group))


def _is_read(topic: str) -> bool:
    return not topic.startswith(RETRY_PREFIX)


def _letters(log: CommitLog, time: int, warn: Callable[[str], None]) -> list[LetterSummary]:
    groups = groups_of(log.layout, lambda _text: None)
    limits = {name: config.retry_max_times for name, config in groups.groups.items()} if groups is not None else {}
    times: dict[tuple[str, str, int], list[int]] = {}
    topics: dict[str, str | None] = {}
    for letter, _message in Retries(log, time, warn).dead_letters():
        topics[letter.originTopic or ""] = letter.originTopic
        key = letter.group, letter.originTopic or "", letter.reconsumeTimes
        seen = times.setdefault(key, [0, letter.storeTimestamp, letter.storeTimestamp])
        seen[0] += 1
        seen[1], seen[2] = min(seen[1], letter.storeTimestamp), max(seen[2], letter.storeTimestamp)
    rows = [
        LetterSummary(
            group=group,
            topic=topics[topic],
            failed=failed,
            cause=_cause(failed, limits.get(group)),
            letters=count,
            first=first,
            last=last,
        )
        for (group, topic, failed), (count, first, last) in times.items()
    ]
    return sorted(rows, key=lambda row: (-row.letters, row.group, row.topic or "", row.failed))


def _cause(failed: int, limit: int | None) -> str:
    """Why messages became dead letters.

    Source: broker.processor.AbstractSendMessageProcessor (consumerSendMsgBack): too many deliveries have failed, or the
    consumer asks for no further one by a negative delay level. A consumer may send a limit of its own.
    """
    if limit is None:
        return "the group has no settings here, so its limit is not known"
    if failed >= limit:
        return f"as many deliveries failed as the group allows ({limit})"
    return f"the consumer gave up before the group's limit of {limit}: it asked for no retry, or has a lower limit"


def _delays(log: CommitLog, time: int, warn: Callable[[str], None]) -> list[DelayLevel]:
    timers = open_timers(log, time, warn)
    levels = [row for row in Delays(log, time, warn).levels() if row.maxOffset or row.deliveredOffset is not None]
    return [*levels, *([timers.row()] if timers.present else [])]
