"""One reading of all findings of a store: what a broker's next start would do, what to do first, and what causes what.

Findings come by the thousand from one damage. Here they are counted by code, codes that follow from another are put
under it, and their steps are merged into one way that can be gone from top to bottom.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from rmqtool.store.check.advice.advice import LOG_BACK, MEND_FILES, STOP_BROKER, Situation
from rmqtool.store.check.advice.steps import NOTHING, Step
from rmqtool.store.check.codes.code import ERROR, SEVERITIES, WARNING
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.reading.causes import causes_of
from rmqtool.store.layout.mending import FILES
from rmqtool.words import command_line, counted

# what keeps a broker from starting though it would load log and queues, or may do so
STOPS_BROKERS = {"bcq-form", "file-unreadable", "rcq-unreadable", "timer-wheel-size"}
PLACES = 3  # of each code that a reading tells one by one
_FIRST = {step for steps in (LOG_BACK, STOP_BROKER) for step in steps}
_STARTS_MEND = {"abort-present"}
_BY_COMMAND = ("undo", "salvage", "recover", "rebuild")
_PARTS = ("consumequeue", "index", "checkpoint", "timer", "compaction", "config")


@dataclass(slots=True)
class CodeFindings:
    """All findings of one code.

    Attributes:
        severity: the worst of them.
        count: places, messages or entries they stand for.
        places: the first of them, as many as were asked for.
    """

    code: str
    severity: str
    count: int = 0
    places: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, and what follows from it.

    Attributes:
        root: the code that was there first.
        follows: codes that would not be there without it.
    """

    root: CodeFindings
    follows: tuple[CodeFindings, ...] = ()

    @property
    def all(self) -> tuple[CodeFindings, ...]:
        """The code and those that follow from it."""
        return self.root, *self.follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a report of ``check`` comes to.

    Attributes:
        severity: the worst of all findings; None where nothing was found.
        start: whether a broker may be started as the store is.
        broker: what a broker would do now, a sentence or more.
        lost: what would be lost by that, a sentence.
        steps: what to do, in this order.
        then: what comes after that, a sentence.
        causes: the worst first.
    """

    severity: str | None
    start: bool
    broker: str
    lost: str
    steps: tuple[Step, ...]
    then: str
    causes: tuple[Cause, ...]


class Reader:
    """Takes the findings of one check as they come; memory grows with codes, not with findings.

    Args:
        places: of each code that are listed one by one.
    """

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._by_code: dict[str, CodeFindings] = {}
        self._steps: dict[Step, str] = {}

    def take(self, finding: Finding) -> None:
        """One more finding."""
        findings = self._by_code.setdefault(finding.code, CodeFindings(finding.code, finding.severity))
        findings.severity = min(findings.severity, finding.severity, key=SEVERITIES.index)
        findings.count += finding.count
        if len(findings.places) < self._places:
            findings.places.append(finding)
        for step in finding.steps:
            self._steps.setdefault(step, finding.code)

    def reading(self, situation: Situation) -> Reading:
        """What they come to.

        Args:
            situation: as the check has left it.
        """
        worst = min((findings.severity for findings in self._by_code.values()), key=SEVERITIES.index, default=None)
        causes = tuple(
            Cause(self._by_code[root], tuple(self._by_code[code] for code in codes))
            for root, codes in causes_of({code: findings.severity for code, findings in self._by_code.items()}).items()
        )
        # what follows from a stop that was not clean is what the next start is for
        stays = [findings.severity for cause in causes if cause.root.code not in _STARTS_MEND for findings in cause.all]
        errors = {findings.code for findings in self._by_code.values() if findings.severity == ERROR}
        broker, lost, start = _verdict(situation, min(stays, key=SEVERITIES.index, default=worst and WARNING), errors)
        follow = {findings.code for cause in causes for findings in cause.follows}
        # what a person does by hand mends what was there first, and with it what follows
        steps = merge_steps((step, code) for step, code in self._steps.items() if step.command or code not in follow)
        mending = tuple(step for step in steps if step not in MEND_FILES)
        if situation.refused and mending:
            steps = mending  # which are said file by file
        return Reading(
            severity=worst,
            start=start,
            broker=broker,
            lost=lost,
            steps=steps,
            then=_next_step(situation, steps),
            causes=causes,
        )


def merge_steps(steps: Iterable[tuple[Step, str]]) -> tuple[Step, ...]:
    """Steps of many findings as one way: the safest first, each once.

    Args:
        steps: each with the code that asks for it.
    """
    ranked = sorted(
        ((_rank(step, code), number, step) for number, (step, code) in enumerate(steps) if not _only_looks(step)),
        key=lambda one: one[:2],
    )
    way: list[Step] = []
    for _rank_of, _number, step in ranked:
        if step not in NOTHING and not (step.command and _again(step, way)):
            way.append(step)
    # beside something to do, "nothing needs to be done" is no step
    return tuple(step for step in way if len(way) == 1 or step.command or not step.does.startswith(NOTHING[0].does))


def _only_looks(step: Step) -> bool:
    """Whether a command finds messages in spite of a damage, and mends nothing."""
    return step.command[:1] == ("rmqtool",) and step.command[1] not in _BY_COMMAND


def _again(step: Step, way: Sequence[Step]) -> bool:
    """Whether a command is there already; of two ways to call recover, the one that tells of a loss comes first."""
    return any(step.command[:4] == other.command[:4] or _recovers(step, other) for other in way)


def _recovers(step: Step, other: Step) -> bool:
    return step.command[1:2] == other.command[1:2] == ("recover",)


def _rank(step: Step, code: str) -> tuple[int, int, int]:
    if step in _FIRST:
        return 0, 0, 0
    if step in MEND_FILES:
        return 1, 1, 0  # each of the files is reported before
    if not step.command and code == "file-foreign":
        return 1, -1, 0  # a directory that is moved away; no command goes on where one is
    if not step.command:
        return (1, 0, 0) if code.startswith("file-") or code == "log-position" else (4, 0, 0)
    if step.command == FILES:
        return 1, 0, 0
    verb = step.command[1]
    if verb == "rebuild":
        return 2, _BY_COMMAND.index(verb), _PARTS.index(step.command[3]) if step.command[3] in _PARTS else 0
    return 2, _BY_COMMAND.index(verb), 0 if step.destroys else 1


def _verdict(situation: Situation, worst: str | None, errors: Collection[str]) -> tuple[str, str, bool]:
    """What a broker does now, what is lost by it, and whether it may be started.

    Args:
        errors: codes of what is an error.
    """
    if situation.in_use:
        return (
            "A process holds the store's lock. What it writes during the check may look like damage here.",
            "",
            False,
        )
    if situation.log_absent:
        return (
            "There are no messages in the commit log. A broker that is started now removes all queues.",
            "Every queue; and if the log is gone for good, every message.",
            False,
        )
    if situation.refused:
        return "A broker refuses to load this store.", "Nothing, as long as it does not start.", False
    if situation.unfit:
        broker = "A broker with the configuration that was given does not start on this store (conf-size)."
        return broker, "Nothing, as long as it does not start.", False
    if situation.cuts:
        cut = counted(situation.cuts, "intact message")
        broker = f"A broker's next start ends the log at the first damage, and cuts off {cut} after it."
        return broker, f"{cut}, unless {'it is' if situation.cuts == 1 else 'they are'} copied first.", False
    if situation.misnamed:
        broker = "A broker gives consumers other messages than theirs: files of the log have other files' names."
        return broker, "Nothing, as long as it does not start.", False
    if named := sorted(STOPS_BROKERS & set(errors)):
        return f"A broker does not start on this store ({', '.join(named)}).", "Nothing, as long as it does not.", False
    checks = "checks the end of the log, brings queues and index up to it, and " if situation.aborted else ""
    starts = f"A broker starts on this store: it {checks}cuts off no intact message."
    if worst == ERROR:
        return f"{starts} It does not repair the errors below.", _what_is_damaged(situation, errors), True
    if worst == WARNING:
        return starts, "No intact message.", True
    return starts, "", True


def _next_step(situation: Situation, steps: tuple[Step, ...]) -> str:
    """What comes when all steps were gone."""
    verbs = [step.command[1] for step in steps if step.command and step.command != FILES]
    if situation.refused and steps and steps[-1] not in MEND_FILES:
        return (
            f"Check again. Until then only {command_line('salvage')} works on this store."
            if not verbs
            else "Check again."
        )
    if situation.in_use or situation.log_absent or situation.refused or not verbs:
        return ""
    if situation.cuts:
        return "Start the broker on NEWSTORE. Keep this store until you have seen that nothing is missing there."
    if verbs == ["salvage"]:
        return "Check NEWSTORE, and start the broker on it."
    return "Check again, and start the broker."


def _what_is_damaged(situation: Situation, errors: Collection[str]) -> str:
    if "file-gap" in situation.log_codes:
        return "The messages of the missing file, unless it is put back."
    if situation.log_codes & {"log-crc", "log-damage", "log-position", "log-blank-missing"}:
        return "The damaged messages. A start after a crash may cut off everything that follows the damage."
    if all(code.startswith("config-") for code in errors):
        return "No message; settings may be those of an earlier time."
    return "No message in the log, but consumers or lookups do not get all of them."


def severities_of(causes: Iterable[Cause]) -> dict[str, int]:
    """Findings of each severity that occurs, the worst first."""
    counts = dict.fromkeys(SEVERITIES, 0)
    for cause in causes:
        for findings in cause.all:
            counts[findings.severity] += findings.count
    return {severity: count for severity, count in counts.items() if count}
