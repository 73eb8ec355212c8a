"""What ``check`` reports, and the collector that keeps floods of one kind apart from the rest."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.advice.steps import Step, sentences
from rmqtool.store.check.codes.all import CODES

DETAILS = 20  # findings of one code, file and queue that are listed one by one
MOST = 10_000  # and of one code; a store may have millions of queues, or of offsets that lead nowhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be, or that stands for ``count`` alike.

    Attributes:
        code: key of :data:`rmqtool.store.check.codes.all.CODES`.
        severity: ``error``, ``warning`` or ``info``.
        file: relative to the store, or absolute where it lies outside.
        offset: byte in the file; None where the file as a whole is meant, or several places.
        count: how many places, messages or entries this stands for; the sum over all findings of a code is exact.
        consequence: what it does to messages and the broker.
        fix: what to do about it in this store, in words.
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
    topicKind: str | None = None  # normal, retry, dlq or system, and what the table of topics says beside

    def to_dict(self) -> dict[str, Any]:
        """As tables of findings have it: every field but the steps, which :attr:`fix` tells in words."""
        return {name: getattr(self, name) for name in _PLAIN_FIELDS}


FINDING_FIELDS = tuple(Finding.__dataclass_fields__)
_PLAIN_FIELDS = tuple(name for name in FINDING_FIELDS if name != "steps")
_Group = tuple[str, str, str, str | None, int | None]


class Collector:
    """Takes findings from the checks; hands them on in order, at most :data:`DETAILS` of a group one by one.

    A group is a code, severity, file, topic and queue. What comes beyond is counted, and summed up in one last finding.
    Of one code at most :data:`MOST` are listed, and what comes beyond is summed up by file.

    Args:
        details: findings of a group that are listed one by one.

    Attributes:
        topic_kind: tells what a topic is for, in words.
        situation: by which :meth:`drain` turns what a code advises into what is right in this store; so nothing may be
            drained before that is settled.
    """

    def __init__(self, details: int = DETAILS, situation: Situation | None = None) -> None:
        self.situation = situation or Situation()
        self.topic_kind: Callable[[str], str | None] = lambda _topic: None
        self._details = details
        self._told: Counter[_Group] = Counter()
        self._listed: Counter[str] = Counter()  # by code
        self._more: Counter[_Group] = Counter()
        self._waiting: list[Finding] = []

    def add(self, code: str, file: str, **about: Any) -> None:
        """One finding; what ``about`` leaves out comes from the code."""
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
        if self._told[group] < self._details:
            self._told[group] += 1
            self._listed[code] += 1
            self._waiting.append(finding)
        else:
            self._more[group] += finding.count

    def _note(self, code: str) -> None:
        if code.startswith("log-"):
            self.situation.log_codes.add(code)

    def first(self) -> None:
        """Report what was added last before all else."""
        self._waiting.insert(0, self._waiting.pop())

    def many(self, code: str, file: str, places: int, detail: Callable[[int], dict[str, Any]], **about: Any) -> None:
        """``places`` findings of one group; ``detail(i)`` says what is particular to one, and is asked for few only."""
        if not places:
            return
        kind = CODES[code]
        severity = about.setdefault("severity", kind.severity)
        if self._listed[code] >= MOST:
            self._more[code, severity, file, None, None] += places
            return
        self._note(code)
        group = (code, severity, file, about.get("topic"), about.get("queueId"))
        listed = min(places, max(self._details - self._told[group], 0))
        for i in range(listed):
            self.add(code, file, **about, **detail(i))
        if places > listed:
            self._more[group] += places - listed

    def drain(self) -> Iterator[Finding]:
        """What has come since the last call."""
        waiting, self._waiting = self._waiting, []
        yield from map(self._advise, waiting)

    def _advise(self, finding: Finding) -> Finding:
        steps = self.situation.advise(finding.code, finding.steps)
        return replace(finding, steps=steps, fix=sentences(steps))

    def rest(self) -> Iterator[Finding]:
        """One finding for each group that was too large to be listed one by one."""
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
