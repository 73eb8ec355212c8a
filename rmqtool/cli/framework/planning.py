"""Commands that show a plan, ask, and carry it out."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rmqtool.cli.framework.options import DryRunOption, YesOption
from rmqtool.cli.render.output import confirm
from rmqtool.cli.render.text import note
from rmqtool.errors import Refused

Report = TypeVar("Report")


@dataclass(frozen=True)
class Consent:
    """The options that say whether a plan is only shown, or carried out without a question."""

    dry_run: DryRunOption = False
    yes: YesOption = False

    def need(self, command: str) -> None:
        """Refuse a command that neither option is given to, and that can ask nobody.

        Raises:
            Refused: it is one.
        """
        if not self.yes and not self.dry_run and not sys.stdin.isatty():
            raise Refused(f"{command} writes: give --yes to do it, or --dry-run to look only")


ASK = Consent()


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
        show: for the person who is asked.
        question: None where nothing needs to be asked.
        do: takes the plan that was shown, None with --yes.
        settled: whether a plan is an answer that nothing is to be done about.

    Returns:
        What came of it, and whether it is more than a plan.

    Raises:
        Refused: the answer was no.
    """
    planned = None
    if not consent.yes:
        planned = plan()
        if consent.dry_run or settled(planned):
            return planned, False
        show(planned)
        asked = question(planned)
        if asked is not None:
            ask(asked)
    elif consent.dry_run:
        return plan(), False
    return do(planned), True


def ask(question: str) -> None:
    """Ask whether to go on.

    Raises:
        Refused: the answer was no.
    """
    if not confirm(question):
        raise Refused("not confirmed: nothing was changed")


def note_actions(actions: list[str]) -> None:
    """What is going to be done, for the person who is asked."""
    for action in actions:
        note(f"  {action}")


def refuse_if_held(root: str, pid: int | None, *, dry_run: bool, otherwise: str) -> None:
    """Refuse a store that a process holds; of a dry run say what that means.

    Raises:
        Refused: it is held, and this is no dry run.
    """
    if pid is None:
        return
    who = f"process {pid or '(unknown)'} holds the lock"
    if not dry_run:
        raise Refused(f"{root}: {who}: stop the broker first")
    note(f"warning: {who}: {otherwise}")
