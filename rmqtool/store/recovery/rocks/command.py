"""``recover --dry-run`` for a store in RocksDB form. Such a store is never changed in place."""

from dataclasses import replace

from rmqtool.rules.releases import Release
from rmqtool.store.changes.writing import planning
from rmqtool.store.config.fit import misfit_warnings
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.recovery.rocks.plan import run_rocks_recovery
from rmqtool.store.recovery.rocks.words import report


def plan_rocks(layout: StoreLayout, release: Release | None = None) -> RecoveryReport:
    """Plan what a broker would do with the store at its next start; the store is only read.

    Args:
        release: release of the broker; by default the store's own.

    Raises:
        MissingRuntime: the library to read its database is not installed.
        Refused: the store also has a form that these rules do not cover.
        UnreadableStore: a file of the log cannot be read.
    """
    layout = layout.passing_over()
    with planning(layout) as change:
        plan = report(run_rocks_recovery(StoreInputs.of(layout, release=release), change.staging))
    warnings = misfit_warnings(layout)
    passed = [f"{reason}: this plan is for when it is out of the way" for reason in (layout.passed or {}).values()]
    return replace(plan, warnings=[*warnings, *plan.warnings, *passed], unfit=warnings)
