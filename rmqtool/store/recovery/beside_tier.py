"""What a recovery means for the tier of a store with tiered storage."""

from dataclasses import replace

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.report import RecoveryReport, StoreState
from rmqtool.store.tier.guard import DO_NOT_START, tier_dangers
from rmqtool.store.tier.tier import Key


def ranges_of(state: StoreState) -> dict[Key, tuple[int, int]]:
    """(lowest, next) queue offset of every local queue."""
    return {(queue.topic, queue.queueId): (queue.minOffset, queue.maxOffset) for queue in state.queues}


def beside_tier(layout: StoreLayout, report: RecoveryReport, said: list[str]) -> RecoveryReport:
    """A report with what the tier has to do with it: the dangers come before all other warnings.

    Args:
        said: what the table of roles warns of.
    """
    state = report.afterStart or report.afterLoad
    dangers = tier_dangers(layout, ranges_of(state)) if report.loadOk else []
    warnings = [*(f"{DO_NOT_START}: {danger}" for danger in dangers), *said, *report.warnings]
    destroys = [*report.destroys, *dangers] if report.actions else report.destroys
    return replace(report, warnings=warnings, destroys=destroys, tierDangers=dangers)
