"""``dlq requeue`` of a live cluster."""

from collections.abc import Callable

from rmqtool.admin.live.questions import Session
from rmqtool.admin.live.queues import LiveQueues
from rmqtool.admin.live.requeue import LiveRequeue, LiveRequeued
from rmqtool.admin.target import Target
from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.framework.planning import Consent, carry_out
from rmqtool.cli.render.rows import Warnings
from rmqtool.cli.render.text import note
from rmqtool.cli.write.show_requeued import is_settled, note_plan, show_requeued


def requeue_live(
    live: Target, group: str, ids: list[str] | None, *, target: str, gone: list[str], consent: Consent, output: str
) -> int:
    """Give dead letters back; the exit code is that of a store."""
    warn, ending = Warnings(), StopSignal()

    def run(work: Callable[[LiveRequeue], list[LiveRequeued]], chosen: list[str] | None = ids) -> list[LiveRequeued]:
        with Session(live, warn) as session:
            return work(LiveRequeue(LiveQueues(session, warn), group, chosen, target, note, gone=gone))

    def do(shown: list[LiveRequeued] | None) -> list[LiveRequeued]:
        chosen = ids if shown is None else [row.deadLetterId for row in shown]
        with ending.watch():
            return run(lambda requeue: list(requeue.carry_out(lambda: ending.asked)), chosen)

    rows, done = carry_out(
        consent,
        plan=lambda: run(lambda requeue: [row for row, _sending in requeue.plan()]),
        settled=is_settled,
        show=lambda rows: note_plan(rows, group),
        question=lambda _rows: "Do this? What is sent cannot be taken back.",
        do=do,
    )
    return show_requeued(rows, LiveRequeued, group, ending, warn, output=output, done=done)
