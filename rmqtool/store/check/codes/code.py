"""The description of a code."""

from dataclasses import asdict, dataclass
from typing import Any

from rmqtool.store.check.advice.steps import Step, by_hand, sentences

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)  # worst first


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One kind of finding.

    Attributes:
        severity: default severity of its findings: ``error`` (messages lost, unreachable or wrong, or the broker does
            not start), ``warning`` (something is wrong or will be), ``info`` (worth knowing, not a fault).
        title: one line.
        meaning: what is wrong in the files.
        cause: how it comes about.
        broker: what a broker makes of it.
        fix: what to do, as text.
        steps: the same as data, the safest first; findings have steps adapted to their store.
    """

    code: str
    severity: str
    title: str
    meaning: str
    cause: str
    broker: str
    fix: str
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "steps": [step.to_dict() for step in self.steps]}


CODE_FIELDS = tuple(Code.__dataclass_fields__)


def kind(
    code: str, severity: str, title: str, meaning: str, cause: str, broker: str, advice: str | Step | tuple[Step, ...]
) -> Code:
    """Create a code from positional arguments; a string as advice is what the user must do."""
    if isinstance(advice, str):
        advice = by_hand(advice)
    steps = (advice,) if isinstance(advice, Step) else advice
    return Code(
        code=code,
        severity=severity,
        title=title,
        meaning=meaning,
        cause=cause,
        broker=broker,
        fix=sentences(steps),
        steps=steps,
    )
