"""Commands that show a plan, ask, and then carry it out."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rmqtool.cli.framework.options import BackupOption, BrokersOption, DryRunOption, Output, OutputOption, YesOption
from rmqtool.cli.render.text import fold, note
from rmqtool.errors import Refused

Report = TypeVar("Report")


@dataclass(frozen=True)
class Consent:
    """The options --dry-run and --yes."""

    dry_run: DryRunOption = False
    yes: YesOption = False

    def need(self, command: str) -> None:
        """Refuse to continue if neither option is given and there is no terminal to ask on.

        Raises:
            Refused: there is nobody to ask.
        """
        if not self.yes and not self.dry_run and not sys.stdin.isatty():
            raise Refused(f"{command} writes: give --yes to do it, or --dry-run to look only")


ASK = Consent()


@dataclass(frozen=True)
class ChangeOptions(Consent):
    """The options of a command that shows its plan and can be undone: --dry-run, --yes, --backup and --output."""

    backup: BackupOption = None
    output: OutputOption = Output.text


@dataclass(frozen=True)
class BrokerChoice:
    """Which brokers of a live cluster; all if none is named."""

    broker: BrokersOption = None


@dataclass(frozen=True)
class BrokerChange(ChangeOptions, BrokerChoice):
    """The options of a command that changes brokers; --broker is the first of them."""


CHANGE, CHANGE_BROKERS = ChangeOptions(), BrokerChange()


def carry_out(
    consent: Consent,
    *,
    plan: Callable[[], Report],
    show: Callable[[Report], None],
    question: Callable[[Report], str | None],
    do: Callable[[Report | None], Report],
    settled: Callable[[Report], bool] = lambda _plan: False,
) -> tuple[Report, bool]:
    """Plan, show, ask, do.

    Args:
        show: shows the plan to the person who is asked.
        question: None where nothing needs to be asked.
        do: carries it out; gets the plan that was shown, None with --yes.
        settled: whether a plan has nothing to do.

    Returns:
        The result, and whether the plan was carried out.

    Raises:
        Refused: the answer was no.
    """
    planned = None
    if consent.dry_run or not consent.yes:
        planned = plan()
        if consent.dry_run or settled(planned):
            return planned, False
        show(planned)
        asked = question(planned)
        if asked is not None:
            ask(asked)
    return do(planned), True


def ask(question: str) -> None:
    """Ask whether to continue.

    Raises:
        Refused: the answer was no.
    """
    if not confirm(question):
        raise Refused("not confirmed: nothing was changed")


def note_actions(actions: list[str]) -> None:
    """Note each action of the plan."""
    for action in actions:
        note(f"  {action}")


def refuse_if_held(root: str, pid: int | None, *, dry_run: bool, otherwise: str) -> None:
    """Refuse a store that a process holds; for a dry run only warn.

    Raises:
        Refused: it is held, and this is not a dry run.
    """
    if pid is None:
        return
    who = f"process {pid or '(unknown)'} holds the lock"
    if not dry_run:
        raise Refused(f"{root}: {who}: stop the broker first")
    note(f"warning: {who}: {otherwise}")


def confirm(question: str) -> bool:
    """Ask on the terminal; anything but yes, end of input included, is no."""
    sys.stderr.write(f"{fold(f'{question} [y/N]:', sys.stderr)} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
