"""The findings of ``check``, and a collector that limits the number of similar ones."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.advice.steps import Step, sentences
from rmqtool.store.check.codes.all import CODES

DETAILS = 20  # findings listed individually per code, file and queue
MOST = 10_000  # and per code; a store may have millions of queues or wrong offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault, or ``count`` faults of the same kind.

    Attributes:
        code: key of :data:`rmqtool.store.check.codes.all.CODES`.
        severity: ``error``, ``warning`` or ``info``.
        file: relative to the store, or absolute if it is outside.
        offset: position in the file; None if it concerns the whole file or several places.
        count: number of places, messages or entries; the sum over all findings of a code is exact.
        consequence: the effect on messages and the broker.
        fix: what to do about it in this store, as text.
        steps: the same as data, the safest first.
    """

    code: str
    severity: str
    file: str
    offset: int | None = None
    topic: str | None = None
    queueId: int | None = None
    queueOffset: int | None = None
    count: int = 1
    expected: str | None = None
    actual: str | None = None
    consequence: str = ""
    fix: str = ""
    steps: tuple[Step, ...] = ()
    topicKind: str | None = None  # normal, retry, dlq or system, plus attributes from the table of topics

    def to_dict(self) -> dict[str, Any]:
        """The fields for tables of findings: all but the steps, which are in :attr:`fix` as text."""
        return {name: getattr(self, name) for name in _PLAIN_FIELDS}


FINDING_FIELDS = tuple(Finding.__dataclass_fields__)
_PLAIN_FIELDS = tuple(name for name in FINDING_FIELDS if name != "steps")
_Group = tuple[str, str, str, str | None, int | None]


class FindingCollector:
    """Collects findings and returns them in order, at most :data:`DETAILS` of a group individually.

    A group has the same code, severity, file, topic and queue. Further findings of a group are counted, and become one
    last finding. Of one code at most :data:`MOST` are listed; further ones are counted per file.

    Args:
        details: number of findings of a group listed individually.

    Attributes:
        topic_kind: returns what a topic is for, as text.
        situation: the facts by which :meth:`drain` adapts advice to this store; so nothing may be drained before they
            are settled.
    """

    def __init__(self, details: int = DETAILS, situation: Situation | None = None) -> None:
        self.situation = situation or Situation()
        self.topic_kind: Callable[[str], str | None] = lambda _topic: None
        self._details = details
        self._listed_of_group: Counter[_Group] = Counter()
        self._listed: Counter[str] = Counter()  # by code
        self._more: Counter[_Group] = Counter()
        self._pending: list[Finding] = []

    def add(self, code: str, file: str, **about: Any) -> None:
        """Add a finding; fields not given are taken from the code."""
        kind = CODES[code]
        if self._listed[code] >= MOST:
            self._more[code, about.get("severity", kind.severity), file, None, None] += about.get("count", 1)
            return
        about.setdefault("severity", kind.severity)
        about.setdefault("consequence", kind.broker)
        about.setdefault("steps", kind.steps)
        for name in ("expected", "actual"):
            if about.get(name) is not None:
                about[name] = str(about[name])
        self._note(code)
        if about.get("topic") is not None:
            about.setdefault("topicKind", self.topic_kind(about["topic"]))
        finding = Finding(code=code, file=file, **about)
        group = (code, finding.severity, file, finding.topic, finding.queueId)
        if self._listed_of_group[group] < self._details:
            self._listed_of_group[group] += 1
            self._listed[code] += 1
            self._pending.append(finding)
        else:
            self._more[group] += finding.count

    def _note(self, code: str) -> None:
        if code.startswith("log-"):
            self.situation.log_codes.add(code)

    def first(self) -> None:
        """Move the finding added last to the front."""
        self._pending.insert(0, self._pending.pop())

    def many(self, code: str, file: str, places: int, detail: Callable[[int], dict[str, Any]], **about: Any) -> None:
        """Add ``places`` findings of one group; ``detail(i)`` returns the fields of one, for those listed."""
        if not places:
            return
        kind = CODES[code]
        severity = about.setdefault("severity", kind.severity)
        if self._listed[code] >= MOST:
            self._more[code, severity, file, None, None] += places
            return
        self._note(code)
        group = (code, severity, file, about.get("topic"), about.get("queueId"))
        listed = min(places, max(self._details - self._listed_of_group[group], 0))
        for i in range(listed):
            self.add(code, file, **about, **detail(i))
        if places > listed:
            self._more[group] += places - listed

    def drain(self) -> Iterator[Finding]:
        """The findings since the last call."""
        pending, self._pending = self._pending, []
        yield from map(self._advise, pending)

    def _advise(self, finding: Finding) -> Finding:
        steps = self.situation.advise(finding.code, finding.steps)
        return replace(finding, steps=steps, fix=sentences(steps))

    def rest(self) -> Iterator[Finding]:
        """The remaining findings: one for each group that was too large to be listed individually."""
        yield from self.drain()
        for (code, severity, file, topic, queue_id), count in self._more.items():
            kind = CODES[code]
            yield self._advise(
                Finding(
                    code=code,
                    severity=severity,
                    file=file,
                    topic=topic,
                    queueId=queue_id,
                    count=count,
                    topicKind=self.topic_kind(topic) if topic is not None else None,
                    actual=f"{count} more like those before",
                    consequence=kind.broker,
                    steps=kind.steps,
                )
            )
        self._more.clear()
