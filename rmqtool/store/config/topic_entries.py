"""Entries of ``topics.json`` for topics that have messages and no entry, as automatic creation would write them."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from formats.config.files import model_of, split_key
from formats.fastjson.declare import members_of
from formats.message.read import SCHEDULE_TOPIC
from formats.model.topics import DataVersion, TopicConfig
from formats.topics import LMQ_PREFIX, SYSTEM_PREFIX, Perm
from formats.versions import V4_9, V5_3

DELAY_TOPIC = SCHEDULE_TOPIC.decode()
SURE_QUEUES = (
    1024  # the most queues that a broker creates by itself (BenchmarkTest); more need as many directories as proof
)
_PERM = Perm.READ | Perm.WRITE  # as for automatically created topics
_MOST = 2**63 - 1


class ProvedQueues(NamedTuple):
    """What queues prove about their topics.

    Attributes:
        counts: the number of queues that each topic must have had.
        stray: (topic, queue id) that were probably created by a damaged record.
    """

    counts: dict[str, int]
    stray: list[tuple[str, int]]

    @classmethod
    def of(cls, queues: Iterable[tuple[str, int]]) -> "ProvedQueues":
        """From the (topic, queue id) of all queues that have a directory or messages."""
        ids: dict[str, list[int]] = {}
        for topic, queue_id in sorted(queues):
            if queue_id >= 0:
                ids.setdefault(topic, []).append(queue_id)
        counts: dict[str, int] = {}
        stray: list[tuple[str, int]] = []
        for topic, numbers in ids.items():
            plausible = [number for number in numbers if number < max(SURE_QUEUES, 2 * len(numbers))]
            stray.extend((topic, number) for number in numbers if number not in plausible)
            if plausible:
                counts[topic] = plausible[-1] + 1
        return cls(counts, stray)


def add_topics(
    value: dict[Any, Any],
    counts: Mapping[str, int],
    used: Collection[str],
    offsets: Mapping[Any, Any],
    levels: int,
    attributes: Mapping[str, Mapping[str, str]],
) -> Iterator[tuple[str, int]]:
    """Add the entries that are missing; yields (topic, number of queues) of each.

    A topic without messages needs none, nor do light topics and those that a broker creates itself.

    Args:
        value: ``topics.json`` as plain values; it is changed.
        counts: number of queues by topic, see :class:`ProvedQueues`.
        used: topics that have messages in queues.
        offsets: ``consumerOffset.json`` as plain values.
        levels: number of delay levels.
        attributes: of topics that have any.
    """
    table = value.get("topicConfigTable") or {}
    claimed = _queues_in_use(offsets)
    for topic, count in counts.items():
        needless = topic.startswith(LMQ_PREFIX) or topic.lower().startswith(SYSTEM_PREFIX)
        if topic in table or needless or topic not in used:
            continue
        queues = max(count, claimed.get(topic, 0), levels if topic == DELAY_TOPIC else 0)
        own = attributes.get(topic, {})
        config = TopicConfig(
            topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=_PERM, attributes=own
        )
        table[topic] = config.write(V5_3 if own or _is_5(value) else V4_9)
        value["topicConfigTable"] = table
        yield topic, queues


def _queues_in_use(offsets: Mapping[Any, Any]) -> dict[str, int]:
    """Number of queues by topic for which groups have offsets; a queue without messages has no directory."""
    claimed: dict[str, int] = {}
    for key, queues in (offsets.get("offsetTable") or {}).items():
        topic, _group = split_key(key)
        ids = [int(queue_id) for queue_id in queues or ()]
        claimed[topic] = max([claimed.get(topic, 0), *(i + 1 for i in ids if i < SURE_QUEUES)])
    return claimed


def _is_5(value: Mapping[Any, Any]) -> bool:
    version = value.get("dataVersion")
    return isinstance(version, dict) and "stateVersion" in version


def now_ms() -> int:
    """The time in ms, for the version of a changed table."""
    return int(time.time() * 1000)


def raise_version(name: str, value: dict[Any, Any], now: int) -> None:
    """Increase the version of a changed table, since name servers and slaves only take over a new version.

    Args:
        name: the config file.
        value: its plain values; they are changed.
        now: ms.
    """
    old = value.get("dataVersion")
    if not isinstance(old, dict):
        member = members_of(model_of(name)).get("dataVersion")
        if member is None or member.since != V4_9:
            return
        old = {}
    version = DataVersion.read(old)
    value["dataVersion"] = {
        **old,
        "counter": min(version.counter + 1, _MOST),
        "timestamp": max(now, version.timestamp),
    }
    ordered = dict(sorted(value.items(), key=lambda entry: str(entry[0])))
    value.clear()
    value.update(ordered)


def unshare(value: Any) -> Any:
    """A deep copy without shared objects, for which brokers would write references that they cannot read back."""
    if isinstance(value, dict):
        return {key: unshare(item) for key, item in value.items()}
    if isinstance(value, list):
        return type(value)(map(unshare, value))
    return value
