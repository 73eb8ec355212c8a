"""The queries of the command ``report``, over the tables of :mod:`rmqtool.analytics.source.tables`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from formats.topics import DLQ_PREFIX, GIVEN_UP, HALVES, OPS, RETRY_PREFIX, SCHEDULE, TIMER

# topics filled by a broker itself with messages that wait, are retried, or were given up
WAITING_TOPICS = (SCHEDULE, TIMER)
OWN_TOPICS = (
    *WAITING_TOPICS, *HALVES, *OPS, GIVEN_UP,
)  # fmt: skip
OWN_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_OWN = f"""(topic IN {OWN_TOPICS}
  OR {" OR ".join(f"startswith(topic, '{prefix}')" for prefix in OWN_PREFIXES)})"""
_DUPLICATES = ("copies", "firstPhysicalOffset", "lastPhysicalOffset", "firstStored", "lastStored")
_NAMES = {
    "traffic": ("broker", "topic", "hour", "messages", "bytes"),
    "traffic-by-minute": ("broker", "topic", "minute", "messages", "bytes"),
    "sizes": ("broker", "topic", "atMost", "messages", "bytes", "smallest", "largest"),
    "duplicates-by-id": ("broker", "topic", "id", *_DUPLICATES),
    "duplicates-by-key": ("broker", "topic", "key", *_DUPLICATES),
    "producers": ("broker", "host", "messages", "bytes", "topics", "connections", "firstBorn", "lastBorn"),
    "lag": ("broker", "group", "topic", "queues", "stored", "lag", "largest"),
    "unconsumed": (
        "broker", "group", "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "keys",
    ),
    "retries": (
        "broker", "group", "topic", "originMsgId", "keys", "retries", "dead", "chain", "firstStored", "lastStored",
    ),
}  # fmt: skip
_TABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class ReadyQuery:
    """A predefined query.

    Attributes:
        query: Spark SQL, with table names in braces.
        columns: the columns that the query needs of each table.
        bar: the column shown as a bar chart in readable tables; None for none.
    """

    name: str
    query: str
    columns: Mapping[str, tuple[str, ...]]
    bar: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Column names of the result."""
        return _NAMES[self.name]

    @property
    def sql(self) -> str:
        """The query over views named like the tables."""
        return _TABLE.sub(r"\1", self.query)


def _duplicates(by: str, key: str, source: str, columns: tuple[str, ...]) -> ReadyQuery:
    """Return a query with one row per id or key shared by several messages of a topic."""
    return ReadyQuery(
        f"duplicates-by-{by}",
        f"""
        SELECT broker, topic, {key} AS `{by}`, count(*) AS copies,
          min(physicalOffset) AS firstPhysicalOffset, max(physicalOffset) AS lastPhysicalOffset,
          min(storeTimestamp) AS firstStored, max(storeTimestamp) AS lastStored
        FROM {source} WHERE NOT {_OWN}
        GROUP BY broker, topic, {key} HAVING count(*) > 1 ORDER BY copies DESC, broker, topic, `{by}`""",
        {"messages": ("broker", "topic", "physicalOffset", "storeTimestamp", *columns)},
    )


def _traffic(name: str, bucket: str) -> ReadyQuery:
    """Return a query with one row per topic and hour or minute (UTC) of the store time."""
    time = f"date_trunc('{bucket}', storeTimestamp)"
    return ReadyQuery(
        name,
        f"""
        SELECT broker, topic, {time} AS {bucket}, count(*) AS messages, sum(storeSize) AS bytes
        FROM {{messages}} GROUP BY broker, topic, {time} ORDER BY broker, {bucket}, topic""",
        {"messages": ("broker", "topic", "storeTimestamp", "storeSize")},
        "messages",
    )


_ALL = (
    _traffic("traffic", "hour"),
    _traffic("traffic-by-minute", "minute"),
    # one row per topic and size class: stored sizes up to atMost bytes, and above half of that
    ReadyQuery(
        "sizes",
        """
        SELECT broker, topic, shiftleft(CAST(1 AS BIGINT), length(bin(storeSize - 1))) AS atMost,
          count(*) AS messages, sum(storeSize) AS bytes, min(storeSize) AS smallest, max(storeSize) AS largest
        FROM {messages} GROUP BY broker, topic, shiftleft(CAST(1 AS BIGINT), length(bin(storeSize - 1)))
        ORDER BY broker, topic, atMost""",
        {"messages": ("broker", "topic", "storeSize")},
        "messages",
    ),
    _duplicates("id", "properties['UNIQ_KEY']", "{messages}", ("properties",)),
    _duplicates(
        "key",
        "key",
        "(SELECT broker, topic, physicalOffset, storeTimestamp, explode(array_distinct(keys)) AS key FROM {messages})",
        ("keys",),
    ),
    # one row per producer address; the broker's own topics are excluded
    ReadyQuery(
        "producers",
        f"""
        SELECT broker, host, count(*) AS messages, sum(storeSize) AS bytes, count(DISTINCT topic) AS topics,
          count(DISTINCT bornHost) AS connections, min(bornTimestamp) AS firstBorn, max(bornTimestamp) AS lastBorn
        FROM (SELECT *, regexp_replace(bornHost, ':[0-9]+$', '') AS host FROM {{messages}} WHERE NOT {_OWN})
        GROUP BY broker, host ORDER BY messages DESC, broker, host""",
        {"messages": ("broker", "topic", "bornHost", "bornTimestamp", "storeSize")},
        "messages",
    ),
    # one row per group and topic with offsets; lag is the number of messages that are not consumed yet
    ReadyQuery(
        "lag",
        """
        SELECT broker, `group`, topic, count(brokerOffset) AS queues, coalesce(sum(brokerOffset), 0) AS stored,
          coalesce(sum(greatest(diff, 0)), 0) AS lag, coalesce(max(greatest(diff, 0)), 0) AS largest
        FROM {offsets} GROUP BY broker, `group`, topic ORDER BY lag DESC, broker, `group`, topic""",
        {"offsets": ("broker", "group", "topic", "brokerOffset", "diff")},
        "lag",
    ),
    # one row per group and message after the group's offset, and one row without a group per message of a queue in
    # which no group has an offset; the broker's own topics are excluded
    ReadyQuery(
        "unconsumed",
        f"""
        WITH sent AS (SELECT * FROM {{messages}} WHERE NOT {_OWN})
        SELECT s.broker, o.`group`, s.topic, s.queueId, s.queueOffset, s.physicalOffset, s.storeTimestamp, s.msgId,
          s.keys
        FROM sent s LEFT JOIN {{offsets}} o ON s.broker = o.broker AND s.topic = o.topic AND s.queueId = o.queueId
        WHERE o.consumerOffset IS NULL OR s.queueOffset >= o.consumerOffset
        ORDER BY broker, `group`, topic, queueId, queueOffset""",
        {
            "messages": (
                "broker", "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "keys",
            ),
            "offsets": ("broker", "group", "topic", "queueId", "consumerOffset"),
        },
    ),
    # one row per message that a group failed to consume: number of redeliveries, whether it is a dead letter now, and
    # the steps in between
    ReadyQuery(
        "retries",
        r"""
        WITH again AS (
          SELECT broker, physicalOffset, storeTimestamp, reconsumeTimes, topic, keys,
            properties['ORIGIN_MESSAGE_ID'] AS originMsgId, properties['RETRY_TOPIC'] AS origin,
            CASE WHEN topic IN ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer') THEN properties['REAL_TOPIC']
              ELSE topic END AS target
          FROM {messages} WHERE properties['ORIGIN_MESSAGE_ID'] IS NOT NULL),
        stages AS (
          SELECT *, regexp_extract(target, '^%(RETRY|DLQ)%(.*)$', 2) AS `group`,
            CASE WHEN target <> topic THEN 'wait' WHEN startswith(topic, '%DLQ%') THEN 'dead letter'
              ELSE concat('retry ', reconsumeTimes) END AS stage
          FROM again WHERE startswith(target, '%RETRY%') OR startswith(target, '%DLQ%'))
        SELECT broker, `group`, origin AS topic, originMsgId, min_by(keys, physicalOffset) AS keys,
          count_if(startswith(stage, 'retry')) AS retries, count_if(stage = 'dead letter') > 0 AS dead,
          array_join(transform(array_sort(collect_list(struct(physicalOffset, stage))), s -> s.stage), ', ') AS chain,
          min(storeTimestamp) AS firstStored, max(storeTimestamp) AS lastStored
        FROM stages GROUP BY broker, `group`, origin, originMsgId
        ORDER BY broker, `group`, firstStored, originMsgId""",
        {
            "messages": (
                "broker", "topic", "physicalOffset", "storeTimestamp", "reconsumeTimes", "keys", "properties",
            )
        },
    ),
)  # fmt: skip
READY = {query.name: query for query in _ALL}
