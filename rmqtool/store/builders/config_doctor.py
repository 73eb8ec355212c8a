"""Repair the JSON files below ``config/``: use the best generation of each, and make it agree with queues and log.

An intact file is not written at all. A changed file keeps unknown members, and the form of its numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from formats.config.files import NAMES, model_of, split_key
from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from rmqtool.store.builders.config_evidence import Evidence, find_delivered
from rmqtool.store.builders.config_outcome import BUILT, ConfigChange, ConfigOutcome
from rmqtool.store.changes.change import Change
from rmqtool.store.config.files import config_place
from rmqtool.store.config.sources import ABSENT, EMPTY, FILE, ConfigSource, choose
from rmqtool.store.config.topic_entries import DELAY_TOPIC, ProvedQueues, add_topics, now_ms, raise_version, unshare
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.layout.tier_signs import METADATA
from rmqtool.store.releases.rules import BATCH_QUEUE, attributes_shown
from rmqtool.store.tier.tier import DO_NOT_START
from rmqtool.words import counted


class ConfigDoctor:
    """Repairs config files of a store. What a store keeps in RocksDB instead is left alone.

    Args:
        evidence: None if neither queues nor log can be read; files are then not compared with them.
        now: returns the time in ms, for the version of a changed table.
    """

    def __init__(self, layout: StoreLayout, evidence: Evidence | None, now: Callable[[], int] = now_ms) -> None:
        self.layout, self._evidence, self._now = layout, evidence, now
        self.outcomes: list[ConfigOutcome] = []
        self.warnings: list[str] = []
        self._new: dict[str, bytes] = {}
        self._offsets: dict[Any, Any] = {}  # consumerOffset.json
        self._topics: set[str] = set()  # topics in the new topics.json

    def run(self) -> None:
        """Determine the changes to all files; writes nothing.

        Raises:
            UnreadableStore: a file cannot be read.
        """
        evidence = self._evidence
        if evidence is None:
            self.warnings.append("the config files are not compared with queues and log: there are none that are read")
        for topic, queue_id in evidence.stray if evidence else ():
            self.warnings.append(f"{topic}: queue {queue_id} is left out: a damaged record seems to have made it")
        places = {name: place for name in NAMES if (place := config_place(self.layout, name)) is not None}
        if places:
            where = ", ".join(sorted(set(places.values())))
            self.warnings.append(f"what is in RocksDB ({where}) is neither compared nor written: see check")
        self._repair([name for name in NAMES if name not in places], clamped=True)

    def run_on_broken(self, names: Iterable[str]) -> None:
        """Determine the changes to broken files; writes nothing.

        A whole older generation is used as a broker would use it, with its offsets, but for what it lacks: topics that
        have been created since, and delay levels that have been delivered since.

        Args:
            names: see :func:`rmqtool.store.config.sources.find_broken`.

        Raises:
            UnreadableStore: a file cannot be read.
        """
        self._repair([name for name in names if config_place(self.layout, name) is None], clamped=False)

    def _repair(self, names: list[str], *, clamped: bool) -> None:
        self._offsets = choose(self.layout, "consumerOffset.json").value or {} if names else {}
        for name in names:  # topics.json comes before the files that refer to topics
            source = choose(self.layout, name)
            if source.kind != ABSENT or clamped:
                self._repair_file(name, source, clamped=clamped)

    def _repair_file(self, name: str, source: ConfigSource, *, clamped: bool) -> None:
        evidence = self._evidence
        value = unshare(source.value) if source.value is not None else {}
        changes: list[ConfigChange] = []
        built = source.kind in (ABSENT, EMPTY)
        if name == METADATA and source.kind == EMPTY:
            # a broker that reads an empty table there starts a new tier
            self.warnings.append(
                f"{DO_NOT_START}: config/{name} cannot be read, and nothing of it can be saved: left as it is. Put it "
                "back from a copy, or a broker does not find the tier"
            )
            return
        if built:
            value = loads(model_of(name)().build()) | value  # type: ignore[operator]  # a file's top is an object
        if name == "topics.json":
            changes = self._check_topics(value)
        elif name == "delayOffset.json" and evidence is not None:
            changes = self._clamp_delays(value, evidence) if clamped else []
            changes += self._add_delays(value, evidence, lost=built)
        elif name in ("consumerOffset.json", "lmqConsumerOffset.json") and evidence is not None and clamped:
            changes = self._check_offsets(name, value, evidence)
        if source.kind == ABSENT and not changes:
            return
        if source.kind == FILE and not changes:
            self.outcomes.append(ConfigOutcome(file=name, source=FILE, reason=source.reason, written=False))
            return
        kind = BUILT if built and changes else source.kind
        self.outcomes.append(ConfigOutcome(file=name, source=kind, reason=source.reason, written=True, changes=changes))
        self._new[name] = self._build(name, source, value, changes)

    def _build(self, name: str, source: ConfigSource, value: dict[Any, Any], changes: list[ConfigChange]) -> bytes:
        if source.data is not None and not changes:
            return source.data
        model = model_of(name)
        raise_version(name, value, self._now())
        return dumps(value, model.DIALECT)

    # -- topics -------------------------------------------------------------------------------------------------------

    def _check_topics(self, value: dict[Any, Any]) -> list[ConfigChange]:
        """Add entries for topics that have queues, as automatic creation would, and the kind of their queues."""
        changes = []
        if (evidence := self._evidence) is not None:
            attributes = attributes_shown(self.layout)
            batch = self._count_batch_queues()  # without an entry, check does not read them
            used = {topic for (topic, _queue_id), (_low, end) in evidence.ranges.items() if end} | batch.keys()
            levels = len(self.layout.conf.delay_levels)
            for topic, queues in add_topics(value, batch | evidence.topics, used, self._offsets, levels, attributes):
                new, reason = counted(queues, "queue"), "it has messages and no entry"
                changes.append(ConfigChange(key=f"topic {topic}", old=None, new=new, reason=reason))
            changes += _name_batch_queues(value, attributes)
        self._topics = set(value.get("topicConfigTable") or ())
        return changes

    def _count_batch_queues(self) -> dict[str, int]:
        return ProvedQueues.of((topic, queue_id) for topic, queue_id, _ in self.layout.queue_dirs(BATCH_QUEUES)).counts

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _check_offsets(self, name: str, value: dict[Any, Any], evidence: Evidence) -> list[ConfigChange]:
        """Move consumer offsets that are outside their queue to its beginning or end."""
        changes: list[ConfigChange] = []
        strangers: set[str] = set()
        for key, queues in (value.get("offsetTable") or {}).items():
            topic, _group = split_key(key)
            if topic not in self._topics and topic not in evidence.topics:
                strangers.add(topic)
            compared = topic not in strangers and topic not in evidence.other
            for queue_id in queues if compared else ():
                limits = evidence.range_of(topic, int(queue_id))
                changes += _clamp(queues, queue_id, limits, f"{key} queue {queue_id}")
        light = value.get("lmqOffsetTable") or {}
        for key in light:
            topic, _group = split_key(key)
            if topic in evidence.topics:
                changes += _clamp(light, key, evidence.range_of(topic, 0), key)
            else:
                strangers.add(topic)
        for topic in sorted(strangers):
            self.warnings.append(f"config/{name}: offsets of topic {topic}, which does not exist: left as they are")
        return changes

    def _clamp_delays(self, value: dict[Any, Any], evidence: Evidence) -> list[ConfigChange]:
        """Move offsets of delay levels into their queues."""
        table = value.get("offsetTable") or {}
        changes: list[ConfigChange] = []
        for level in table:
            changes += _clamp(table, level, evidence.range_of(DELAY_TOPIC, int(level) - 1), f"level {level}")
        return changes

    def _add_delays(self, value: dict[Any, Any], evidence: Evidence, *, lost: bool) -> list[ConfigChange]:
        """Set lost offsets of delay levels after the last delivered message."""
        table = value.get("offsetTable") or {}
        changes: list[ConfigChange] = []
        known = set(map(int, table))
        # a level has no entry before its first delivery; after one, a copy of the message is in the log
        missing = evidence.overdue - known or (lost and any(topic == DELAY_TOPIC for topic, _i in evidence.ranges))
        for level, offset in find_delivered(self.layout, evidence).items() if missing else ():
            if level not in known:
                table[level] = offset
                reason = "its copy is in the log"
                changes.append(ConfigChange(key=f"level {level}", old=None, new=offset, reason=reason))
        if changes:
            value["offsetTable"] = table
        return changes

    # -- writing ------------------------------------------------------------------------------------------------------

    def prepare(self, change: Change) -> list[str]:
        """Add the new files to a change; returns the plan as text."""
        self.put(change)
        return [line for outcome in self.outcomes for line in outcome.describe()]

    def put(self, change: Change) -> None:
        """Add the new files to a change."""
        for name, data in self._new.items():
            change.put_content(self.layout.path("config", name), data)


def _name_batch_queues(value: dict[Any, Any], shown: Mapping[str, Mapping[str, str]]) -> Iterator[ConfigChange]:
    """Set ``queue.type`` of topics that have only batch queues: a broker does not start without it."""
    table = value.get("topicConfigTable") or {}
    attribute, kind = BATCH_QUEUE
    for topic in sorted(topic for topic in shown if shown[topic].get(attribute) == kind):
        entry = table.get(topic)
        if not isinstance(entry, dict):
            continue
        attributes = entry.get("attributes") or {}
        if (old := attributes.get(attribute)) != kind:
            entry["attributes"] = attributes | {attribute: kind}
            reason = f"its queues are in {BATCH_QUEUES}"
            yield ConfigChange(key=f"topic {topic}, {attribute}", old=old, new=kind, reason=reason)


def _clamp(table: dict[Any, Any], key: Any, limits: tuple[int, int], name: str) -> list[ConfigChange]:
    """Move an offset into a queue's range. One before the expired messages is kept: consumers advance by themselves."""
    low, high = limits
    offset = int(table[key])
    if 0 <= offset <= high:
        return []
    new = low if offset < 0 else high
    reason = "negative" if offset < 0 else "beyond the queue's end"
    change = ConfigChange(key=name, old=offset, new=new, reason=reason)
    table[key] = new
    return [change]
