"""The consequences of a recovery for the tier of a store with tiered storage."""

from dataclasses import replace

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.report import RecoveryReport, StoreState
from rmqtool.store.tier.guard import DO_NOT_START, tier_dangers
from rmqtool.store.tier.tier import Key


def ranges_of(state: StoreState) -> dict[Key, tuple[int, int]]:
    """(lowest, next) queue offset of every local queue."""
    return {(queue.topic, queue.queueId): (queue.minOffset, queue.maxOffset) for queue in state.queues}


def beside_tier(layout: StoreLayout, report: RecoveryReport, role_warnings: list[str]) -> RecoveryReport:
    """Add the dangers for the tier to a report, before all other warnings.

    Args:
        role_warnings: the warnings of the table of roles.
    """
    state = report.afterStart or report.afterLoad
    dangers = tier_dangers(layout, ranges_of(state)) if report.loadOk else []
    warnings = [*(f"{DO_NOT_START}: {danger}" for danger in dangers), *role_warnings, *report.warnings]
    destroys = [*report.destroys, *dangers] if report.actions else report.destroys
    return replace(report, warnings=warnings, destroys=destroys, tierDangers=dangers)
