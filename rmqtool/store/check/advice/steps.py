"""Advice as data: the steps to take after a finding, in order, the safest first."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rmqtool.store.layout.mending import FILES, SHORT_OR_STRANGE
from rmqtool.words import command_line, counted

KEEPS = "nothing is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        command: words of a command line; words in capitals are placeholders: STORE is the checked store, NEWSTORE a
            directory to be created. Empty if the user must act.
        does: what the command does, or what the user must do.
        costs: what it loses or takes; empty if it does not change the store.
        destroys: whether intact messages leave the store. They are backed up next to it, but invisible to brokers.
    """

    command: tuple[str, ...] = ()
    does: str
    costs: str = ""
    destroys: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "command": list(self.command)}

    def __str__(self) -> str:
        costs = f" ({self.costs})" if self.costs else ""
        return f"{command_line(*self.command[1:])}: {self.does}{costs}" if self.command else f"{self.does}{costs}"


def sentences(steps: Iterable[Step]) -> str:
    """The steps as printed by ``check`` and ``explain``."""
    return "; then ".join(map(str, steps))


def by_hand(does: str, costs: str = "") -> tuple[Step]:
    """Advice for which there is no command."""
    return (Step(does=does, costs=costs),)


def _rebuild(part: str, does: str) -> Step:
    return Step(command=("rmqtool", "rebuild", "STORE", part), does=does, costs=KEEPS)


SALVAGE = Step(
    command=("rmqtool", "salvage", "STORE", "NEWSTORE"),
    does="copies every intact message, also those after damage, into a new store with queues and index",
    costs="STORE is not changed; NEWSTORE lacks only damaged messages",
)
RECOVER = Step(
    command=("rmqtool", "recover", "STORE"),
    does="ends the log where a broker's start would end it, and repairs queues, index and checkpoint; it shows the "
    "plan first, and keeps a copy of what it replaces",
)
RECOVER_UNHARMED = replace(RECOVER, costs="no intact message is cut")
REBUILD_QUEUES = _rebuild("consumequeue", "rebuilds all consume queues from the log")
REBUILD_MEMBER_QUEUES = _rebuild(
    "consumequeue",
    "rebuilds the queues of a DLedger member as far as its next start leaves them alone; that puts the rest into them",
)
REBUILD_INDEX = _rebuild("index", "rebuilds the index from the log")
REBUILD_CHECKPOINT = _rebuild("checkpoint", "rewrites the checkpoint with the times of the log")
REBUILD_TIMER = _rebuild(
    "timer",
    "rebuilds the timer's files from the log: every message that is not due yet waits again",
)
REBUILD_COMPACTION = _rebuild(
    "compaction",
    "rebuilds the logs of compacted topics from every intact message in them or in the commit log",
)
MEND = _rebuild("config", "repairs config files with the help of their .bak, the queues and the log")
REBUILD_FILES = Step(command=FILES, does=SHORT_OR_STRANGE.does, costs=KEEPS)
UNDO = Step(
    command=("rmqtool", "undo", "STORE"),
    does="finishes the undo: restores what the undone command had replaced",
    costs="what that command did is undone",
)
NOTHING = by_hand("nothing to do")


RECOVER_CUTTING = Step(
    command=("rmqtool", "recover", "STORE", "--accept-loss"),
    does="ends the log at the first damage that a broker would find at startup, as the broker does",
    costs="intact messages after it leave STORE; NEWSTORE has them",
    destroys=True,
)


def recover_cutting(messages: int) -> Step:
    """Recovery that cuts off ``messages`` intact messages."""
    verb, them = ("leaves", "it") if messages == 1 else ("leave", "them")
    return replace(
        RECOVER_CUTTING, costs=f"{counted(messages, 'intact message')} after it {verb} STORE; NEWSTORE has {them}"
    )
