"""Interpret all findings of a store together: what a broker's next start would do, what to do, and what causes what.

One damage can cause thousands of findings. Here they are counted by code, codes that follow from another are listed
under it, and their steps are merged into one list to work through.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rmqtool.store.check.advice.advice import LOG_BACK, MEND_FILES, STOP_BROKER, Situation
from rmqtool.store.check.advice.steps import NOTHING, Step
from rmqtool.store.check.codes.code import ERROR, SEVERITIES, WARNING
from rmqtool.store.check.codes.tiered import DO_NOT_START, HARMS_TIER, METADATA_AGAIN
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.reading.causes import causes_of
from rmqtool.store.layout.mending import FILES
from rmqtool.words import command_line, counted

# codes that keep, or may keep, a broker from starting although it would load log and queues
STOPS_BROKERS = {"bcq-form", "file-unreadable", "rcq-unreadable", "timer-wheel-size"}
PLACES = 3  # findings listed individually per code
_FIRST = {step for steps in (LOG_BACK, STOP_BROKER) for step in steps}
_STARTS_MEND = {"abort-present"}
_BY_COMMAND = ("undo", "salvage", "recover", "rebuild")
_PARTS = ("consumequeue", "index", "checkpoint", "timer", "compaction", "config")


@dataclass(slots=True)
class CodeFindings:
    """All findings of one code.

    Attributes:
        severity: the worst of them.
        count: number of places, messages or entries.
        places: the first findings, as many as were asked for.
    """

    code: str
    severity: str
    count: int = 0
    places: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, and what follows from it.

    Attributes:
        root: the code of the cause.
        follows: codes that would not occur without it.
    """

    root: CodeFindings
    follows: tuple[CodeFindings, ...] = ()

    @property
    def all(self) -> tuple[CodeFindings, ...]:
        """The root and the codes that follow from it."""
        return self.root, *self.follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpretation:
    """The interpretation of a report of ``check``.

    Attributes:
        severity: the worst of all findings; None without findings.
        start: whether it is safe to start a broker on the store.
        broker: what a broker would do now, in one or more sentences.
        lost: what would be lost by that, in a sentence.
        steps: what to do, in order.
        then: what to do after that, in a sentence.
        causes: root causes, the worst first.
    """

    severity: str | None
    start: bool
    broker: str
    lost: str
    steps: tuple[Step, ...]
    then: str
    causes: tuple[Cause, ...]


class Interpreter:
    """Collects the findings of one check; memory use depends on the number of codes, not of findings.

    Args:
        places: number of findings listed individually per code.
    """

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._by_code: dict[str, CodeFindings] = {}
        self._steps: dict[Step, str] = {}

    def take(self, finding: Finding) -> None:
        """Add a finding."""
        findings = self._by_code.setdefault(finding.code, CodeFindings(finding.code, finding.severity))
        findings.severity = min(findings.severity, finding.severity, key=SEVERITIES.index)
        findings.count += finding.count
        if len(findings.places) < self._places:
            findings.places.append(finding)
        for step in finding.steps:
            self._steps.setdefault(step, finding.code)

    def reading(self, situation: Situation) -> Interpretation:
        """Interpret the findings.

        Args:
            situation: the facts after the check.
        """
        worst = min((findings.severity for findings in self._by_code.values()), key=SEVERITIES.index, default=None)
        causes = tuple(
            Cause(self._by_code[root], tuple(self._by_code[code] for code in codes))
            for root, codes in causes_of({code: findings.severity for code, findings in self._by_code.items()}).items()
        )
        # the consequences of an unclean stop are repaired by the next start
        stays = [findings.severity for cause in causes if cause.root.code not in _STARTS_MEND for findings in cause.all]
        errors = {findings.code: findings.count for findings in self._by_code.values() if findings.severity == ERROR}
        broker, lost, start = _verdict(situation, min(stays, key=SEVERITIES.index, default=worst and WARNING), errors)
        follow = {findings.code for cause in causes for findings in cause.follows}
        # a manual step repairs the root cause, and with it what follows
        steps = merge_steps((step, code) for step, code in self._steps.items() if step.command or code not in follow)
        mending = tuple(step for step in steps if step not in MEND_FILES)
        if situation.refused and mending:
            steps = mending  # those for each file
        return Interpretation(
            severity=worst,
            start=start,
            broker=broker,
            lost=lost,
            steps=steps,
            then=_next_step(situation, steps),
            causes=causes,
        )


def merge_steps(steps: Iterable[tuple[Step, str]]) -> tuple[Step, ...]:
    """Merge the steps of many findings into one list: the safest first, without duplicates.

    Args:
        steps: each with the code that needs it.
    """
    ranked = sorted(
        ((_rank(step, code), number, step) for number, (step, code) in enumerate(steps) if not _only_looks(step)),
        key=lambda item: item[:2],
    )
    merged: list[Step] = []
    for _rank_of, _number, step in ranked:
        if step not in NOTHING and not (step.command and _is_listed(step, merged)):
            merged.append(step)
    # among other steps, "nothing to do" is omitted
    return tuple(
        step for step in merged if len(merged) == 1 or step.command or not step.does.startswith(NOTHING[0].does)
    )


def _only_looks(step: Step) -> bool:
    """Whether a command only finds messages in spite of a damage, and repairs nothing."""
    return step.command[:1] == ("rmqtool",) and step.command[1] not in _BY_COMMAND


def _is_listed(step: Step, merged: Sequence[Step]) -> bool:
    """Whether a command is in the list already; of two ways to call recover, the one with a loss comes first."""
    return any(step.command[:4] == other.command[:4] or _recovers(step, other) for other in merged)


def _recovers(step: Step, other: Step) -> bool:
    return step.command[1:2] == other.command[1:2] == ("recover",)


def _rank(step: Step, code: str) -> tuple[int, int, int]:
    if step in _FIRST:
        return 0, 0, 0
    if step in DO_NOT_START:
        return 0, 1, 0  # a copy, before anything else
    if step == METADATA_AGAIN:
        return 0, 2, 0  # recover ends queues as the tier does, and refuses without its metadata
    if step in MEND_FILES:
        return 1, 1, 0  # each file has a step of its own
    if not step.command and code == "file-foreign":
        return 1, -1, 0  # moving a directory away, without which no command continues
    if not step.command:
        return (1, 0, 0) if code.startswith("file-") or code == "log-position" else (4, 0, 0)
    if step.command == FILES:
        return 1, 0, 0
    verb = step.command[1]
    if verb == "rebuild":
        return 2, _BY_COMMAND.index(verb), _PARTS.index(step.command[3]) if step.command[3] in _PARTS else 0
    return 2, _BY_COMMAND.index(verb), 0 if step.destroys else 1


def _verdict(situation: Situation, worst: str | None, errors: Mapping[str, int]) -> tuple[str, str, bool]:
    """Summary of findings: what a broker would do now, what that would lose, and whether it is safe to start.

    Args:
        errors: codes with severity error, each with the number of its findings.
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
        code = "conf-size" if "conf-size" in errors else "conf-value"
        broker = f"A broker with the configuration that was given does not start on this store ({code})."
        return broker, "Nothing, as long as it does not start.", False
    if harms := sorted(HARMS_TIER & set(errors)):
        broker = f"A start deletes tiered storage, finds nothing of it, or stops using it ({', '.join(harms)})."
        return broker, f"{counted(sum(errors[code] for code in harms), 'message')} of the tier.", False
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
    """Return what to do after all steps."""
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
    """Number of findings by severity, the worst first."""
    counts = dict.fromkeys(SEVERITIES, 0)
    for cause in causes:
        for findings in cause.all:
            counts[findings.severity] += findings.count
    return {severity: count for severity, count in counts.items() if count}
