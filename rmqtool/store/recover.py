"""Recovery: plan it, or do it under the broker's lock as one transaction."""

import os
import tempfile

from rmqtool.store.layout import StoreLayout
from rmqtool.store.lock import StoreLock
from rmqtool.store.recovery import Recovery
from rmqtool.store.recovery_actions import prepare
from rmqtool.store.recovery_actions import report as report_of
from rmqtool.store.recovery_report import RecoveryReport
from rmqtool.store.transaction import Transaction, sweep, unfinished


def plan(layout: StoreLayout, *, fix_delay_times: bool = False, backup: str | None = None) -> RecoveryReport:
    """What recovery would do; the store is only read.

    Changed queues and indexes are still built, in the system's temporary directory, because what is dispatched depends
    on them.
    """
    with tempfile.TemporaryDirectory(prefix="rmqtool-") as directory:
        transaction = Transaction(layout.root, "plan", directory)
        recovery = Recovery(layout, transaction.staging, fix_delay_times=fix_delay_times)
        recovery.run()
        actions = [] if recovery.refusals else prepare(recovery, transaction)
        if (pending := unfinished(layout.root, backup)) is not None:
            # what is seen now is half of two states; the rest of this plan holds once the first is finished
            actions.insert(0, f"finish the interrupted run in {pending.path}")
        return report_of(recovery, actions=actions, applied=False, backup=None)


def recover(layout: StoreLayout, *, fix_delay_times: bool = False, backup: str | None = None) -> RecoveryReport:
    """Recover a store under the broker's lock, keeping what is replaced. A healthy store is not touched at all.

    A recovery that was killed is finished first.

    Args:
        backup: directory for what is replaced, instead of ``<store>.rmqtool`` beside the store.

    Raises:
        Refused: the store is in use, or there is no place for the backup.
    """
    if not os.access(layout.path("lock"), os.W_OK) and unfinished(layout.root, backup) is None:
        # taking the lock would make its file, or fail on a read-only medium; a healthy store needs neither
        report = plan(layout, fix_delay_times=fix_delay_times)
        if report.clean or not report.loadOk:
            return report
    with StoreLock(layout.root):
        if (pending := unfinished(layout.root, backup)) is not None:
            pending.apply()
        sweep(layout.root, backup)
        layout = StoreLayout(layout.root, layout.conf)
        transaction = Transaction(layout.root, "recover", backup)
        try:
            recovery = Recovery(layout, transaction.staging, fix_delay_times=fix_delay_times)
            recovery.run()
            actions = [] if recovery.refusals else prepare(recovery, transaction)
            kept = transaction.path if actions else None
            report = report_of(recovery, actions=actions, applied=bool(actions), backup=kept)
            if actions:
                transaction.commit()
        finally:
            transaction.discard()
    return report
