"""Types of the half-message check: its times, requests to producers, their decisions, and counts.

Source: broker.transaction.queue.TransactionalMessageServiceImpl (4.9.8); message-services 11.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from formats.message.read import Record
from rmqtool.rules.retention import DEFAULT_RESERVED_HOURS, HOUR
from rmqtool.services.open_store.broker_state import setting
from rmqtool.store.layout.broker_conf import BrokerConf

IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PRODUCER_GROUP = "PGROUP"


class Decision(StrEnum):
    """A producer's decision about its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class CheckRequest(NamedTuple):
    """A request to a producer: the newest copy of its half message, with the original topic and queue."""

    record: Record
    properties: dict[str, str]
    producer_group: str | None
    message_id: str
    check_times: int


Decide = Callable[[CheckRequest], Decision]
"""A method ``begin``, if there is one, is called first; if it raises, the round ends before a check is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """Times in ms."""

    timeout: int = 6_000  # age at which a half message is checked
    most_checks: int = 15
    reserved: int = DEFAULT_RESERVED_HOURS * HOUR  # age at which it is given up

    @classmethod
    def of(cls, conf: BrokerConf) -> "CheckRules":
        """The rules in the broker's settings."""
        return cls(
            timeout=setting(conf, "transactionTimeOut", 6_000),
            most_checks=setting(conf, "transactionCheckMax", 15),
            reserved=setting(conf, "fileReservedTime", DEFAULT_RESERVED_HOURS) * HOUR,
        )


@dataclass(slots=True, kw_only=True)
class CheckCounts:
    """Counts of one round of the check."""

    checked: int = 0  # producer was asked
    committed: int = 0
    rolledBack: int = 0
    unknown: int = 0
    givenUp: int = 0  # too many checks, or too old
    immune: int = 0  # put back unchecked, because of their own timeout

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)
