"""What a code is, and advice that several codes share."""

from dataclasses import asdict, dataclass
from typing import Any

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)  # worst first

RECOVER = "rmqtool recover STORE"
REBUILD = (
    "move consumequeue (or the queue's directory) and checkpoint away, create an empty file abort, "
    "then: rmqtool recover STORE"
)
REINDEX = "move checkpoint away, create an empty file abort, then: rmqtool recover STORE"
CUT = "rmqtool salvage STORE NEWSTORE keeps what lies behind; rmqtool recover STORE cuts here, as a broker does"
MEND = "rmqtool rebuild STORE config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One kind of finding.

    Attributes:
        severity: what a finding has unless it says otherwise: ``error`` (messages lost, unreachable or wrong, or the
            broker does not start), ``warning`` (something is wrong or will be), ``info`` (worth knowing, no fault).
        title: one line.
        meaning: what is wrong in the files.
        cause: how it comes about.
        broker: what a broker makes of it.
        fix: what to do.
    """

    code: str
    severity: str
    title: str
    meaning: str
    cause: str
    broker: str
    fix: str

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


CODE_FIELDS = tuple(Code.__dataclass_fields__)


def kind(code: str, severity: str, title: str, meaning: str, cause: str, broker: str, fix: str) -> Code:
    """A code, by position."""
    return Code(code=code, severity=severity, title=title, meaning=meaning, cause=cause, broker=broker, fix=fix)
