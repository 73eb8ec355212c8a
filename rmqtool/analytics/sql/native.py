"""The predefined reports without Spark: the same as their queries (:mod:`rmqtool.analytics.sql.ready`), in Python.

For stores that can be read faster than a JVM starts. Rows, order and values are those of the queries, including nulls;
a test compares both.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from formats.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqtool.analytics.source.plan import ReadRequest
from rmqtool.analytics.source.read import Counters, plan_pieces, read_piece
from rmqtool.analytics.sql.ready import OWN_PREFIXES, OWN_TOPICS, READY, WAITING_TOPICS
from rmqtool.progress import stage
from rmqtool.store.log.commit_log import CommitLog

Row = dict[str, Any]
SMALL = 96 << 20  # bytes of log
_PORT = re.compile(r":[0-9]+\Z")
_GROUP = re.compile(r"%(?:RETRY|DLQ)%(.*)")


def is_small(request: ReadRequest) -> bool:
    """Return whether the stores can be read faster in this process than with Spark."""
    return sum(CommitLog(store.layout()).segments.bytes for store in request.stores) <= SMALL


def native_rows(name: str, request: ReadRequest, counters: Counters) -> list[Row]:
    """Return the rows of a predefined report.

    Args:
        request: the stores, and conditions on the messages.
        counters: the cost and outcome of reading are added to it.

    Raises:
        UnreadableStore: a file cannot be read.
    """
    tables = {
        table: _read(replace(request, table=table), columns, counters) for table, columns in READY[name].columns.items()
    }
    return _REPORTS[name](tables)


def _read(request: ReadRequest, columns: tuple[str, ...], counters: Counters) -> Iterator[Row]:
    planned, planning = plan_pieces(request.with_split_size(columns), request.wanted)
    counters.merge(planning)
    with stage("reading the store", len(planned), "parts") as reading:
        for piece in planned:
            for batch in read_piece(piece, columns, counters):
                yield from batch.to_pylist()
            reading.done += 1


_Tables = Mapping[str, Iterable[Row]]


def _nulls_first(value: Any) -> tuple[bool, Any]:
    """Return a sort key that sorts null first, like Spark."""
    return value is not None, value if value is not None else 0


def _messages_of_users(tables: _Tables) -> Iterator[Row]:
    """Yield the messages of topics that are not filled by the broker itself."""
    return (
        row
        for row in tables["messages"]
        if row["topic"] not in OWN_TOPICS and not row["topic"].startswith(OWN_PREFIXES)
    )


def _group(rows: Iterable[Row], key: Callable[[Row], tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _bounds(rows: list[Row], column: str) -> tuple[Any, Any]:
    """Return (minimum, maximum) of a column, ignoring nulls; (None, None) if all are null."""
    values = [row[column] for row in rows if row[column] is not None]
    return min(values, default=None), max(values, default=None)


def _traffic(bucket: str) -> Callable[[_Tables], list[Row]]:
    def of(tables: _Tables) -> list[Row]:
        counts: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
        for row in tables["messages"]:
            time: datetime | None = row["storeTimestamp"]
            if time is not None:
                time = time.replace(second=0, microsecond=0, minute=0 if bucket == "hour" else time.minute)
            count = counts[row["broker"], time, row["topic"]]
            count[0] += 1
            count[1] += row["storeSize"]
        return [
            {"broker": broker, "topic": topic, bucket: time, "messages": messages, "bytes": size}
            for (broker, time, topic), (messages, size) in sorted(
                counts.items(), key=lambda item: (item[0][0], _nulls_first(item[0][1]), item[0][2])
            )
        ]

    return of


def _sizes(tables: _Tables) -> list[Row]:
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in tables["messages"]:
        groups[row["broker"], row["topic"], 1 << len(f"{row['storeSize'] - 1:b}")].append(row["storeSize"])
    return [
        {
            "broker": broker, "topic": topic, "atMost": most, "messages": len(sizes), "bytes": sum(sizes),
            "smallest": min(sizes), "largest": max(sizes),
        }
        for (broker, topic, most), sizes in sorted(groups.items())
    ]  # fmt: skip


def _by_id(tables: _Tables) -> Iterator[tuple[Any, Row]]:
    return ((_property(row, "UNIQ_KEY"), row) for row in _messages_of_users(tables))


def _by_key(tables: _Tables) -> Iterator[tuple[Any, Row]]:
    return ((key, row) for row in _messages_of_users(tables) for key in dict.fromkeys(row["keys"]))


def _property(row: Row, name: str) -> str | None:
    return next((value for key, value in row["properties"] if key == name), None)


def _duplicates(by: str, keyed: Callable[[_Tables], Iterator[tuple[Any, Row]]]) -> Callable[[_Tables], list[Row]]:
    def of(tables: _Tables) -> list[Row]:
        groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for key, row in keyed(tables):
            groups[row["broker"], row["topic"], key].append(row)
        duplicates = []
        for (broker, topic, key), rows in groups.items():
            if len(rows) > 1:
                first, last = _bounds(rows, "physicalOffset")
                stored = _bounds(rows, "storeTimestamp")
                duplicates.append({
                    "broker": broker, "topic": topic, by: key, "copies": len(rows), "firstPhysicalOffset": first,
                    "lastPhysicalOffset": last, "firstStored": stored[0], "lastStored": stored[1],
                })  # fmt: skip
        return sorted(duplicates, key=lambda row: (-row["copies"], row["broker"], row["topic"], _nulls_first(row[by])))

    return of


def _producers(tables: _Tables) -> list[Row]:
    groups = _group(_messages_of_users(tables), lambda row: (row["broker"], _PORT.sub("", row["bornHost"])))
    producers = []
    for (broker, host), rows in groups.items():
        born = _bounds(rows, "bornTimestamp")
        producers.append({
            "broker": broker, "host": host, "messages": len(rows), "bytes": sum(row["storeSize"] for row in rows),
            "topics": len({row["topic"] for row in rows}), "connections": len({row["bornHost"] for row in rows}),
            "firstBorn": born[0], "lastBorn": born[1],
        })  # fmt: skip
    return sorted(producers, key=lambda row: (-row["messages"], row["broker"], row["host"]))


def _lag(tables: _Tables) -> list[Row]:
    lags = []
    for (broker, group, topic), rows in _group(
        tables["offsets"], lambda row: (row["broker"], row["group"], row["topic"])
    ).items():
        stored = [row["brokerOffset"] for row in rows if row["brokerOffset"] is not None]
        lagging = [max(row["diff"], 0) for row in rows if row["diff"] is not None]
        lags.append({
            "broker": broker, "group": group, "topic": topic, "queues": len(stored), "stored": sum(stored),
            "lag": sum(lagging), "largest": max(lagging, default=0),
        })  # fmt: skip
    return sorted(lags, key=lambda row: (-row["lag"], row["broker"], row["group"], row["topic"]))


def _unconsumed_rows(tables: _Tables) -> list[Row]:
    offsets = _group(tables["offsets"], lambda row: (row["broker"], row["topic"], row["queueId"]))
    no_group = [{"group": None, "consumerOffset": None}]
    columns = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "keys")
    rows = []
    for row in _messages_of_users(tables):
        for offset in offsets.get((row["broker"], row["topic"], row["queueId"]), no_group):
            if offset["consumerOffset"] is None or row["queueOffset"] >= offset["consumerOffset"]:
                rest = {name: row[name] for name in columns}
                rows.append({"broker": row["broker"], "group": offset["group"], **rest})
    return sorted(
        rows,
        key=lambda row: (row["broker"], _nulls_first(row["group"]), row["topic"], row["queueId"], row["queueOffset"]),
    )


def _retries(tables: _Tables) -> list[Row]:
    groups: dict[tuple[Any, ...], list[tuple[Row, str]]] = defaultdict(list)
    for row in tables["messages"]:
        origin, topic = _property(row, "ORIGIN_MESSAGE_ID"), row["topic"]
        target = _property(row, "REAL_TOPIC") if topic in WAITING_TOPICS else topic
        if origin is None or target is None or not target.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        if target != topic:
            step = "wait"
        else:
            step = "dead letter" if topic.startswith(DLQ_PREFIX) else f"retry {row['reconsumeTimes']}"
        matched = _GROUP.fullmatch(target)
        group = matched[1] if matched else ""
        groups[row["broker"], group, _property(row, "RETRY_TOPIC"), origin].append((row, step))
    rows = []
    for (broker, group, topic, origin), steps in groups.items():
        steps.sort(key=lambda item: (item[0]["physicalOffset"], item[1]))
        names = [step for _row, step in steps]
        stored = _bounds([row for row, _step in steps], "storeTimestamp")
        rows.append({
            "broker": broker, "group": group, "topic": topic, "originMsgId": origin, "keys": steps[0][0]["keys"],
            "retries": sum(step.startswith("retry") for step in names), "dead": "dead letter" in names,
            "chain": ", ".join(names), "firstStored": stored[0], "lastStored": stored[1],
        })  # fmt: skip
    return sorted(
        rows, key=lambda row: (row["broker"], row["group"], _nulls_first(row["firstStored"]), row["originMsgId"])
    )


_REPORTS: dict[str, Callable[[_Tables], list[Row]]] = {
    "traffic": _traffic("hour"),
    "traffic-by-minute": _traffic("minute"),
    "sizes": _sizes,
    "duplicates-by-id": _duplicates("id", _by_id),
    "duplicates-by-key": _duplicates("key", _by_key),
    "producers": _producers,
    "lag": _lag,
    "unconsumed": _unconsumed_rows,
    "retries": _retries,
}
