"""Where a message is, where it is not, and why: log, queue, index, tier, what it waits for, and who has passed it.

An absence is explained by what the store shows: the range of the log, marks of other records at the place, entries of
the index that outlive their messages, the time in an id. A broker stores no time of consumption; it is known from
message traces (topic ``RMQ_SYS_TRACE_TOPIC``), and otherwise at most up to the last writing of the offsets file.

Source: message-services 10 to 13; store-engine 5.1, 5.4, 6.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from formats.endings import Ending
from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.ids import OffsetId, is_id, parse_offset_id, parse_unique_id
from formats.message.ids import offset_id as id_of
from formats.message.properties import KEYS, REAL_TOPIC, UNIQ_KEY, parse, split_keys
from formats.message.trace import OUTCOMES, parse_sub_after
from formats.primitives import COMPRESSED, address_text
from formats.topics import DLQ_PREFIX, GIVEN_UP, HALVES, SCHEDULE, TIMER, TRACE, Perm
from formats.variants.timer import DELETE_KEY
from rmqtool.contract import PlainRow
from rmqtool.services.lookup.configs import Warn, groups_of, topics_of
from rmqtool.services.lookup.query import KeyReader, Search, query_id, query_key
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.lookup.topic_names import topics_in
from rmqtool.services.timers.timers import open_timers
from rmqtool.services.trace import ACKED, FILTERED, GIVEN_BACK, RESET, Event, PassedCopy, Trace, topics_with_key, trace
from rmqtool.store.config.files import config_database
from rmqtool.store.disk.segments import offset_name
from rmqtool.store.index.reader import BadIndex, open_index, physical_offsets
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.words import counted

_NEAR = 8 << 20  # bytes searched before a position for a record that covers it; messages have at most 4 MiB
_WAITING = (SCHEDULE, TIMER, *HALVES, GIVEN_UP)  # topics in which messages wait for their own
_LEFT_IN_LOG = ("popped", "postponed", "acked", "rolled-back")  # events without a copy of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting(PlainRow):
    """What one place of the store says about the message.

    ``place``: log, queue, index, tier, compaction-log, waiting, group, id. ``state`` is ``present``, or the reason why
    the message is not there as expected.
    """

    place: str
    state: str
    words: str
    topic: str | None = None
    queueId: int | None = None
    queueOffset: int | None = None
    physicalOffset: int | None = None
    group: str | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Everything about a message that is in the store, or about one that is not."""

    asked: str
    msgId: str | None
    verdict: str
    words: str  # the verdict as a sentence
    findings: list[Sighting] = field(default_factory=list)
    nextSteps: list[str] = field(default_factory=list)  # command lines, or what to do

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {
            "asked": self.asked,
            "msgId": self.msgId,
            "verdict": self.verdict,
            "words": self.words,
            "findings": [finding.to_dict() for finding in self.findings],
            "nextSteps": self.nextSteps,
        }


class Answer(NamedTuple):
    """The answer to one question.

    Attributes:
        messages: one for each message; a single one if there is none.
        more: messages with the key beyond the limit.
    """

    messages: list[Whereabouts]
    more: int = 0


class _Place(NamedTuple):
    """Why no message begins at a place of the log."""

    verdict: str
    words: str
    next_steps: list[str]


class Explainer:
    """Explains where messages of a store are.

    Args:
        now: ms, to decide what is still due.
        warn: called with reasons why answers may be incomplete.
    """

    def __init__(self, log: CommitLog, now: int, warn: Warn) -> None:
        self._log, self._layout, self._now = log, log.layout, now
        self._warn, self._damaged = warn, False
        self._topics = TopicQueues(log.layout)

    # -- questions -----------------------------------------------------------------------------------------------------

    def by_id(self, message_id: str) -> Answer:
        """The message with this unique id, or this offset id."""
        traced = trace(self._log, message_id, self._now, self._note_damage)
        if traced.events:
            return Answer([self._explain(message_id, traced)])
        elsewhere = query_id(self._layout, message_id, Search(), self._warn)
        if elsewhere:
            return Answer([self._beside_the_log(message_id, elsewhere[0])])
        return Answer([self._explain_id(message_id)])

    def by_key(self, topic: str, key: str, limit: int) -> Answer:
        """The newest messages of a topic with this key, in log order; also those that wait to get into the topic.

        Args:
            limit: how many.
        """
        asked = f"{topic} {key}"
        waiting = [
            message
            for name in _WAITING
            for message in self._keys.query(name, key)
            if parse(message.record.properties).get(REAL_TOPIC) == topic
        ]
        messages = query_key(self._layout, topic, key, Search(scan=not waiting), self._note_damage)
        # copies of one message, such as a half message that was put back, are explained together
        lives = {
            parse(message.record.properties).get(UNIQ_KEY, str(message.physical_offset)): message
            for message in (*waiting, *messages)
            if self._is_in_log(message)
        }
        if inside := sorted(lives.values(), key=lambda message: message.physical_offset):
            chosen = inside[-limit:]
            return Answer([self._of_copy(asked, message) for message in chosen], len(inside) - len(chosen))
        if messages:
            return Answer([self._beside_the_log(asked, messages[-1])])
        return Answer([self._explain_key(asked, topic, key)])

    def by_offset(self, topic: str, queue_id: int, queue_offset: int) -> Answer:
        """The message at this offset of a queue."""
        asked = f"{topic} {queue_id} {queue_offset}"
        queue = self._topics.either(topic, queue_id)
        at: dict[str, Any] = {"topic": topic, "queueId": queue_id, "queueOffset": queue_offset}
        if queue is None:
            return Answer([self._no_queue(asked, topic, queue_id, at)])
        low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        entry = queue.entry(queue_offset) if queue_offset < high else None
        message = self._log.read(entry.physical_offset, crc=False) if entry is not None else None
        if message is not None and entry is not None:
            for inner in message.messages():
                record = inner.record
                if (record.topic.decode("utf-8", "replace"), record.queue_id, record.queue_offset) == (
                    topic, queue_id, queue_offset,
                ):  # fmt: skip
                    return Answer([self._of_copy(asked, inner)])
        if (tiered := self._find_in_tier(topic, queue_id, queue_offset)) is not None:
            return Answer([self._beside_the_log(asked, tiered)])
        if queue_offset >= high:
            return Answer([self._beyond_queue(asked, topic, queue_id, queue_offset, high, at)])
        if entry is None or queue_offset < low or entry.physical_offset < self._log.min_offset:
            text = f"expired: the log begins at {self._log.min_offset}, and the queue at {low}"
            if entry is not None:
                text += f"; the message lay at {entry.physical_offset}, in a file that is gone"
            return Answer([
                Whereabouts(
                    asked=asked, msgId=None, verdict="expired", words=text,
                    findings=[Sighting(place="queue", state="expired", words=text, **at)],
                    nextSteps=[self._layout.command("retention")],
                )
            ])  # fmt: skip
        return Answer([self._entry_without_message(asked, entry.physical_offset, message, at)])

    # -- a message that is there ---------------------------------------------------------------------------------------

    def _of_copy(self, asked: str, message: LocatedRecord) -> Whereabouts:
        record = message.record
        traced = trace(
            self._log,
            id_of(record.store_address, record.store_port, message.physical_offset),
            self._now,
            self._note_damage,
        )
        if traced.events:
            return self._explain(asked, traced)
        return self._beside_the_log(asked, message)  # its own offset id does not lead to it: the record was moved

    def _explain(self, asked: str, traced: Trace) -> Whereabouts:
        findings: list[Sighting] = []
        steps: dict[str, None] = {}
        copies = [event for event in traced.events if event.event not in _LEFT_IN_LOG]
        for event in copies:
            findings += self._of_log(event, steps)
            findings += self._of_queue(event, steps)
            findings += self._of_index(event, steps)
        findings += self._sight_waiting(traced, steps)
        deliverable = [event for event in copies if any(_same(event, taken) for taken in traced.groups)]
        findings += self._of_groups(traced, steps)
        findings += self._unread_copies(copies, deliverable, steps)
        verdict, text = _verdict(traced, findings)
        msg_id = traced.msgId or traced.events[0].offsetMsgId
        if len(copies) > 1:
            steps[self._layout.command("trace", msg_id)] = None
        return Whereabouts(
            asked=asked, msgId=msg_id, verdict=verdict, words=text, findings=findings, nextSteps=list(steps)
        )

    def _of_log(self, event: Event, steps: dict[str, None]) -> Iterator[Sighting]:
        place = self._log.look(event.physicalOffset)
        at = _at(event)
        if isinstance(place, LocatedRecord):
            yield Sighting(
                place="log",
                state="present",
                words=f"{event.event}: {counted(place.record.total_size, 'byte')} at physical offset "
                f"{event.physicalOffset}, in commitlog/{_name(place.file.path)}",
                timestamp=event.time,
                **at,
            )
            if place.record.sys_flag & COMPRESSED:
                try:
                    decompress(place.record.body, place.record.sys_flag)
                except FormatError as err:
                    yield Sighting(place="log", state="body-damaged", words=f"the body does not inflate: {err}", **at)
            return
        yield Sighting(
            place="log",
            state="damaged",
            words=f"the record at physical offset {event.physicalOffset} is damaged ({place.reason}): a start of the "
            "broker that checks it cuts the log there",
            **at,
        )
        steps[self._layout.command("check")] = None

    def _of_queue(self, event: Event, steps: dict[str, None]) -> Iterator[Sighting]:
        queue = self._topics.either(event.topic, event.queueId)
        at = _at(event)
        entry = None
        if queue is not None and event.queueOffset < queue.max_offset:
            entry = queue.entry(event.queueOffset)
        if entry is not None and entry.physical_offset == event.physicalOffset:
            yield Sighting(
                place="queue", state="present", words=f"{event.topic} {event.queueId} offset {event.queueOffset}", **at
            )
            return
        if queue is None:
            state, text = "no-queue", f"{event.topic} has no queue {event.queueId} in this store"
        elif entry is None:
            state, text = "behind", f"{event.topic} {event.queueId} ends at offset {queue.max_offset}, before it"
        else:
            state = "other-message"
            text = (
                f"offset {event.queueOffset} of {event.topic} {event.queueId} points to physical offset "
                f"{entry.physical_offset}, not to this message"
            )
        yield Sighting(place="queue", state=state, words=f"{text}: consumers do not get it", **at)
        if self._layout.aborted or state == "other-message":
            steps[self._layout.command("check")] = None
        else:
            steps[self._layout.command("dispatch", "--dry-run")] = None

    def _of_index(self, event: Event, steps: dict[str, None]) -> Iterator[Sighting]:
        message = self._log.read(event.physicalOffset, crc=False)
        if message is None:
            return
        properties = parse(message.record.properties)
        names = [*split_keys(properties.get(KEYS, "")), *filter(None, [properties.get(UNIQ_KEY)])]
        missing = [name for name in dict.fromkeys(names) if not self._is_indexed(event, name)]
        if not missing:
            return
        at, which = _at(event), ", ".join(missing)
        if not self._layout.conf.flag("messageIndexEnable", True):
            text = f"not under {which}: the broker's settings switch the index off (messageIndexEnable)"
            yield Sighting(place="index", state="off", words=text, **at)
            return
        yield Sighting(
            place="index", state="absent", words=f"not under {which}: a broker does not find it by that", **at
        )
        steps[self._layout.command("rebuild", "index", "--dry-run")] = None

    def _is_indexed(self, event: Event, name: str) -> bool:
        messages = self._keys.query(event.topic, name)
        return any(message.physical_offset == event.physicalOffset for message in messages)

    @cached_property
    def _keys(self) -> KeyReader:
        return KeyReader(self._layout, self._warn)

    def _sight_waiting(self, traced: Trace, steps: dict[str, None]) -> Iterator[Sighting]:
        if not traced.events:
            return
        last = traced.events[-1]
        more: dict[str, Any] = {**_at(last), "group": last.group, "timestamp": last.deliverTimestamp}
        if traced.state in ("waiting for its time", "due, not delivered"):
            detail = (last.detail or "").removesuffix(", not delivered yet")
            kind = "retry" if last.event == "retry-delayed" else "delay"
            text = f"{traced.state}: {detail}"
            if kind == "retry" and last.group:
                text += f", sent back by {last.group}"
            yield Sighting(place="waiting", state=kind, words=text, **more)
            steps[self._layout.command("delay due" if "due" in traced.state else "delay list")] = None
        elif last.event in ("delayed", "retry-delayed"):
            text = (
                "delivered, as the offset of its delay level says, but the log has no delivered copy: cut off, or "
                "damaged, so that nobody gets it"
            )
            yield Sighting(place="waiting", state="delay-gone", words=text, **more)
            steps[self._layout.command("check")] = None
        elif last.topic == TIMER:
            yield self._in_timer(traced, last, more)
            steps[self._layout.command("delay list")] = None
        elif traced.state == "transaction pending":
            text = "half: its producer has neither committed nor rolled it back, so that nobody gets it"
            yield Sighting(place="waiting", state="half", words=text, **more)
            steps[self._layout.command("transaction show", traced.msgId or str(last.queueOffset))] = None
        elif traced.state == "popped, not acked":
            text = f"popped by {last.group} and not acked: invisible to its other consumers until it is due again"
            yield Sighting(place="waiting", state="pop", words=text, **more)
            if last.group:
                steps[self._layout.command("group inflight", last.group)] = None

    def _in_timer(self, traced: Trace, event: Event, more: dict[str, Any]) -> Sighting:
        """Whether a message of the timer still waits there."""
        timers = open_timers(self._log, self._now, self._warn, self._topics)
        for message in timers.pending():
            if message.physicalOffset != event.physicalOffset:
                continue
            if message.recalled:
                text = "recalled: the timer drops it at its time, so that nobody gets it"
                return Sighting(place="waiting", state="recalled", words=text, **more)
            state = "due, not delivered" if message.deliverTimestamp <= self._now else "waiting for its time"
            more = {**more, "timestamp": message.deliverTimestamp}
            return Sighting(place="waiting", state="timer", words=f"{state}: in the timer, for {message.topic}", **more)
        if any(self._recalls(other) for other in traced.events if other.topic == TIMER):
            return Sighting(place="waiting", state="recalled", words="recalled, so that nobody gets it", **more)
        text = "the timer does not have it any more, and the log has no delivered copy: delivered, and that has expired"
        return Sighting(place="waiting", state="timer-gone", words=text, **more)

    # -- who has passed it ---------------------------------------------------------------------------------------------

    def _of_groups(self, traced: Trace, steps: dict[str, None]) -> Iterator[Sighting]:
        consumed = self._consumption(traced.msgId)
        by = self._offsets_written
        for taken in traced.groups:
            at: dict[str, Any] = {
                "topic": taken.topic, "queueId": taken.queueId, "queueOffset": taken.queueOffset, "group": taken.group
            }  # fmt: skip
            if not taken.passed:
                state, text = self._not_yet(taken)
                yield Sighting(place="group", state=state, words=text, **at)
                steps[self._layout.command("group lag", taken.group, taken.topic)] = None
                continue
            time, how = consumed.get(taken.group, (None, None))
            state = _STATES.get(taken.why.partition(":")[0], "passed")
            where = f"{taken.topic} {taken.queueId}"
            text = f"{taken.group} has passed it in {where} (offset {taken.consumerOffset}): {taken.why}"
            if how is not None:
                text = f"{taken.group} has processed it with {how}, as its message trace says"
                state = "consumed"
            elif by is not None:
                text += "; not later than its offsets were written"
            yield Sighting(place="group", state=state, words=text, timestamp=time if how is not None else by, **at)
            if state == "reset":
                steps[self._layout.command("undo", "--dry-run")] = None

    def _not_yet(self, taken: PassedCopy) -> tuple[str, str]:
        groups, topics = groups_of(self._layout, self._warn), topics_of(self._layout, self._warn)
        group = groups.groups.get(taken.group) if groups is not None else None
        topic = topics.topics.get(taken.topic) if topics is not None else None
        ahead = taken.queueOffset - taken.consumerOffset
        text = f"{taken.group} has not come to it: {counted(ahead, 'message')} before it in the queue"
        if ahead == 0:
            text = f"{taken.group} gets it next"
        if group is not None and not group.consume_enable:
            return "group-disabled", f"{text}; consumeEnable=false keeps the group from consuming"
        if topic is not None and not int(topic.perm) & Perm.READ:
            return "not-readable", f"{text}; the topic's permission ({topic.perm}) does not allow reading"
        if topic is not None and taken.queueId >= int(topic.read_queue_nums):
            return "extra-queue", f"{text}; no consumer is given queue {taken.queueId}: the topic has " + counted(
                int(topic.read_queue_nums), "read queue"
            )
        return "not-yet", text

    def _unread_copies(
        self, copies: Sequence[Event], read: Sequence[Event], steps: dict[str, None]
    ) -> Iterator[Sighting]:
        for event in copies:
            if event in read or event.topic in _WAITING or event.event == "dead-letter":
                continue
            text = (
                f"no group has an offset in {event.topic} {event.queueId}: nobody has consumed there, or only "
                "broadcasting consumers, which keep their offsets themselves"
            )
            yield Sighting(place="group", state="none", words=text, **_at(event))
        for event in copies:
            if event.event == "dead-letter":
                group = event.group or event.topic.removeprefix(DLQ_PREFIX)
                steps[self._layout.command("dlq requeue", group, "--dry-run")] = None

    def _consumption(self, message_id: str | None) -> dict[str, tuple[int, str]]:
        """Group → (time, outcome) of its last attempt at the message, from message traces."""
        if message_id is None or self._topics.one(TRACE, 0) is None:
            return {}
        attempts: dict[str, tuple[int, str]] = {}
        for message in self._keys.query(TRACE, message_id):
            for item in parse_sub_after(bytes(message.record.body).decode("utf-8", "replace")):
                outcome = OUTCOMES[item.outcome] if item.outcome < len(OUTCOMES) else str(item.outcome)
                if item.message_id == message_id and item.time >= attempts.get(item.group, (0, ""))[0]:
                    attempts[item.group] = item.time, outcome
        return attempts

    @cached_property
    def _offsets_written(self) -> int | None:
        """When the broker last wrote consumerOffset.json, ms; None where that is not a local file."""
        if config_database(self._layout, "consumerOffset.json") is not None:
            return None
        try:
            return os.stat(self._layout.path("config", "consumerOffset.json")).st_mtime_ns // 1_000_000
        except OSError:
            return None

    # -- a message that is not there -----------------------------------------------------------------------------------

    def _beside_the_log(self, asked: str, message: LocatedRecord) -> Whereabouts:
        """A message that only the tier or a compaction log has."""
        record = message.record
        topic = record.topic.decode("utf-8", "replace")
        compacted = "compaction" in message.file.path
        place, verdict = ("compaction-log", "compacted") if compacted else ("tier", "in-tier")
        what = "the compaction log still has it" if compacted else "tiered storage still has it"
        text = f"expired from the commit log: only {what}"
        return Whereabouts(
            asked=asked,
            msgId=parse(record.properties).get(UNIQ_KEY),
            verdict=verdict,
            words=text,
            findings=[
                Sighting(
                    place=place, state="present", words=text, topic=topic, queueId=record.queue_id,
                    queueOffset=record.queue_offset, timestamp=record.store_timestamp,
                )
            ],
            nextSteps=[self._layout.command("query-offset", topic, str(record.queue_id), str(record.queue_offset))],
        )  # fmt: skip

    def _find_in_tier(self, topic: str, queue_id: int, queue_offset: int) -> LocatedRecord | None:
        from rmqtool.services.lookup.tiered import only_tiered

        tiered = only_tiered(self._layout, lambda *queue: queue == (topic, queue_id))
        if tiered is None:
            return None
        items = tiered.walk_queue(topic, queue_id, range(queue_offset, queue_offset + 1))
        return next((item for item in items if isinstance(item, LocatedRecord)), None)

    def _is_in_log(self, message: LocatedRecord) -> bool:
        return any(message.file.path == file.path for file in self._log.segments)

    def _explain_id(self, message_id: str) -> Whereabouts:
        topics = topics_with_key(self._layout, message_id) if message_id else []
        if topics:
            return Whereabouts(
                asked=message_id,
                msgId=None,
                verdict="is-key",
                words=f"it is no id, but a key of messages in {', '.join(topics)}",
                nextSteps=[self._layout.command("why", topic, message_id) for topic in topics],
            )
        at = parse_offset_id(message_id) if is_id(message_id) else None
        if at is not None and 0 <= at.port <= 0xFFFF and at.physical_offset >= 0:
            place = self._explain_place(at.physical_offset, self._other_broker(at))
            finding = Sighting(place="log", state=place.verdict, words=place.words, physicalOffset=at.physical_offset)
            return Whereabouts(
                asked=message_id, msgId=None, verdict=place.verdict, words=place.words, findings=[finding],
                nextSteps=place.next_steps,
            )  # fmt: skip
        return self._explain_unique_id(message_id)

    def _explain_unique_id(self, message_id: str) -> Whereabouts:
        first, last = self._log.first(), self._log.last()
        near = last.record.store_timestamp if last is not None else self._now
        findings = []
        verdict, text = "not-found", "no message of the log has this id"
        try:
            stated = parse_unique_id(message_id, near)
        except FormatError:
            stated = None
        if stated is not None and stated.timestamp is not None:
            month = "" if stated.kind == "grpc" else ", if that was within a month of the log's end"
            findings.append(
                Sighting(
                    place="id", state=stated.kind, timestamp=stated.timestamp,
                    words=f"made by a producer at {stated.address}, process {stated.process_id}{month}",
                )
            )  # fmt: skip
            if first is not None and stated.timestamp < first.record.store_timestamp:
                verdict = "expired"
                text = "the id is older than the first message of the log: expired, if it was stored here"
            elif last is not None and stated.timestamp > last.record.store_timestamp:
                verdict = "newer"
                text = "the id is newer than the last message of the log: stored later, or by another broker"
            else:
                text += ": never stored here, or removed since"
        findings += self._damage_found()
        return Whereabouts(
            asked=message_id, msgId=None, verdict=verdict, words=text, findings=findings,
            nextSteps=self._after_absence(damaged=self._damaged),
        )  # fmt: skip

    def _explain_key(self, asked: str, topic: str, key: str) -> Whereabouts:
        if topic not in topics_in(self._layout):
            text = f"the store knows no topic {topic}: no message of it was ever stored here, or it was deleted"
            return Whereabouts(
                asked=asked, msgId=None, verdict="unknown-topic", words=text,
                nextSteps=[self._layout.command("topic list")],
            )  # fmt: skip
        files = [file for file in open_index(self._layout) if not isinstance(file, BadIndex)]
        gone = [at for at in physical_offsets(files, topic, key, limit=1 << 62) if at < self._log.min_offset]
        if gone:
            text = (
                f"expired: the index has {counted(len(gone), 'entry', 'entries')} for it, the newest at physical "
                f"offset {max(gone)}, and the log begins at {self._log.min_offset}"
            )
            finding = Sighting(place="index", state="expired", words=text, topic=topic, physicalOffset=max(gone))
            return Whereabouts(
                asked=asked, msgId=None, verdict="expired", words=text, findings=[finding],
                nextSteps=[self._layout.command("retention")],
            )  # fmt: skip
        text = f"no message of {topic} in the log has this key: never stored here, or removed since"
        if self._log.min_offset > 0:
            text += f"; what was stored before physical offset {self._log.min_offset} has expired"
        return Whereabouts(
            asked=asked, msgId=None, verdict="not-found", words=text, findings=list(self._damage_found()),
            nextSteps=self._after_absence(damaged=self._damaged),
        )  # fmt: skip

    def _no_queue(self, asked: str, topic: str, queue_id: int, at: dict[str, Any]) -> Whereabouts:
        if topic in topics_in(self._layout):
            verdict, text = "no-queue", f"{topic} has no queue {queue_id} in this store: nothing was stored in it yet"
            step = self._layout.command("topic show", topic)
        else:
            verdict, text = "unknown-topic", f"the store knows no topic {topic}"
            step = self._layout.command("topic list")
        behind = self._in_log_alone(**at)
        if behind is not None:
            return self._of_copy(asked, behind)
        finding = Sighting(place="queue", state=verdict, words=text, **at)
        return Whereabouts(asked=asked, msgId=None, verdict=verdict, words=text, findings=[finding], nextSteps=[step])

    def _beyond_queue(
        self, asked: str, topic: str, queue_id: int, queue_offset: int, high: int, at: dict[str, Any]
    ) -> Whereabouts:
        behind = self._in_log_alone(**at)
        if behind is not None:
            return self._of_copy(asked, behind)
        text = f"{topic} {queue_id} ends at offset {high}, and the log has no message behind it: not stored yet"
        return Whereabouts(
            asked=asked, msgId=None, verdict="not-yet", words=text,
            findings=[Sighting(place="queue", state="not-yet", words=text, **at), *self._damage_found()],
            nextSteps=self._after_absence(damaged=self._damaged),
        )  # fmt: skip

    def _in_log_alone(self, topic: str, queueId: int, queueOffset: int) -> LocatedRecord | None:
        """A message that its queue lacks. The log is read from the last message of the queue on."""
        queue = self._topics.either(topic, queueId)
        start = None
        if queue is not None and queue.max_offset:
            last = queue.entry(queue.max_offset - 1)
            start = last.physical_offset if last is not None else None
        for item in self._log.walk(start, crc=False):
            if isinstance(item, Damage):
                self._note_damage(f"{item.path}: byte {item.at}: {item.reason}: {item.length} bytes skipped")
                continue
            for message in item.messages():
                record = message.record
                if (record.queue_id, record.queue_offset) == (queueId, queueOffset) and record.topic == topic.encode(
                    "utf-8", "surrogateescape"
                ):
                    return message
        return None

    def _entry_without_message(
        self, asked: str, physical_offset: int, there: LocatedRecord | None, at: dict[str, Any]
    ) -> Whereabouts:
        if there is not None:
            record = there.record
            text = (
                f"overwritten: its queue points to physical offset {physical_offset}, where now message "
                f"{record.queue_offset} of {record.topic.decode('utf-8', 'replace')} {record.queue_id} is"
            )
            place = _Place("overwritten", text, [self._layout.command("check")])
        else:
            place = self._explain_place(physical_offset, None)
        finding = Sighting(place="log", state=place.verdict, words=place.words, physicalOffset=physical_offset, **at)
        return Whereabouts(
            asked=asked, msgId=None, verdict=place.verdict, words=place.words, findings=[finding],
            nextSteps=place.next_steps,
        )  # fmt: skip

    def _explain_place(self, physical_offset: int, other_broker: str | None) -> _Place:
        """Why no message begins at a place of the log.

        Args:
            other_broker: the address in the id, if this store was written by another one.
        """
        log, layout = self._log, self._layout
        if other_broker is not None:
            return _Place(
                "other-broker",
                f"the id is of a message that broker {other_broker} stored; messages here were stored by "
                f"{', '.join(self._hosts)}",
                ["Look in the store of that broker."],
            )
        _end, _time = log.end()
        end = max(_end, log.written_end)
        if physical_offset < max(log.min_offset, 0):
            text = f"expired: the log begins at physical offset {log.min_offset}, after it"
            return _Place("expired", text, [layout.command("retention")])
        if physical_offset >= end:
            text = f"the log ends at physical offset {end}, before it: cut off, or lost before it was written to disk"
            return _Place("beyond-end", text, self._after_absence(damaged=False))
        covering = self._find_covering(physical_offset)
        window = f"{max(physical_offset - 64, 0)}:{physical_offset + 128}"
        if covering is None or isinstance(covering, Damage):
            reason = "" if covering is None else f": {covering.reason}"
            text = f"physical offset {physical_offset} lies in a damaged range of the log{reason}"
            hexdump = layout.command("commitlog hexdump", "--offset", window)
            return _Place("damaged", text, [hexdump, layout.command("check")])
        record = covering.record
        text = (
            f"overwritten: physical offset {physical_offset} is inside message {record.queue_offset} of "
            f"{record.topic.decode('utf-8', 'replace')} {record.queue_id}, which begins at {covering.physical_offset}: "
            "the log was cut and written again, or the id is of another store"
        )
        return _Place("overwritten", text, [layout.command("commitlog hexdump", "--offset", window)])

    def _recalls(self, event: Event) -> bool:
        """Whether a message of the timer takes another one with the same unique id out of it."""
        message = self._log.read(event.physicalOffset, crc=False)
        return message is not None and DELETE_KEY in parse(message.record.properties)

    def _find_covering(self, physical_offset: int) -> LocatedRecord | Damage | None:
        """The record or damage that has a physical offset inside."""
        low = max(physical_offset - _NEAR, self._log.min_offset, 0)
        for item in self._log.walk(low, physical_offset + 1, crc=False):
            length = item.length if isinstance(item, Damage) else item.record.total_size
            if item.physical_offset <= physical_offset < item.physical_offset + length:
                return item
        place = self._log.look(physical_offset, crc=False)
        return place if isinstance(place, Damage) and place.ending is not Ending.CLEAN else None

    @cached_property
    def _hosts(self) -> list[str]:
        """The addresses under which the first and the last message were stored."""
        ends = [message for message in (self._log.first(), self._log.last()) if message is not None]
        return list(dict.fromkeys(f"{address_text(end.record.store_address)}:{end.record.store_port}" for end in ends))

    def _other_broker(self, at: OffsetId) -> str | None:
        host = f"{at.address}:{at.port}"
        return host if self._hosts and host not in self._hosts else None

    def _note_damage(self, text: str) -> None:
        self._damaged = True
        self._warn(text)

    def _damage_found(self) -> Iterable[Sighting]:
        if self._damaged:
            text = "parts of the log are damaged and could not be searched: it may have been there"
            yield Sighting(place="log", state="damaged", words=text)

    def _after_absence(self, *, damaged: bool) -> list[str]:
        steps = [self._layout.command("check")] if damaged else []
        if os.path.isdir(f"{self._layout.root}.rmqtool"):
            steps.append(self._layout.command("undo", "--dry-run"))
        steps.append("Look in the stores of the topic's other brokers, and at what the producer's send returned.")
        return steps


_STATES = {FILTERED: "filtered", RESET: "reset", ACKED: "acked", GIVEN_BACK: "given-back"}


def _verdict(traced: Trace, findings: Sequence[Sighting]) -> tuple[str, str]:
    """(verdict, sentence) of a message that is in the log."""
    states = {(finding.place, finding.state) for finding in findings}
    waiting = next((finding for finding in findings if finding.place == "waiting"), None)
    if ("log", "damaged") in states:
        return "damaged", "a copy of it in the log is damaged"
    if unqueued := next((f for f in findings if f.place == "queue" and f.state != "present"), None):
        return "not-in-queue", f"in the log, not in its queue: {unqueued.words}"
    if waiting is not None:
        return waiting.state if waiting.state in _ENDED else "waiting", waiting.words
    if traced.state in ("rolled-back", "given-up", "dead-letter"):
        return traced.state, _ENDS[traced.state]
    groups = [finding for finding in findings if finding.place == "group" and finding.group is not None]
    late = [finding.group for finding in groups if finding.state in _NOT_PASSED]
    if late:
        names = ", ".join(dict.fromkeys(filter(None, late)))
        return "not-consumed", f"stored and in its queue; not passed yet by {names}"
    if groups:
        return "passed", "stored, in its queue, and passed by every group that has an offset there"
    return "stored", "stored and in its queue; no group has an offset there"


_ENDED = ("recalled", "timer-gone", "delay-gone")  # what has ended without a copy in its topic
_NOT_PASSED = ("not-yet", "group-disabled", "not-readable", "extra-queue")
_ENDS = {
    "rolled-back": "rolled back: its producer took the transaction back, so that nobody gets it",
    "given-up": "given up: its producer did not answer the checks of its transaction, so that nobody gets it",
    "dead-letter": "a dead letter: its group failed to consume it as often as it may",
}


def _at(event: Event) -> dict[str, Any]:
    return {
        "topic": event.topic,
        "queueId": event.queueId,
        "queueOffset": event.queueOffset,
        "physicalOffset": event.physicalOffset,
    }


def _same(event: Event, taken: PassedCopy) -> bool:
    return (event.topic, event.queueId, event.queueOffset) == (taken.topic, taken.queueId, taken.queueOffset)


def _name(path: str) -> str:
    name = os.path.basename(path)
    return name if offset_name(name) is not None else path
