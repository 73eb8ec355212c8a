"""What the check of half messages goes by: its times, what it asks a producer, what it is answered, what it counts.

Source: broker.transaction.queue.TransactionalMessageServiceImpl (4.9.8); message-services 11.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from formats.message.read import Record
from rmqtool.services.open_store.broker_state import setting
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.repair.expiry import DEFAULT_RESERVED_HOURS, HOUR

IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PRODUCER_GROUP = "PGROUP"


class Decision(StrEnum):
    """What a producer says of its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class CheckRequest(NamedTuple):
    """What a producer is asked about: the newest copy of its half message, with its own topic and queue."""

    record: Record
    properties: dict[str, str]
    producer_group: str | None
    message_id: str
    check_times: int


Decide = Callable[[CheckRequest], Decision]
"""Where it has a method ``begin``, that is called first: what it raises ends the round before a check was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """Times in ms."""

    timeout: int = 6_000  # age at which a half message is asked about
    most_checks: int = 15
    reserved: int = DEFAULT_RESERVED_HOURS * HOUR  # age at which it is given up

    @classmethod
    def of(cls, conf: BrokerConf) -> "CheckRules":
        """As the broker's settings have them."""
        return cls(
            timeout=setting(conf, "transactionTimeOut", 6_000),
            most_checks=setting(conf, "transactionCheckMax", 15),
            reserved=setting(conf, "fileReservedTime", DEFAULT_RESERVED_HOURS) * HOUR,
        )


@dataclass(slots=True, kw_only=True)
class Checked:
    """What one round of the check did."""

    checked: int = 0  # asked about
    committed: int = 0
    rolledBack: int = 0
    unknown: int = 0
    givenUp: int = 0  # too many checks, or too old
    immune: int = 0  # put back unasked, at their own wish

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)
