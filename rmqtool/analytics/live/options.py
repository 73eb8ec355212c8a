"""The options of the data source ``rocketmq`` for a live cluster. Their names are those of Spark's Kafka source."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from formats.remoting.shapes import MessageQueue
from rmqtool.admin.target import SCHEME, Target, parse_target
from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.live.waiting import A_MINUTE, Patience
from rmqtool.analytics.spark.option_values import OF_A_CATALOG, millis_of, number_of, suggest
from rmqtool.errors import BadValue
from rmqtool.rules.sending import check_group, check_topic

EARLIEST, LATEST = "earliest", "latest"
_OLD_WORDS = {-2: EARLIEST, -1: LATEST}  # as Kafka's source writes them
_MOST_RECORDS = 100_000  # messages of a task, unless something else is asked for
_PATIENCE, _OF_STREAMS = "brokerTimeout", 600.0
_CONNECTION = ("path", "namesrv", "tlsConfig", "acl")
_SELECTION = ("table", "columns", "bodySchema", "subscribe", "subscribePattern", "assign", "tags", "sql")
_RANGE = ("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp")
_AMOUNT = (
    "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "failOnDataLoss", _PATIENCE,
)  # fmt: skip
_PROGRESS = ("commitGroup",)
_OPTIONS = {name.lower(): name for name in (*_CONNECTION, *_SELECTION, *_RANGE, *_AMOUNT, *_PROGRESS)}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(rf"(\d{{1,9}})\s*({'|'.join(_UNITS)})")

Point: TypeAlias = int | str
"""An offset, EARLIEST or LATEST."""


@dataclass(frozen=True)
class Boundary:
    """Where reading begins or ends: one of the three.

    Attributes:
        word: EARLIEST or LATEST, in every queue.
        timestamp: at the first message stored at or after this time, ms since the epoch.
        offsets: for each queue.
    """

    word: str = EARLIEST
    timestamp: int | None = None
    offsets: Mapping[MessageQueue, Point] | None = None


@dataclass(frozen=True)
class LiveRequest:
    """What is asked of a live cluster.

    Attributes:
        topics: names of topics; empty if there is a pattern, or queues are given.
        pattern: regular expression that the whole name of an ordinary topic must match.
        queues: the only queues to read.
        tags: only messages with one of these; empty for all.
        sql: only messages for which this SQL92 expression is true.
        least_partitions: divide queues until there are that many ranges, if they have as many messages.
        most_records: messages of a range.
        most_offsets, least_offsets: messages of a batch of a stream; None for no limit.
        most_delay: seconds after which a batch is read even if it has less than ``least_offsets``.
        patience: for how long a broker or name server that is away is waited for.
        strict: fail if messages are no longer there, instead of continuing after them with a warning.
        commit_group: the consumer group whose offsets a stream moves after each batch; None for no group.
        bodies: the schema of bodies, by which messages have the columns ``decoded`` and ``decodeError``.
        by_option: whether the option ``failOnDataLoss`` can be given, so that errors name it.
    """

    target: Target
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: tuple[MessageQueue, ...] = ()
    columns: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    sql: str | None = None
    start: Boundary | None = None
    end: Boundary | None = None
    least_partitions: int | None = None
    most_records: int | None = None
    most_offsets: int | None = None
    least_offsets: int | None = None
    most_delay: float = 900.0
    patience: Patience = A_MINUTE
    strict: bool = True
    by_option: bool = True
    commit_group: str | None = None
    bodies: TableSchema | None = None

    def selects(self, queue: MessageQueue) -> bool:
        """Return whether a queue that was read before is still asked for. A topic that matched a pattern is."""
        if self.queues:
            return queue in self.queues
        return not self.topics or queue.topic in self.topics

    def begin(self, default: str) -> Boundary:
        """Return where reading begins, with a default."""
        return self.start or Boundary(default)


def is_live(options: Mapping[str, str]) -> bool:
    """Return whether options are those of a live cluster."""
    return "namesrv" in options or options.get("path", "").startswith(SCHEME)


def known_live_options(options: Mapping[str, str], names: Collection[str] | None = None) -> dict[str, str]:
    """Return our options by their documented names, without those that Spark's catalog adds to tables.

    Args:
        names: the names that are known; by default those for reading.

    Raises:
        BadValue: an option is unknown.
    """
    by_name = _OPTIONS if names is None else {name.lower(): name for name in names}
    ours, unknown = dict[str, str](), []
    for name, value in options.items():
        if name.lower() in by_name:
            ours[by_name[name.lower()]] = value
        elif name.lower() not in OF_A_CATALOG and not name.lower().startswith("option."):
            unknown.append(name)
    if unknown:
        raise BadValue(
            f"option {', '.join(unknown)} is not known for a live cluster; there are {', '.join(by_name.values())}"
            f"{suggest(unknown)}"
        )
    given = {name.lower() for name in options}
    if "option.namesrv" in given and "location" not in given:
        ours.pop("path", None)  # of a table without a location: the directory that Spark would keep it in
    return ours


def target_of(options: Mapping[str, str]) -> Target:
    """Return the cluster that options name.

    Raises:
        BadValue: there is no valid address, or there are two.
    """
    path, namesrv = options.get("path", ""), options.get("namesrv")
    if namesrv is not None and path:
        raise BadValue(f"option namesrv goes without a path, and there is {path}")
    target = parse_target(path if namesrv is None else SCHEME + namesrv.removeprefix(SCHEME).strip())
    return replace(target, tls_config=options.get("tlsConfig"), acl=options.get("acl"))


def live_request_of(options: Mapping[str, str], *, streaming: bool | None = False) -> LiveRequest:
    """Return the request described by the options of the data source.

    Args:
        streaming: whether it is for a stream; None if that is not known, as when Spark asks for the columns.

    Raises:
        BadValue: an option is unknown or has an invalid value, or options contradict each other.
    """
    options = known_live_options(options)
    if options.get("table", "messages") != "messages":
        raise BadValue(f"table {options['table']} is one of a store; a live cluster has the table messages")
    if streaming and (ending := [name for name in _RANGE[2:] if name in options]):
        raise BadValue(f"option {ending[0]}: a stream has no end")
    group = options.get("commitGroup")
    if group is not None and streaming is False:
        raise BadValue("option commitGroup: only a stream moves a group's offsets, after each of its batches")
    if group is not None:
        try:
            check_group(group)
        except ValueError as err:
            raise BadValue(f"option commitGroup: {err}") from None
    topics, pattern, queues = _selection(options)
    tags = tuple(filter(None, (tag.strip() for tag in re.split(r",|\|\|", options.get("tags", "")))))
    if tags and "sql" in options:
        raise BadValue("option sql goes without tags; in SQL a tag is TAGS = 'paid'")
    return LiveRequest(
        target_of(options),
        topics,
        pattern,
        queues,
        _split_list(options["columns"]) if "columns" in options else None,
        () if tags == ("*",) else tags,
        options.get("sql"),
        _boundary(options, "starting"),
        _boundary(options, "ending"),
        _number(options, "minPartitions"),
        _number(options, "maxRecordsPerPartition") or _MOST_RECORDS,
        _number(options, "maxOffsetsPerTrigger"),
        _number(options, "minOffsetsPerTrigger"),
        _seconds(options, "maxTriggerDelay", "15m"),
        patience_of(options, streaming=bool(streaming)),
        _flag(options, "failOnDataLoss", default=True),
        commit_group=group,
    )


def patience_of(options: Mapping[str, str], *, streaming: bool) -> Patience:
    """Return how long brokers and name servers are waited for.

    Raises:
        BadValue: the option is not a time.
    """
    if _PATIENCE in options:
        seconds = _seconds(options, _PATIENCE, "")
        return Patience(seconds, seconds)
    return Patience(later=_OF_STREAMS) if streaming else A_MINUTE


def _selection(options: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, tuple[MessageQueue, ...]]:
    """Return (topics, pattern, queues) of which one is given."""
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(names) != 1:
        raise BadValue(
            "give one of subscribe (topics separated by commas), subscribePattern (a regular expression) and assign "
            '(queues as JSON like {"Orders": {"broker-a": [0, 1]}})'
        )
    text = options[names[0]]
    if names == ["subscribe"]:
        topics = _split_list(text)
        for topic in topics:
            _check_topic("subscribe", topic)
        if not topics:
            raise BadValue("option subscribe names no topic")
        return topics, None, ()
    if names == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as err:
            raise BadValue(f"option subscribePattern: {text!r} is not a regular expression: {err}") from None
        return (), text, ()
    return (), None, tuple(_by_queue("assign", text, dict.fromkeys, "[0, 1]"))


def _by_queue(
    option: str, text: str, read: Callable[[Any], Mapping[Any, Any]], example: str
) -> dict[MessageQueue, Any]:
    """Parse JSON by topic, broker and queue.

    Args:
        read: returns values by queue id from what is given for a broker.
        example: of what is given for a broker.
    """
    try:
        queues = {
            MessageQueue(topic, broker, _queue_id(queue_id)): value
            for topic, brokers in json.loads(text).items()
            for broker, given in brokers.items()
            for queue_id, value in read(given).items()
        }
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        queues = {}
    if not queues:
        raise BadValue(f'option {option}: {text!r} is not JSON like {{"Orders": {{"broker-a": {example}}}}}') from None
    for queue in queues:
        _check_topic(option, queue.topic)
    return queues


def _queue_id(value: str | int) -> int:
    if type(value) is not int and not (isinstance(value, str) and value.isascii() and value.isdecimal()):
        raise ValueError
    if not 0 <= int(value) < 1 << 31:
        raise ValueError
    return int(value)


def _check_topic(option: str, topic: str) -> None:
    try:
        check_topic(topic, sending=False)
    except ValueError as err:
        raise BadValue(f"option {option}: {err}") from None


def _boundary(options: Mapping[str, str], side: str) -> Boundary | None:
    """Return the boundary on one side; None if none is given."""
    offsets, timestamp = f"{side}Offsets", f"{side}Timestamp"
    if offsets in options and timestamp in options:
        raise BadValue(f"option {timestamp} goes without {offsets}")
    if timestamp in options:
        return Boundary(timestamp=millis_of(timestamp, options[timestamp]))
    if offsets not in options:
        return None
    text = options[offsets].strip()
    if text.lower() == EARLIEST and side == "ending":
        raise BadValue(f"option {offsets}: nothing lies before {EARLIEST}")
    if text.lower() in (EARLIEST, LATEST):
        return Boundary(text.lower())
    points = _by_queue(offsets, text, dict, '{"0": 1024, "1": "earliest"}')
    return Boundary(offsets={queue: _point(offsets, text, value) for queue, value in points.items()})


def _point(option: str, text: str, value: Any) -> Point:
    if isinstance(value, str) and value.lower() in (EARLIEST, LATEST):
        return value.lower()
    if type(value) is int and value in _OLD_WORDS:
        return _OLD_WORDS[value]
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise BadValue(f"option {option}: {text!r}: {value!r} is neither an offset, {EARLIEST} nor {LATEST}")
    return value


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))


def _number(options: Mapping[str, str], name: str) -> int | None:
    return number_of(options, name, 1) if name in options else None


def _seconds(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name, default)
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise BadValue(f"option {name}: {text!r} is not a time like 30s or 15m")
    return int(match[1]) * _UNITS[match[2]]


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise BadValue(f"option {name}: {options[name]!r} is neither true nor false")
    return text == "true"
