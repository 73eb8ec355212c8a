"""The work of ``run`` and ``dlq requeue``."""

from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.framework.opening import live_target
from rmqtool.cli.framework.planning import Consent, carry_out
from rmqtool.cli.render.rows import Warnings, write_rows
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time
from rmqtool.cli.write.run_decide import DecidingCommand, decider
from rmqtool.cli.write.show_requeued import is_settled, note_plan, show_requeued
from rmqtool.errors import BadValue
from rmqtool.services.open_store.store import Store
from rmqtool.services.retries.requeue import TARGETS, Requeue, Requeued, requeue
from rmqtool.services.serving.run_loop import RunLoop, RunReport
from rmqtool.words import command_line


class _Spoken(Warnings):
    """Warnings of a long-running command: each is shown at once, and once only."""

    def __call__(self, text: str) -> None:
        if text not in self._seen:
            note(f"warning: {text}")
        super().__call__(text)

    def tell(self) -> int:
        return 1 if self._seen else 0


def _open_store(path: str, broker_conf: str | None, command: str) -> Store:
    store = Store(path, write=True, broker_conf=broker_conf, mend=True, command=command)
    for text in store.warnings:
        note(f"warning: {text}")
    if store.live.mended is not None and store.live.mended.actions:
        note(f"{store.layout.root}: was not stopped cleanly; recovered first, nothing was lost")
    return store


def run_loop(
    path: str, broker_conf: str | None, *, once: bool, until: str | None, transactions: str | None, output: str
) -> int:
    """Serve a store until it is time to end; 1 where something could not be delivered."""
    if once and until is not None:
        raise BadValue("give --once or --until, not both")
    warn, ending = _Spoken(), StopSignal()
    decide = decider(transactions, ending.fd, lambda: ending.asked)
    end = parse_time(until) if until not in (None, "delivered") and until is not None else None
    with ending.watch(), _open_store(path, broker_conf, "run") as store:
        loop = RunLoop(store, warn, decide)
        try:
            report = loop.run(
                ending.wait, once=once, until=end, until_delivered=until == "delivered", stop=lambda: ending.asked
            )
        finally:
            if isinstance(decide, DecidingCommand):
                decide.close()
    if report.stuck and until == "delivered":
        levels = ", ".join(f"level {level}" if level else "the timer" for level in report.stuck)
        note(f"ended with messages that wait: nothing more can be delivered of {levels}")
    if ending.asked:
        note(f"stopped: what still waits is delivered by the next run ({command_line('delay', 'list', path)})")
    names = [
        *("delivered", "discarded", "skipped", "checked", "committed", "rolledBack", "unknown", "givenUp"),
        *(name for name in ("rolled", "recalled") if getattr(report, name)),
        "nextTimestamp",
    ]
    write_rows(output, RunReport, [report], names, spare=("delivered",))
    return warn.tell()


def run_requeue(
    path: str,
    group: str,
    ids: list[str] | None,
    broker_conf: str | None,
    *,
    target: str,
    gone: list[str] | None,
    consent: Consent,
    output: str,
) -> int:
    """Give dead letters back; 1 where a dry run found some, or where one was refused or none was found."""
    if target not in TARGETS:
        raise BadValue(f"--to {target}: give {' or '.join(TARGETS)}")
    consent.need("dlq requeue")
    if (live := live_target(path)) is not None:
        from rmqtool.cli.write.live_requeue import requeue_live

        return requeue_live(live, group, ids, target=target, gone=gone or [], consent=consent, output=output)
    if gone:
        raise BadValue("--gone: a store is one broker; it is for a live cluster")
    warn, ending = Warnings(), StopSignal()

    def plan() -> list[Requeued]:
        from rmqtool.cli.framework.opening import need_messages, open_store
        from rmqtool.store.roles.table import heed

        for text in heed(open_store(path, broker_conf), "dlq requeue") if consent.dry_run else ():
            note(f"warning: {text}")
        return [row for row, _message in Requeue(need_messages(path, broker_conf), group, ids, target, warn).plan()]

    def do(shown: list[Requeued] | None) -> list[Requeued]:
        chosen = ids if shown is None else [row.deadLetterId for row in shown]
        with ending.watch(), _open_store(path, broker_conf, "dlq requeue") as store:
            return list(requeue(store, group, chosen, target, warn, lambda: ending.asked))

    rows, done = carry_out(
        consent,
        plan=plan,
        settled=is_settled,
        show=lambda rows: note_plan(rows, group),
        question=lambda _rows: "Do this?",
        do=do,
    )
    return show_requeued(rows, Requeued, group, ending, warn, output=output, done=done)
