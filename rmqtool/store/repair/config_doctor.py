"""Mend the JSON files below ``config/``: use the best generation of each, and make it agree with queues and log.

An intact file is not written at all. A changed file keeps unknown members, and the form of its numbers.
"""

from collections.abc import Callable
from typing import Any

from formats.config.files import NAMES, model_of, split_key
from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from rmqtool.store.changes.change import Change
from rmqtool.store.config.files import config_place
from rmqtool.store.config.sources import ABSENT, EMPTY, FILE, ConfigSource, choose
from rmqtool.store.config.topic_entries import DELAY_TOPIC, add_topics, now_ms, raise_version, unshare
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import METADATA
from rmqtool.store.repair.config_evidence import Evidence, find_delivered, gather
from rmqtool.store.repair.config_outcome import BUILT, ConfigChange, ConfigOutcome
from rmqtool.store.tier.tier import DO_NOT_START
from rmqtool.words import counted


class ConfigDoctor:
    """Mends all config files of a store.

    Args:
        now: returns the time in ms, for the version of a changed table.
    """

    def __init__(self, layout: StoreLayout, now: Callable[[], int] = now_ms) -> None:
        self.layout, self._now = layout, now
        self.outcomes: list[ConfigOutcome] = []
        self.warnings: list[str] = []
        self._new: dict[str, bytes] = {}
        self._offsets: dict[Any, Any] = {}  # consumerOffset.json
        self._topics: set[str] = set()  # topics in the new topics.json

    def run(self) -> None:
        """Determine all changes; writes nothing.

        Raises:
            UnreadableStore: a file cannot be read.
        """
        evidence = gather(self.layout)
        if evidence is None:
            self.warnings.append("the config files are not compared with queues and log: there are none that are read")
        for topic, queue_id in evidence.stray if evidence else ():
            self.warnings.append(f"{topic}: queue {queue_id} is left out: a damaged record seems to have made it")
        places = {name: place for name in NAMES if (place := config_place(self.layout, name)) is not None}
        if places:
            where = ", ".join(sorted(set(places.values())))
            self.warnings.append(f"what is in RocksDB ({where}) is neither compared nor written: see check")
        self._offsets = choose(self.layout, "consumerOffset.json").value or {}
        for name in NAMES:  # topics.json comes before the files that refer to topics
            if name not in places:
                self._mend(name, evidence)

    def _mend(self, name: str, evidence: Evidence | None) -> None:
        source = choose(self.layout, name)
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
            changes = self._add_topics(value, evidence)
        elif name == "delayOffset.json" and evidence is not None:
            changes = self._check_delays(value, evidence, lost=built)
        elif name in ("consumerOffset.json", "lmqConsumerOffset.json") and evidence is not None:
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

    def _add_topics(self, value: dict[Any, Any], evidence: Evidence | None) -> list[ConfigChange]:
        """Add entries for topics that have queues, as automatic creation would."""
        changes = []
        if evidence is not None:
            used = {topic for (topic, _queue_id), (_low, end) in evidence.ranges.items() if end}
            levels = len(self.layout.conf.delay_levels)
            for topic, queues in add_topics(value, evidence.topics, used, self._offsets, levels):
                new, reason = counted(queues, "queue"), "it has messages and no entry"
                changes.append(ConfigChange(key=f"topic {topic}", old=None, new=new, reason=reason))
        self._topics = set(value.get("topicConfigTable") or ())
        return changes

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

    def _check_delays(self, value: dict[Any, Any], evidence: Evidence, *, lost: bool) -> list[ConfigChange]:
        """Move offsets of delay levels into their queues; a lost one is set after the last delivered message."""
        table = value.get("offsetTable") or {}
        changes: list[ConfigChange] = []
        for level in table:
            changes += _clamp(table, level, evidence.range_of(DELAY_TOPIC, int(level) - 1), f"level {level}")
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
        for name, data in self._new.items():
            change.put_content(self.layout.path("config", name), data)
        return [line for outcome in self.outcomes for line in outcome.describe()]


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
